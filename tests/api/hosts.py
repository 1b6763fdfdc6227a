"""A host that is not Millpond: a small FastAPI shop with its own users, run by its own server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

import httpx2
import uvicorn
from fastapi import FastAPI, HTTPException

from millpond import Millpond
from millpond.api.mount import Mount
from millpond.engine.access.access import Principal
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

product = Millpond()


@product.kind("wrap", price=2)
async def wrap(job: Any, paper: str = "red") -> dict[str, str]:
    """Wrap a present."""
    return {"paper": paper}


@product.kind("nap", expires_in="1h")
def nap(job: Any, seconds: float = 30) -> None:
    """Take its time, and stop_with_parent a cancel."""
    for _ in range(int(seconds * 100)):
        time.sleep(0.01)
        job.checkpoint()


async def who(request: Request) -> Principal | None:
    """The shop's users: a name in a header is enough here."""
    user = request.headers.get("x-user")
    if user == "banned":
        raise HTTPException(403, "You are banned.")
    if user == "broken":
        raise HTTPException(418)
    if user == "boss":
        return Principal(scope="admin", tenant="shop", account=None, actor="host")
    return None if user is None else Principal(scope="client", tenant="shop", account=user, actor="host")


def shop(jobs: Mount) -> FastAPI:
    made = FastAPI(lifespan=jobs.lifespan)
    made.mount("/shop/jobs", jobs.asgi(authenticate=who))
    made.mount("/keys", jobs.asgi())

    @made.get("/hello")
    def hello() -> str:
        return "hello"

    return made


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """An application behind a real socket, and a client of it."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done(), serving
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
        yield client
    server.should_exit = True
    await serving


if "SHOP_PORT" in os.environ:  # run by a server of its own
    app = shop(Mount(product))
