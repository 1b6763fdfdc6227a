"""A new database for each measurement, so that none is affected by another one's data."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from bench.processes import WAIT_SECONDS, cancel_on_sigterm, within


@contextlib.asynccontextmanager
async def fresh(server: str) -> AsyncIterator[str]:
    """The DSN of a new database on the given server, which is dropped at the end of the block."""
    name = f"bench_{uuid4().hex[:12]}"
    parts = urlsplit(server)
    cancel_on_sigterm()
    try:
        await run_statement(server, f"create database {name}")
        yield f"{parts.scheme}://{parts.netloc}/{name}?{parts.query}"
    finally:
        await run_statement(server, f"drop database if exists {name} with (force)")


async def run_statement(server: str, statement: str) -> None:
    async with within(WAIT_SECONDS, f"`{statement}`"):
        connection = await asyncpg.connect(server)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
