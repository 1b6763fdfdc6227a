"""The PostgreSQL of a test run: one server, a migrated template database, and a copy of it for each test."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from uuid import uuid4

from millpond.store.db import connect
from millpond.store.embedded import open_embedded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - fsync is free there, and a test's database need not be durable


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """A server on which the test run can create databases."""

    dsn: str

    def named(self, name: str) -> str:
        return urlsplit(self.dsn)._replace(path=f"/{name}").geturl()

    async def create(self, template: str = "template0") -> str:
        name = f"millpond_test_{uuid4().hex[:12]}"
        # A file copy of a small database takes a tenth of the time of a logged one.
        await self.order(f"create database {name} template {template} strategy file_copy")
        return name

    async def drop(self, name: str) -> None:
        await self.order(f"drop database if exists {name} with (force)")

    @asynccontextmanager
    async def database(self, template: str = "template0") -> AsyncGenerator[str]:
        """The URL of a database that exists until the block ends."""
        name = await self.create(template)
        try:
            yield self.named(name)
        finally:
            await self.drop(name)

    async def order(self, statement: str) -> None:
        connection = await connect(self.dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@contextmanager
def running_server(given: str | None = None, *, settings: str = "max_connections = 300\n") -> Generator[DatabaseServer]:
    """The given server, or an embedded one with these settings."""
    if given:
        yield DatabaseServer(given)
        return
    folder = Path(tempfile.mkdtemp(prefix="millpond-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
    try:
        (folder / "postgres.conf").write_text(settings, "utf-8")
        with open_embedded(folder) as server:
            yield DatabaseServer(server.dsn)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
