"""The PostgreSQL of our own test run: the kit's, with the test product in its template."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from millpond import testing
from millpond.api.blueprint import prepare
from millpond.blueprints import LIFECYCLES
from millpond.blueprints.catalog import BLUEPRINTS
from millpond.engine.engine import Engine
from millpond.testing import Server
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from millpond.store.db import Database

__all__ = ["Between", "Server", "migrated_template", "running_server"]

# A user of another name than ours has no schema of ours on his path: nothing may count on it. Our tables are small, and
# every new connection maps the buffers that it touches.
_SETTINGS = "search_path = ''\nmax_connections = 300\nshared_buffers = 16MB\n"
# How a statement is planned must not depend on what was there when the server last had a look, in another test.
_LEFT_ALONE = """
do $$
declare
    name text;
begin
    for name in select relname from pg_class where relnamespace = 'millpond'::regnamespace and relkind = 'r' loop
        execute format('alter table millpond.%I set (autovacuum_enabled = off)', name);
    end loop;
end $$
"""


@contextmanager
def running_server() -> Iterator[Server]:
    """The server that the environment names, or an embedded one of our own."""
    given = os.environ.get("MILLPOND_TEST_DATABASE_URL") or os.environ.get("DATABASE_URL")
    with testing.running_server(given, settings=_SETTINGS) as running:
        yield running


@asynccontextmanager
async def migrated_template(server: Server) -> AsyncIterator[str]:
    """A database with the schema, the test product, and the lifecycles and tables of all blueprints."""
    name = await server.create()
    try:
        engine = await Engine.open(server.named(name), app, lifecycles=LIFECYCLES, pool_size=1)
        await prepare(engine, BLUEPRINTS)
        async with engine.db.transaction() as tx:
            await tx.execute(_LEFT_ALONE)
        await engine.close()
        yield name
    finally:
        await server.drop(name)


class Between:
    """A database some of whose calls are a test's own, for one who is given it.

    A call that is replaced on the class is replaced for every server that runs beside the test.
    """

    def __init__(self, db: Database, **calls: Any) -> None:
        self._db = db
        vars(self).update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)
