"""A server of all products at once, on one engine; and others in processes of their own, on one database."""

from __future__ import annotations

import base64
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from products.tests import deployments
from products.tests.actions.deployments import COMMANDS
from products.tests.deployments import NOWHERE
from products.tests.partner.deployments import TENANT, Partner

from millpond.app import Millpond
from millpond.cli.apps import Selection
from millpond.engine.engine import Engine
from millpond.engine.webhooks.vault import Vault
from millpond.integrations.replicate import Replicate
from millpond.kinds import Kind
from millpond.outbound import Outbound
from millpond.testing import Clock
from millpond_products.catalog import PRODUCTS
from tests.doubles.replicate import TOKEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from millpond.api.product import Product
    from millpond.storage.local import Local

SECRET = b"0123456789abcdef0123456789abcdef"
PLAIN = Kind(name="plain", price=3)
"""A kind of no product: what the native API serves."""
ENVIRONMENT = {
    "MILLPOND_PRODUCTS": "all",
    "MILLPOND_FAILURE_LIMIT": "1000000",
    "MILLPOND_RATE_LIMIT": "1000000",
    "MILLPOND_STREAMS_PER_ACCOUNT": "100000",
    "MILLPOND_STREAMS_PER_KEY": "100000",
    "MILLPOND_POLL_LIMIT": "1000000",
    "MILLPOND_OUTBOUND_ALLOW": "loopback",
    "MILLPOND_ENCRYPTION_KEY": base64.b64encode(SECRET).decode(),
    "MILLPOND_REPLICATE_API_TOKEN": TOKEN,
    "MILLPOND_REPLICATE_URL": NOWHERE,
    "MILLPOND_COMMANDS": json.dumps(COMMANDS),
    "MILLPOND_LOG_LEVEL": "warning",
}
"""What processes are told that serve all products."""


class User(Partner):
    """Somebody with an account and a key, in whichever product: paths are those of the server."""

    async def request(self, method: str, path: str, json: Any = None, **options: Any) -> Any:
        answer = await self.send(method, path, json, **options)
        assert answer.status_code < 400, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def new_project(self) -> str:
        return (await self.request("POST", "/partner/v1/projects", {"name": "Lumen"}))["projectId"]


@dataclass(slots=True)
class Deployment(deployments.Deployment):
    """A server that runs, users of it, and its clock."""

    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.engine.db)

    async def user(self, amount: int = 1_000) -> User:
        account = f"user-{uuid4().hex[:12]}"
        return User(self.http, await new_key(self.engine, account, amount), account)


async def new_key(engine: Engine, account: str, amount: int = 0) -> str:
    _, key = await engine.access.make_key(actor="test", scope="client", tenant=TENANT, account=account)
    if amount:
        await engine.grant(TENANT, account, amount)
    return key


def selection(products: Sequence[Product] = PRODUCTS) -> Selection:
    app = Millpond()
    for kind in (PLAIN, *(kind for product in products for kind in product.kinds)):
        app.add(kind)
    return Selection(app, mounted=tuple(products))


async def open_engine(dsn: str, app: Millpond, store: Local) -> Engine:
    """One beside servers, that can do what they can."""
    return await Engine.open(
        dsn,
        app,
        storage=store,
        outbound=Outbound("loopback"),
        vault=Vault([SECRET]),
        providers=[Replicate(NOWHERE, TOKEN)],
    )


@asynccontextmanager
async def running_deployment(
    dsn: str, folder: Path, products: Sequence[Product] = PRODUCTS, **options: Any
) -> AsyncIterator[Deployment]:
    """These products under their names."""
    commands = json.dumps(COMMANDS)
    async with deployments.running_deployment(
        dsn, folder, selection=selection(products), commands=commands, **options
    ) as deployment:
        yield Deployment(deployment.engine, deployment.url, deployment.http)
