"""Scopes: the keys that may call a route."""

from __future__ import annotations

from typing import Final

READERS: Final = frozenset({"viewer", "operator", "admin"})
"""The scopes that may read everything except secrets."""
OPERATORS: Final = frozenset({"operator", "admin"})
"""The scopes that may act on the jobs and webhooks of any account, and on queues and workers."""
CLIENTS: Final = frozenset({"client", "operator", "admin"})
"""The scopes that may submit jobs. Routes that only read are also open to READERS."""
ADMINS: Final = frozenset({"admin"})
"""The scope that may manage keys, tenants and credits."""
ANY_KEY: Final = frozenset({"client", "worker"}) | READERS
WORKERS: Final = frozenset({"worker"})
"""The fleet secret, with which a worker registers; it may also be sent as X-Fleet-Secret."""
FLEET: Final = frozenset({"fleet"})
"""A registered worker with its own token; its record is ``call.worker``."""
ANYBODY: Final[frozenset[str]] = frozenset()
