"""The pytest plugin. All fixtures are synchronous, so that they work with every way of testing."""

from __future__ import annotations

import asyncio
import os
import pkgutil
import threading
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from millpond.app import Millpond
    from millpond.testing.databases import DatabaseServer
    from millpond.testing.harness import Harness

DATABASE_VARIABLE = "TEST_DATABASE_URL"
UNSOUND = "millpond_unsound"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("millpond_app", "The Millpond() under test, as module:name.", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{UNSOUND}: leaves jobs or credits in a state that violates the invariants of `verify`"
    )


@pytest.fixture(scope="session")
def millpond_product(request: pytest.FixtureRequest) -> Millpond:
    """The Millpond() under test: the one named by `millpond_app` in the pytest settings, unless overridden."""
    name = str(request.config.getini("millpond_app"))
    if not name:
        pytest.fail(
            'The Millpond() under test is unknown. Set `millpond_app = "shop.jobs:app"` in the pytest '
            "settings, or override the fixture millpond_product.",
            pytrace=False,
        )
    return pkgutil.resolve_name(name)


@pytest.fixture(scope="session")
def millpond_setup() -> Callable[[str], object]:
    """Creates the host's own tables in the template database. Override it."""
    return lambda _dsn: None


@pytest.fixture(scope="session")
def millpond_server() -> Generator[DatabaseServer]:
    """One PostgreSQL for the whole run: that of TEST_DATABASE_URL, or an embedded one."""
    from millpond.testing.databases import running_server  # noqa: PLC0415 - only for those who use it

    with running_server(os.environ.get(DATABASE_VARIABLE)) as running:
        yield running


@pytest.fixture(scope="session")
def millpond_template(
    millpond_server: DatabaseServer, millpond_product: Millpond, millpond_setup: Callable[[str], object]
) -> Generator[str]:
    """The name of a database with the schema, the app's kinds and the host's tables."""
    name = _run(millpond_server.create())
    try:
        _run(_register(millpond_server.named(name), millpond_product))
        millpond_setup(millpond_server.named(name))
        yield name
    finally:
        _run(millpond_server.drop(name))


@pytest.fixture
def millpond_dsn(millpond_server: DatabaseServer, millpond_template: str) -> Generator[str]:
    """The URL of the test's own database."""
    name = _run(millpond_server.create(millpond_template))
    try:
        yield millpond_server.named(name)
    finally:
        _run(millpond_server.drop(name))


@pytest.fixture
def millpond_app(millpond_dsn: str, millpond_product: Millpond, request: pytest.FixtureRequest) -> Generator[Harness]:
    """The harness of the app. All invariants are checked when the test ends."""
    from millpond.testing.harness import Harness  # noqa: PLC0415 - only for those who use it

    harness = Harness(millpond_dsn, millpond_product)
    try:
        yield harness
        if UNSOUND not in request.keywords:
            harness.assert_sound()
    finally:
        harness.close()


async def _register(dsn: str, app: Millpond) -> None:
    from millpond.engine.engine import Engine  # noqa: PLC0415 - only for those who use it

    engine = await Engine.open(dsn, app, pool_size=1)
    await engine.close()


def _run(call: Coroutine[Any, Any, Any]) -> Any:
    """Run in a separate thread, as the test's thread may have its own event loop."""
    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(_outcome(call)))
    thread.start()
    thread.join()
    value, error = answer[0]
    if error is not None:
        raise error
    return value


def _outcome(call: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    try:
        return asyncio.run(call), None
    except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
        return None, error
