"""One system under test for the whole run; the table at its end, on the terminal and as a page of the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from products.tests.conformance import actions, effects, guard, partner, studio, table
from products.tests.conformance.running import Running
from products.tests.conformance.system import SystemUnderTest, running_system

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["actions", "effects", "guard", "partner", "studio"]

_RESULTS = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RESULTS] = {}


@pytest.fixture(scope="session")
async def system(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SystemUnderTest]:
    async with running_system(tmp_path_factory.mktemp("system")) as made:
        yield made


@pytest.fixture(scope="session")
async def running(system: SystemUnderTest, request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    """All checks that were asked for, under way."""
    made = Running(system, [number for item in request.session.items if (number := _number(item)) is not None])
    yield made
    await made.close()


def _number(item: pytest.Item) -> Any:
    """The requirement that a test is about, if it is about one."""
    return (
        item.callspec.params.get("number") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    number = _number(item)
    if number is not None and (report.when == "call" or not report.passed):
        results = item.config.stash[_RESULTS]
        results[number] = "passed" if report.passed and results.get(number, "passed") == "passed" else "failed"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The rows that ran. What is written down is always a whole table, and what truly resulted."""
    results = config.stash[_RESULTS]
    for number, sentence in table.SENTENCES.items():
        if number in results:
            terminalreporter.write_line(
                f"{number:<7} {results[number]:<7} {sentence.text}", red=results[number] == "failed"
            )
    passed = sum(result == "passed" for result in results.values())
    terminalreporter.write_line(f"{passed} of {len(results)} requirements hold; there are {len(table.SENTENCES)}.")
    if results.keys() == table.SENTENCES.keys():
        page = table.page(results)
        if not table.PAGE.exists() or table.PAGE.read_text("utf-8") != page:
            table.PAGE.write_text(page, "utf-8")
            terminalreporter.write_line(f"{table.PAGE.name} was rewritten.")
