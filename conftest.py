"""The fixtures of all tests, of the core and of the products: a database per test, an engine on it, a clock."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from uuid import uuid4

import httpcore2
import pytest
from tests.asides import Asides
from tests.browsers import CHROMIUM, NO_BROWSER, running_browser
from tests.children import Nursery
from tests.clocks import Clock
from tests.databases import DatabaseServer, migrated_template, running_server
from tests.factories import Factory
from tests.product import app
from tests.recycling import Recycling

from millpond import logs
from millpond.engine.engine import Engine
from millpond.engine.verify import verify
from millpond.storage.local import Local

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import Browser

    from millpond.store.db import Database


def pytest_configure(config: pytest.Config) -> None:
    # A shell that runs pytest in the background ignores SIGINT, and all processes that a test starts inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Nursery())
    config.addinivalue_line("markers", "busy: its shared fixtures start processes at any time")
    config.addinivalue_line("markers", "unsound: leaves the database in a state in which `verify` must find violations")


ROOT = Path(__file__).parent
LONGEST = (
    "tests/docs/test_pages",
    "tests/cli/test_commands",
    "products/tests/test_demo",
    "tests/tenant_databases/test_kills",
    "tests/api/test_schemathesis",
    "products/tests/test_documents",
    "tests/chaos",
    "tests/faults",
    "tests/ui",
    "tests/acceptance",
    "products/tests/proofs",
    "tests/model",
    "products/tests/renderer",
    "tests/cli",
    "tests/testing",
    "tests/providers",
    "tests/worker",
    "products/tests",
)
"""The files that take longest, or wait most. They run first: a process runs whole files, so the last must be short."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the files, and the tests in each, in any order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(ROOT).as_posix()
        return next((n for n, start in enumerate(LONGEST) if path.startswith(start)), len(LONGEST))

    if (seed := config.getoption("--shuffle")) is not None:
        random = Random(seed)
        files = {path: random.random() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: (files[item.path], random.random()))
    elif all(item.path.is_relative_to(ROOT) for item in items):
        items.sort(key=place)


def pytest_collection_finish() -> None:
    gc.freeze()  # the objects of all modules live until the end, so no collection has to scan them again


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip here and not in the fixture: the summary has one line for all tests, and no other fixtures are set up."""
    if CHROMIUM is None and isinstance(item, pytest.Function) and "browser" in item.fixturenames:
        pytest.skip(NO_BROWSER)


@pytest.fixture(scope="session")
def asides() -> Iterator[Asides]:
    listening = Asides()
    logging.getLogger("asyncio").addFilter(listening)
    yield listening
    logging.getLogger("asyncio").removeFilter(listening)


@pytest.fixture(scope="module", autouse=True)
async def _nothing_is_left(anyio_backend: str, asides: Asides) -> AsyncIterator[None]:
    """Collect garbage after each module: many errors are only reported then, and must be attributed to the module.

    This fixture runs on the loop of the tests, whose runner raises the errors that were reported to the loop.
    """
    yield
    gc.collect()
    asides.check()


@pytest.fixture(autouse=True)
def _nothing_is_said_aside(_nothing_is_left: None, asides: Asides) -> Iterator[None]:
    """Set up before the test's own fixtures, so that it checks after their teardown."""
    yield
    asides.check()


@pytest.fixture(autouse=True)
def _the_log_is_as_it_was() -> Iterator[None]:
    """Restore the log: a command that a test runs in this process configures it, on a stream that the test closes."""
    before = logs._threshold, logs._logger
    yield
    logs._threshold, logs._logger = before


ROOT = Path(__file__).resolve().parent
HOME_FOLDERS = (ROOT, *(Path(folder).resolve() for folder in (sys.prefix, sys.base_prefix)))
EXAMPLES = ROOT / "examples"
"""Apps, each of which is loaded as the module `app`."""
STAYING: set[str] = set()
"""The modules that are known to come from there."""


@pytest.fixture(autouse=True)
def _nothing_is_imported_from_elsewhere() -> Iterator[None]:
    """Unload apps: one that was loaded from a file stays in sys.modules, and another file may have its name."""
    before = sys.path.copy()
    yield
    sys.path[:] = before
    for name in sys.modules.keys() - STAYING:
        file = getattr(sys.modules[name], "__file__", None)
        is_at_home = file is None or any(Path(file).is_relative_to(folder) for folder in HOME_FOLDERS)
        if is_at_home and not (file is not None and Path(file).is_relative_to(EXAMPLES)):
            STAYING.add(name)
        else:
            del sys.modules[name]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    async with running_browser() as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def _certificates() -> Iterator[None]:
    """Read the certificates once: each HTTP client would read them again, which takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[DatabaseServer]:
    """One PostgreSQL for the whole run."""
    with running_server() as running:
        yield running


@pytest.fixture(scope="session")
async def template(anyio_backend: str, server: DatabaseServer) -> AsyncIterator[str]:
    """The name of a migrated database with the test product, from which others are cloned."""
    async with migrated_template(server) as name:
        yield name


@pytest.fixture(scope="session")
async def recycling(server: DatabaseServer, template: str) -> AsyncIterator[Recycling]:
    made = Recycling(server, template)
    yield made
    await made.close()


@pytest.fixture
def dsn(request: pytest.FixtureRequest) -> str:
    """The DSN of the test's own database: migrated, with the test product."""
    return request.getfixturevalue("db").dsn if "db" in request.fixturenames else request.getfixturevalue("new_dsn")


@pytest.fixture
async def new_dsn(server: DatabaseServer, template: str) -> AsyncIterator[str]:
    """Like ``dsn``, for a database that no other test has used: for tests that read statistics or pages."""
    async with server.database(template) as address:
        yield address


@pytest.fixture
async def empty_dsn(anyio_backend: str, server: DatabaseServer) -> AsyncIterator[str]:
    """The DSN of an empty database."""
    async with server.database() as address:
        yield address


@pytest.fixture
async def db(recycling: Recycling) -> AsyncIterator[Database]:
    async with recycling.database() as opened:
        yield opened


@pytest.fixture
async def engine(db: Database, request: pytest.FixtureRequest, files: Local) -> AsyncIterator[Engine]:
    """An engine with the test product; every invariant must hold when the test is over."""
    yield Engine(db, app, storage=files)
    if "unsound" not in request.keywords:
        assert await verify(db) == []


@pytest.fixture
def files(tmp_path_factory: pytest.TempPathFactory) -> Local:
    """Storage in a folder that is created at the first write; no server answers at its signed URLs."""
    return Local(tmp_path_factory.getbasetemp() / f"files-{uuid4().hex}", "http://files.test")


@pytest.fixture
def clock(db: Database) -> Clock:
    """The clock of the database, which the test controls."""
    return Clock(db)


@pytest.fixture
def make(engine: Engine, clock: Clock) -> Factory:
    """Creates jobs in the state with which a test begins."""
    return Factory(engine, clock)
