"""Isolation: whether row-level security separates the reads of clients by tenant, and what to do if it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millpond.store.embedded.wire import NAME
from millpond.store.queries import queries

if TYPE_CHECKING:
    from millpond.store.db import Database

SQL: Final = queries("millpond.store", "isolation")


@dataclass(frozen=True, slots=True)
class Isolation:
    """How the database separates tenants, and the role that Millpond itself has there."""

    owner: str
    is_superuser: bool
    is_embedded: bool
    missing: str | None
    """What is missing, and the remedy."""


async def inspect(db: Database) -> Isolation:
    """Read the state of the database, and of a connection for clients' reads as it really is."""
    row = await db.run(SQL["wall"])
    steps = [
        step
        for step, is_done in (
            ("create role millpond_client nologin", row["has_role"]),
            (f'grant millpond_client to "{row["owner"]}"', row["has_grant"]),
            ("select millpond.raise_wall()", row["is_raised"]),
        )
        if not is_done
    ]
    missing = None
    if steps:
        missing = (
            "row-level security between tenants is not set up; run with sufficient privileges, then restart Millpond: "
            f"{'; '.join(steps)}"
        )
    elif not (reader := await db.read(SQL["reader"]))["is_restricted"]:
        missing = (
            f"row-level security does not restrict the reads of clients, which have the role {reader['role']}; "
            "restart Millpond"
        )
    return Isolation(row["owner"], row["is_superuser"], row["cluster"] == NAME, missing)
