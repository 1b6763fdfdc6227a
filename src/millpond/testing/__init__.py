"""The test kit: a real database for each test, a controllable clock, and assertions for jobs and credits.

The fixtures are in :mod:`millpond.testing.plugin`, which pytest loads automatically if Millpond is installed. Nothing
heavy is imported until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond.testing.clocks import Clock
    from millpond.testing.databases import DatabaseServer, running_server
    from millpond.testing.harness import Harness, Wallet

__all__ = ["Clock", "DatabaseServer", "Harness", "Wallet", "running_server"]

_MODULES = {
    "Clock": "clocks",
    "Harness": "harness",
    "DatabaseServer": "databases",
    "Wallet": "harness",
    "running_server": "databases",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'millpond.testing' has no attribute {name!r}")
    return getattr(import_module(f"millpond.testing.{_MODULES[name]}"), name)
