"""A database for each thing that is measured, so that none finds what another left."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from bench.processes import WAIT_SECONDS, end_in_order, within


@contextlib.asynccontextmanager
async def fresh(server: str) -> AsyncIterator[str]:
    """The address of a new database on the server of this one, dropped when the block is left."""
    name = f"bench_{uuid4().hex[:12]}"
    parts = urlsplit(server)
    end_in_order()
    try:
        await order(server, f"create database {name}")
        yield f"{parts.scheme}://{parts.netloc}/{name}?{parts.query}"
    finally:
        await order(server, f"drop database if exists {name} with (force)")


async def order(server: str, statement: str) -> None:
    async with within(WAIT_SECONDS, f"`{statement}`"):
        connection = await asyncpg.connect(server)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
