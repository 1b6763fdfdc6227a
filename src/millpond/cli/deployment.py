"""The parts of a running Millpond, and the order in which they leave."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from millpond.api.app import create_app
from millpond.api.server import listen, serve
from millpond.api.streams import Hub
from millpond.cli.apps import Product
from millpond.cli.development import KEY_NAME
from millpond.cli.processes import services
from millpond.cli.worker import make_worker
from millpond.errors import ConflictError, ForbiddenError, SettingsError
from millpond.services.bell import Bell
from millpond.storage.storage import is_bucket
from millpond.ui import dashboard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from millpond.api.inbox import Inbox
    from millpond.cli.processes import Part
    from millpond.engine.access import KeyRecord
    from millpond.engine.engine import Engine
    from millpond.settings import Settings

ROLES: Final = ("api", "services", "worker", "files", "renderer")
PORT_MAX: Final = 65_535
_KEYS_PAGE: Final = 1_000


def parts(
    engine: Engine,
    settings: Settings,
    roles: Collection[str],
    sock: socket.socket | None,
    on_ready: Callable[[], object],
    product: Product | None = None,
    inbox: Inbox | None = None,
) -> list[Part]:
    """What runs, first what leaves first: the API takes no more, jobs end, services follow, the bell is last."""
    bell = Bell(engine)
    made: list[Part] = []
    if "api" in roles:
        made.append(_api(engine, settings, bell, sock, on_ready, product or Product(engine.app), inbox))
    if "worker" in roles:
        blueprints = () if product is None else product.blueprints
        made.append(make_worker(engine, settings, blueprints=blueprints).run)
    if "services" in roles:
        made += services(engine, settings, () if product is None else product.blueprints)
    return [*made, bell.run]


def _api(
    engine: Engine,
    settings: Settings,
    bell: Bell,
    sock: socket.socket | None,
    on_ready: Callable[[], object],
    product: Product,
    inbox: Inbox | None,
) -> Part:
    hub = Hub(engine, bell)
    app = create_app(
        engine,
        settings=settings,
        hub=hub,
        blueprints=product.mounted,
        alone=product.alone,
        inbox=inbox,
        ui=dashboard if settings.ui else None,
    )

    async def run(stop: asyncio.Event) -> None:
        async with contextlib.aclosing(app), asyncio.TaskGroup() as group:
            group.create_task(hub.run(stop))  # with the server, for streams must end before it can
            group.create_task(
                serve(app, host=settings.host, port=settings.port, sock=sock, stop=stop, on_ready=on_ready)
            )

    return run


# Where it listens, and who may see that


def bind(settings: Settings) -> socket.socket:
    """The socket, taken before anything else is begun."""
    try:
        return listen(settings.host, settings.port)
    except OSError as error:
        raise ConflictError(
            f"It cannot listen on {settings.host}, port {settings.port}: {os.strerror(error.errno or 0)}.",
            field="port",
            hint="Choose another --port; 0 takes any that is free.",
        ) from error


def bind_files(settings: Settings, *, strict: bool = False) -> socket.socket | None:
    """The socket of the file server: the port after the API's, or any where that is taken, unless it must be that one.

    None where files are in a bucket.
    """
    if is_bucket(settings):
        return None
    after = settings.port + 1 if 0 < settings.port < PORT_MAX else 0
    try:
        return bind(dataclasses.replace(settings, port=after))
    except ConflictError:
        if strict:
            raise
        return bind(dataclasses.replace(settings, port=0))


def bind_renderer(settings: Settings) -> socket.socket:
    """The socket of the renderer beside others: any free port of this machine, for they alone speak to it."""
    return bind(dataclasses.replace(settings, host="127.0.0.1", port=0))


def url_of(sock: socket.socket) -> str:
    """Where a client on this machine finds the socket."""
    host, port = sock.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if sock.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_public(host: str) -> bool:
    """Whether others than this machine can reach an address."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise SettingsError(f"There is no address {host!r}: {error}.", field="host") from error
    return not all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


async def check_exposure(engine: Engine, host: str) -> None:
    """Refuse to show the world an API that nobody has taken into his keeping.

    That is one without a key of scope admin, or one that a key from a developer's folder opens.
    """
    if not is_public(host):
        return
    present = datetime.now(UTC)
    keys = [key for key in await _all_keys(engine) if _is_good(key, present)]
    left = [key for key in keys if key.name == KEY_NAME]
    if left:
        raise ForbiddenError(
            f"{host} is a public address, and {len(left)} keys of `millpond up` open this database.",
            field="host",
            hint="Revoke them (millpond keys list, millpond keys revoke), or say --expose if that is meant.",
        )
    if not any(key.scope == "admin" for key in keys):
        raise ForbiddenError(
            f"{host} is a public address, and there is no admin key yet.",
            field="host",
            hint="Make one with `millpond keys create --scope admin`, or say --expose if that is meant.",
        )


def _is_good(key: KeyRecord, present: datetime) -> bool:
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > present)


async def _all_keys(engine: Engine) -> list[KeyRecord]:
    found: list[KeyRecord] = []
    while page := await engine.access.list_keys(before=found[-1].id if found else None, limit=_KEYS_PAGE):
        found += page
    return found
