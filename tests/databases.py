"""The PostgreSQL of our own test run: the kit's, with the test product in its template."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from millpond import testing
from millpond.api.product import prepare
from millpond.engine.engine import Engine
from millpond.testing import DatabaseServer
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from millpond.product import Product
    from millpond.store.db import Database

__all__ = ["Between", "DatabaseServer", "migrated_template", "plain_user", "running_server"]

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
def running_server() -> Iterator[DatabaseServer]:
    """The server that the environment names, or an embedded one of our own."""
    given = os.environ.get("MILLPOND_TEST_DATABASE_URL") or os.environ.get("DATABASE_URL")
    with testing.running_server(given, settings=_SETTINGS) as running:
        yield running


@asynccontextmanager
async def migrated_template(server: DatabaseServer, products: Sequence[Product] = ()) -> AsyncIterator[str]:
    """A database with the schema, the test product, and the lifecycles and tables of these products."""
    name = await server.create()
    try:
        engine = await Engine.open(
            server.named(name), app, lifecycles=[each.lifecycle for each in products], pool_size=1
        )
        await prepare(engine, products)
        async with engine.db.transaction() as tx:
            await tx.execute(_LEFT_ALONE)
        await engine.close()
        yield name
    finally:
        await server.drop(name)


@asynccontextmanager
async def plain_user(server: DatabaseServer) -> AsyncIterator[str]:
    """The address of an empty database whose owner may make no roles and is granted none."""
    user, name = f"millpond_plain_{uuid4().hex[:8]}", await server.create()
    try:
        await server.order(f"create role {user} login password 'plain'")
        await server.order(f"alter database {name} owner to {user}")
        parts = urlsplit(server.named(name))
        host = parts.netloc.rpartition("@")[2]
        yield parts._replace(netloc=f"{user}:plain@{host}").geturl()
    finally:
        await server.drop(name)
        await server.order(f"drop role {user}")


class Between:
    """A database some of whose calls are a test's own, for one who is given it.

    A call that is replaced on the class is replaced for every server that runs beside the test.
    """

    def __init__(self, db: Database, **calls: Any) -> None:
        self._db = db
        vars(self).update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)
