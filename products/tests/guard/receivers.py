"""A receiver of webhooks on a real socket: it keeps what came, and answers as it is told."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millpond import webhooks
from tests.checks import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@dataclass(slots=True)
class Came:
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def payload(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> dict[str, Any]:
        return webhooks.verify(self.body, self.headers, secret)


@dataclass(slots=True)
class Receiver:
    """Each path is somebody else's; whoever is not told otherwise answers 204."""

    port: int = 0
    came: list[Came] = field(default_factory=list[Came])
    answers: dict[str, Callable[[Came], bytes]] = field(default_factory=dict[str, "Callable[[Came], bytes]"])

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def at(self, path: str) -> list[Came]:
        return [one for one in self.came if one.path == f"/{path}"]

    def events(self, path: str) -> list[str]:
        return [one.payload["event"] for one in self.at(path)]

    async def wait(self, path: str, count: int) -> list[Came]:
        async def are_there() -> bool:
            return len(self.at(path)) >= count

        await until(are_there)
        return self.at(path)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *rest = head.decode("latin-1").strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                one = Came(first.split(" ")[1], headers, body)
                self.came.append(one)
                answer = self.answers.get(one.path.removeprefix("/"), lambda _: status(204))
                writer.write(answer(one))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def status(code: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {code} X", *(() if code == 204 else ("content-length: 0",)), *headers, "", ""]
    return "\r\n".join(lines).encode()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
