"""The test kit: a real database for each test, time that can be moved, and asserts for jobs and credits.

The fixtures are in :mod:`millpond.testing.plugin`, which pytest loads by itself, wherever Millpond is installed. So
nothing heavy is imported before it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond.testing.clocks import Clock
    from millpond.testing.databases import Server, running_server
    from millpond.testing.lab import Lab, Wallet

__all__ = ["Clock", "Lab", "Server", "Wallet", "running_server"]

_HOMES = {"Clock": "clocks", "Lab": "lab", "Server": "databases", "Wallet": "lab", "running_server": "databases"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'millpond.testing' has no attribute {name!r}")
    return getattr(import_module(f"millpond.testing.{_HOMES[name]}"), name)
