"""What is reported on the side fails a test; see ``Asides``."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.asides import Asides


async def report() -> None:
    asyncio.get_running_loop().call_exception_handler({"message": "a transaction was left open"})


async def test_what_the_loop_of_the_tests_reports_is_seen(asides: Asides) -> None:
    await report()
    with pytest.raises(AssertionError, match=r"test_what_the_loop_of_the_tests_reports_is_seen.*left open"):
        asides.check()
    asides.check()


def test_so_is_what_any_other_loop_reports(asides: Asides) -> None:
    asyncio.run(report())
    with pytest.raises(AssertionError, match="left open"):
        asides.check()


def test_a_program_that_takes_over_the_log_hides_nothing(asides: Asides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("asyncio"), "handlers", [logging.NullHandler()])
    monkeypatch.setattr(logging.getLogger("asyncio"), "propagate", False)
    asyncio.run(report())
    with pytest.raises(AssertionError, match="left open"):
        asides.check()
