"""The parts of a running Millpond, and the order in which they stop."""

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
from millpond.api.jobs.streams import Hub
from millpond.api.server import listen, serve
from millpond.cli.apps import Selection
from millpond.cli.development import KEY_NAME
from millpond.cli.processes import services
from millpond.cli.worker import make_worker
from millpond.errors import ConflictError, ForbiddenError, SettingsError
from millpond.services.notifier import Notifier
from millpond.storage.storage import is_bucket
from millpond.ui import dashboard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from millpond.api.webhooks.inbox import Inbox
    from millpond.cli.processes import Part
    from millpond.engine.access.access import KeyRecord
    from millpond.engine.engine import Engine
    from millpond.settings import Settings

PORT_MAX: Final = 65_535
_KEYS_PAGE: Final = 1_000


def parts(
    engine: Engine,
    settings: Settings,
    roles: Collection[str],
    sock: socket.socket | None,
    on_ready: Callable[[], object],
    selection: Selection | None = None,
    inbox: Inbox | None = None,
) -> list[Part]:
    """The parts to run, in the order in which they stop: API, worker, services, notifier."""
    notifier = Notifier(engine)
    made: list[Part] = []
    if "api" in roles:
        made.append(_api(engine, settings, notifier, sock, on_ready, selection or Selection(engine.app), inbox))
    if "worker" in roles:
        products = () if selection is None else selection.products
        made.append(make_worker(engine, settings, products=products).run)
    if "services" in roles:
        made += services(engine, settings, () if selection is None else selection.products)
    return [*made, notifier.run]


def _api(
    engine: Engine,
    settings: Settings,
    notifier: Notifier,
    sock: socket.socket | None,
    on_ready: Callable[[], object],
    selection: Selection,
    inbox: Inbox | None,
) -> Part:
    hub = Hub(engine, notifier)
    app = create_app(
        engine,
        settings=settings,
        hub=hub,
        products=selection.mounted,
        alone=selection.alone,
        inbox=inbox,
        ui=dashboard if settings.ui else None,
    )

    async def run(stop: asyncio.Event) -> None:
        async with contextlib.aclosing(app), asyncio.TaskGroup() as group:
            group.create_task(hub.run(stop))  # together with the server, which cannot stop before its streams end
            group.create_task(
                serve(app, host=settings.host, port=settings.port, sock=sock, stop=stop, on_ready=on_ready)
            )

    return run


# Sockets and exposure


def bind(settings: Settings) -> socket.socket:
    """The listening socket, opened before anything else starts."""
    try:
        return listen(settings.host, settings.port)
    except OSError as error:
        raise ConflictError(
            f"Cannot listen on {settings.host}, port {settings.port}: {os.strerror(error.errno or 0)}.",
            field="port",
            hint="Choose another --port; 0 chooses a free port.",
        ) from error


def bind_files(settings: Settings, *, strict: bool = False) -> socket.socket | None:
    """The socket of the file server: on the port after the API's or, unless ``strict``, on any port if that is in use.

    None if files are in a bucket.
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


def url_of(sock: socket.socket) -> str:
    """The URL of the socket for clients on this machine."""
    host, port = sock.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if sock.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_public(host: str) -> bool:
    """Whether other machines can reach an address."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise SettingsError(f"The address {host!r} cannot be resolved: {error}.", field="host") from error
    return not all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


async def check_exposure(engine: Engine, host: str) -> None:
    """Refuse to serve an unprotected API on a public address.

    An API is unprotected if it has no admin key, or if it accepts a development key.
    """
    if not is_public(host):
        return
    present = datetime.now(UTC)
    keys = [key for key in await _all_keys(engine) if _is_good(key, present)]
    left = [key for key in keys if key.name == KEY_NAME]
    if left:
        raise ForbiddenError(
            f"{host} is a public address, but this database accepts {len(left)} development keys of `millpond up`.",
            field="host",
            hint="Revoke them (`millpond keys list`, `millpond keys revoke`), or allow it with --expose.",
        )
    if not any(key.scope == "admin" for key in keys):
        raise ForbiddenError(
            f"{host} is a public address, but there is no admin key.",
            field="host",
            hint="Create one with `millpond keys create --scope admin`, or allow it with --expose.",
        )


def _is_good(key: KeyRecord, present: datetime) -> bool:
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > present)


async def _all_keys(engine: Engine) -> list[KeyRecord]:
    found: list[KeyRecord] = []
    while page := await engine.access.list_keys(before=found[-1].id if found else None, limit=_KEYS_PAGE):
        found += page
    return found
