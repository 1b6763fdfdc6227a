"""What every test may ask for: a database of its own, an engine on it, a clock to turn, jobs in any state."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from uuid import uuid4

import httpcore2
import pytest

from millpond.engine.engine import Engine
from millpond.engine.verify import verify
from millpond.storage.local import Local
from tests.browsers import CHROMIUM, NO_BROWSER, running_browser
from tests.children import Nursery
from tests.clocks import Clock
from tests.databases import Server, migrated_template, running_server
from tests.factories import Factory
from tests.product import app
from tests.recycling import Recycling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import Browser

    from millpond.store.db import Database


def pytest_configure(config: pytest.Config) -> None:
    # A shell that runs us in the background ignores Ctrl-C, and so would every process that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Nursery())
    config.addinivalue_line("markers", "busy: fixtures that it shares with other tests go on starting processes")
    config.addinivalue_line("markers", "unsound: leaves the database in a state that `verify` must not like")


LONGEST = (
    "docs/test_pages",
    "cli/test_commands",
    "docs/test_demo",
    "homes/test_kills",
    "api/test_schemathesis",
    "blueprints/test_documents",
    "chaos",
    "faults",
    "ui",
    "acceptance",
    "proofs",
    "model",
    "renderer",
    "cli",
    "testing",
    "providers",
    "worker",
    "blueprints",
)
"""The files that take longest, or wait most. Processes share the work by files: what is begun last ends alone."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the files, and the tests in each, in any order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((n for n, start in enumerate(LONGEST) if path.startswith(start)), len(LONGEST))

    if (seed := config.getoption("--shuffle")) is not None:
        random = Random(seed)
        files = {path: random.random() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: (files[item.path], random.random()))
    elif all(item.path.is_relative_to(Path(__file__).parent) for item in items):
        items.sort(key=place)


def pytest_collection_finish() -> None:
    gc.freeze()  # what all modules hold stays to the end: no collection needs to walk through it again


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Not in the fixture: so the summary has one line for all, and nothing is started that a test needs besides."""
    if CHROMIUM is None and isinstance(item, pytest.Function) and "browser" in item.fixturenames:
        pytest.skip(NO_BROWSER)


class Asides(logging.Handler):
    """What event loops report beside everything: what they were told of, and nobody awaits.

    The runner of AnyIO raises the exceptions that its own loop is told of. What is reported without an exception
    (a transaction that was left open, a task that was destroyed) goes to this logger, and so does everything from
    loops that somebody else runs.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(f"{os.environ.get('PYTEST_CURRENT_TEST', 'between tests')}: {self.format(record)}")

    def check(self) -> None:
        told, self.told = self.told, []
        assert not told, "\n".join(told)


@pytest.fixture(scope="session")
def asides() -> Iterator[Asides]:
    listening = Asides()
    logging.getLogger("asyncio").addHandler(listening)
    yield listening
    logging.getLogger("asyncio").removeHandler(listening)


@pytest.fixture(scope="module", autouse=True)
async def _nothing_is_left(anyio_backend: str, asides: Asides) -> AsyncIterator[None]:
    """Much is reported only when it is collected: so that happens while the module is still the one to blame.

    It runs on the loop of the tests, whose runner raises at its end what that loop was told.
    """
    yield
    gc.collect()
    asides.check()


@pytest.fixture(autouse=True)
def _nothing_is_said_aside(_nothing_is_left: None, asides: Asides) -> Iterator[None]:
    """Set up before the test's own fixtures, so it looks when they are gone."""
    yield
    asides.check()


@pytest.fixture(autouse=True)
def _nothing_is_imported_from_elsewhere() -> Iterator[None]:
    """An app that is loaded from its file stays known by the name of the file, and so would be every other's."""
    before = sys.path.copy()
    yield
    if added := set(sys.path).difference(before):
        sys.path[:] = before
        for name, module in list(sys.modules.items()):
            if str(Path(getattr(module, "__file__", None) or "").parent) in added:
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
    """Read once: each client of HTTP would read them anew, which takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One PostgreSQL for the whole run."""
    with running_server() as running:
        yield running


@pytest.fixture(scope="session")
async def template(anyio_backend: str, server: Server) -> AsyncIterator[str]:
    """The name of a migrated database with the test product in it, to be cloned."""
    async with migrated_template(server) as name:
        yield name


@pytest.fixture(scope="session")
async def recycling(server: Server, template: str) -> AsyncIterator[Recycling]:
    made = Recycling(server, template)
    yield made
    await made.close()


@pytest.fixture
def dsn(request: pytest.FixtureRequest) -> str:
    """The address of a database of the test's own: migrated, with the test product."""
    return request.getfixturevalue("db").dsn if "db" in request.fixturenames else request.getfixturevalue("new_dsn")


@pytest.fixture
async def new_dsn(server: Server, template: str) -> AsyncIterator[str]:
    """As ``dsn``, of a database that no other test has used: for who looks at statistics, or at pages."""
    async with server.database(template) as address:
        yield address


@pytest.fixture
async def empty_dsn(anyio_backend: str, server: Server) -> AsyncIterator[str]:
    """The address of a database with nothing in it."""
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
    """Storage in a folder that is made when something is put there; what is signed for it leads nowhere."""
    return Local(tmp_path_factory.getbasetemp() / f"files-{uuid4().hex}", "http://files.test")


@pytest.fixture
def clock(db: Database) -> Clock:
    """The database's clock, in the test's hand."""
    return Clock(db)


@pytest.fixture
def make(engine: Engine, clock: Clock) -> Factory:
    """Jobs in the state a test begins with."""
    return Factory(engine, clock)
