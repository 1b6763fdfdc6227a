"""What event loops report while a test runs, which nobody awaits."""

from __future__ import annotations

import logging
import os
from typing import Final

_FORMAT: Final = logging.Formatter()


class Asides(logging.Filter):
    """Collects what event loops report: exceptions and warnings that no caller receives.

    The runner of AnyIO raises the exceptions that its own loop reports. Reports without an exception (a transaction
    that was left open, a task that was destroyed), and all reports of other loops, go to this logger. It is a filter
    and not a handler, because a program that a test runs in its own process replaces the handlers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            test = os.environ.get("PYTEST_CURRENT_TEST", "between tests")
            self.reports.append(f"{test}: {_FORMAT.format(record)}")
        return True

    def check(self) -> None:
        reports, self.reports = self.reports, []
        assert not reports, "\n".join(reports)
