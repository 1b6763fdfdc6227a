"""Ends are for ever: what is told of a job that has ended is the same after a restart, an upgrade and every attempt.

One job of each end of each product is read; then the server is started again with the products of a later version, and
everything is tried that might change them; then they are read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import httpx2
import pytest
from products.tests.effects.deployments import User as Uploader
from products.tests.effects.deployments import Worker, lease
from products.tests.guard.receivers import receiving
from products.tests.partner.deployments import KINDS, STARTS, made
from products.tests.proofs.deployments import TENANT, Deployment, User, running_deployment
from products.tests.studio.deployments import BODIES

from millpond import ids
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End, Note, Return
from millpond.engine.verify import verify
from millpond.errors import MillpondError, PermanentError
from millpond.store.db import connect
from millpond_products.catalog import PRODUCTS
from millpond_products.guard.kinds import KIND as GUARD
from millpond_products.partner.routes import PRODUCT as PARTNER
from millpond_products.partner.routes import bound
from tests.doubles.replicate import NEVER, Script, served_replicate
from tests.factories import ERROR, MINUTE
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from products.tests.guard.receivers import Receiver

    from millpond.api.product import Code, Product
    from millpond.engine.engine import Engine
    from millpond.engine.queue.leases import Lease
    from millpond_products.partner.orders import Name
    from millpond_products.settings import ProductSettings
    from tests.databases import DatabaseServer

ENDLESS = "Perpetual Motion"
ROLES = ("api", "services", "worker")
SIGNED = re.compile(rb"http://127\.0\.0\.1:\d+(/[^\"?]*)\?[^\"]*")
"""A signed URL: where files are served, and the signature, are others each time."""
ENDS = {"completed", "failed", "canceled", "expired", "success", "cancelled", "inbound_blocked", "succeeded"}
EXPECTED = {
    "partner": ["completed", "failed", "canceled", "failed"],
    "actions": ["success", "failed", "cancelled"],
    "studio": ["completed", "failed", "canceled", "expired"],
    "effects": ["completed", "failed", "canceled", "expired"],
    "guard": ["completed", "inbound_blocked", "expired"],
    "native": ["succeeded", "failed", "canceled"],
}
"""A partner's job that is late has failed, and an action has no deadline of its own."""
ADDED = """-- Why: a later version wants more columns.
-- Locks: for a moment.
-- breaking: no

alter table millpond.jobs add column proof_note text not null default 'later';
alter table millpond.partner_projects add column proof_note text;
"""
CHANGES = (
    "state = 'running', outcome = null, finished_at = null, captured = null, phase = 'ready'",
    'state = \'failed\', outcome = \'failed\', error = \'{"code": "permanent", "message": "by hand"}\'',
    "outcome = 'canceled'",
    'output = \'{"by": "hand"}\'',
    'error = \'{"code": "by hand"}\'',
    "input = '{}'",
    "progress = 0.1",
    "stage = 'fetching'",
    "finished_at = finished_at + interval '1 hour'",
    "created_at = created_at - interval '1 hour'",
    "started_at = null",
    "price = 0, captured = 0",
    "kind = 'plain'",
    "account = 'mallory'",
    "attempts = 0",
)
"""What somebody may try to write over a job, as the role that the application itself has."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has, with who may read it, where, and how it was started."""

    product: str
    user: User
    path: str
    job_id: str
    start: tuple[str, dict[str, Any], dict[str, str]]
    """The request that has made it, to be repeated with its key."""
    more: tuple[str, ...] = ()
    """What else is told of it: its log."""

    @property
    def number(self) -> UUID:
        return ids.parse("job", self.job_id.lower())

    async def read(self, deployment: Deployment) -> list[bytes]:
        user = replace(self.user, http=deployment.http)
        answers = [await user.send("GET", path) for path in (self.path, *self.more)]
        assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
        return [SIGNED.sub(rb"\1", answer.content) for answer in answers]


@dataclass(slots=True)
class Ending:
    """The first server, and what it has ended so far."""

    deployment: Deployment
    receiver: Receiver
    scripts: dict[str, str]
    """How jobs of a project end."""
    leases: list[Lease]
    ended: list[Ended] = field(default_factory=list[Ended])

    async def until(self, user: User, path: str, field_: str = "status", states: Collection[str] = ENDS) -> None:
        async with asyncio.timeout(60):
            while (await user.request("GET", path))[field_] not in states:
                await asyncio.sleep(0.02)

    @contextlib.asynccontextmanager
    async def resting(self, kind: str) -> AsyncIterator[None]:
        """Nobody takes jobs of this kind."""
        await self.deployment.engine.pause(kind)
        yield
        await self.deployment.engine.resume(kind)

    async def submitted(
        self, product: str, user: User, path: str, body: dict[str, Any], *, read: str, id_: str = "id"
    ) -> Ended:
        key = str(uuid4())
        is_in_body = product in {"studio", "effects"}
        body = body | ({"idempotency_key": key} if is_in_body else {})
        headers = {} if is_in_body else {"Idempotency-Key": key}
        job_id = (await user.request("POST", path, body, headers=headers))[id_]
        more = (f"{read}/{job_id}/logs", f"{read}/{job_id}/stream") if product == "actions" else ()
        one = Ended(product, user, f"{read}/{job_id}", job_id, (path, body, headers), more)
        self.ended.append(one)
        return one

    # One of each end

    async def partner(self) -> None:
        user, kind = await self.deployment.user(), KINDS["appstore_ingest"].name
        path, body = STARTS["appstore_ingest"]
        for how in ("completed", "failed", "canceled", "expired"):
            project = await user.new_project()
            self.scripts[project.removeprefix("prj_")] = how
            start = f"/partner/v1/projects/{project}/{path}"
            async with self.resting(kind) if how in {"canceled", "expired"} else contextlib.nullcontext():
                one = await self.submitted("partner", user, start, body, read="/partner/v1/jobs", id_="jobId")
                if how == "canceled":
                    await user.request("POST", f"{one.path}/cancel")
                if how == "expired":
                    await self.deployment.clock.advance(timedelta(minutes=6))
                await self.until(user, one.path)

    async def actions(self) -> None:
        user = await self.deployment.user()
        for how, script in (("success", "echo one; echo two >&2"), ("failed", "echo no; exit 3"), ("cancelled", "")):
            body = {"action": "run-command", "input": {"command": "sh", "arguments": [script]}}
            async with self.resting("actions.run-command") if how == "cancelled" else contextlib.nullcontext():
                one = await self.submitted("actions", user, "/actions/api/jobs", body, read="/actions/api/jobs")
                if how == "cancelled":
                    await user.request("POST", f"{one.path}/cancel")
                await self.until(user, one.path, "state")

    async def studio(self) -> None:
        """Of one that never ends where it is made, the time runs out."""
        user, endless = await self.deployment.user(), {"product": {"name": ENDLESS, "price": "1", "currency": "EUR"}}
        bodies = BODIES | {"video": endless}
        for how, path in (("completed", "static-ad"), ("failed", "tts"), ("canceled", "copy"), ("expired", "video")):
            async with self.resting("studio.copy") if how == "canceled" else contextlib.nullcontext():
                start = f"/studio/api/generate/{path}"
                one = await self.submitted("studio", user, start, bodies[path], read="/studio/api/jobs", id_="job_id")
                if how == "canceled":
                    await user.request("POST", f"{one.path}/cancel")
                if how == "expired":
                    await self.until(user, one.path, states={"processing"})
                    await self.deployment.clock.advance(timedelta(hours=2))
                await self.until(user, one.path)

    async def effects(self) -> None:
        user = await self.deployment.user()
        secret = (await self.deployment.engine.access.make_key(actor="test", scope="worker"))[1]
        async with httpx2.AsyncClient(base_url=f"{self.deployment.url}/effects", timeout=PATIENCE) as http:
            body = {"worker_id": "w-ends", "workflow_slugs": ["invert"]}
            response = await http.post("/api/worker/register", json=body, headers={"X-Fleet-Secret": secret})
            worker = Worker(http, {"Authorization": f"Bearer {response.json()['token']}"}, "w-ends")
            video = await Uploader(http, {"Authorization": f"Bearer {user.key}"}, user.account).video()
            for how in ("completed", "failed", "canceled", "expired"):
                body = {"effect_id": "invert", "video_id": video["id"]}
                one = await self.submitted("effects", user, "/effects/api/ai-jobs", body, read="/effects/api/ai-jobs")
                if how == "canceled":
                    await user.request("POST", f"{one.path}/cancel")
                elif how == "expired":
                    await self.deployment.clock.advance(timedelta(hours=25))
                elif how == "completed":
                    await worker.complete(await worker.take())
                else:
                    await self._fail(worker, user, one)
                await self.until(user, one.path)

    async def _fail(self, worker: Worker, user: User, one: Ended) -> None:
        """As often as it is tried."""
        while (await user.request("GET", one.path))["status"] not in ENDS:
            if (job := await worker.poll()) is not None:
                await worker.post("/api/worker/fail", lease(job) | {"error": {"message": "No."}})
            else:
                await self.deployment.clock.advance(timedelta(minutes=1))
                await asyncio.sleep(0.05)

    async def guard(self) -> None:
        user = await self.deployment.user(0)
        _, key = await self.deployment.engine.access.make_key(actor="test", scope="admin", tenant=TENANT)
        admin = User(self.deployment.http, key, "admin")
        rule = {"name": "no secrets", "matcher": {"type": "keywords", "words": ["secret"]}}
        await admin.request("POST", "/guard/v1/rules", rule)
        for how, text in (("completed", "Hello!"), ("blocked", "a secret"), ("expired", "Hello?")):
            body = {"message_input": text, "webhook_url": self.receiver.url("guard")}
            one = await self.submitted("guard", user, "/guard/v1/jobs", body, read="/guard/v1/jobs", id_="job_id")
            if how != "blocked":
                await self.until(user, one.path, states={"awaiting_response"})
            if how == "completed":
                await user.request("POST", f"{one.path}/response", {"message_output": "Well."})
            if how == "expired":
                await self.deployment.clock.advance(timedelta(hours=2))
            await self.until(user, one.path)

    async def native(self) -> None:
        user = await self.deployment.user()
        for how in ("succeeded", "failed", "canceled"):
            one = await self.submitted("native", user, "/v1/jobs", {"kind": "plain", "input": {}}, read="/v1/jobs")
            if how == "canceled":
                await user.request("POST", f"{one.path}/cancel")
                continue
            (held,) = await self.deployment.engine.claim(Lanes(("plain",)), 1, worker="w", duration=MINUTE)
            self.leases.append(held)
            error = None if how == "succeeded" else ERROR
            await self.deployment.engine.finish(End(held, how, None if error else '{"n": 1}', error))  # pyright: ignore[reportArgumentType]


def steered(scripts: dict[str, str], leases: list[Lease]) -> list[Product]:
    """The products; partners' jobs end as the scripts say, and leave their leases behind."""

    def handlers(engine: Engine, settings: ProductSettings) -> Code:
        async def run(job: Any, given: dict[str, Any]) -> dict[str, Any]:
            leases.append(job._lease)
            await job.stage("parsing")
            if scripts.get(str(given["project_id"])) == "failed":
                raise PermanentError("No such app.", code="NOT_FOUND", field="appId")
            return made(given) | {"share": 0.1, "count": 12345678901234, "name": "é\u2028"}

        names: list[Name] = list(KINDS)
        return bound(engine, dict.fromkeys(names, run))

    return [replace(PARTNER, handlers=handlers), *(each for each in PRODUCTS if each is not PARTNER)]


def later(folder: Path) -> list[Product]:
    """The products of a later version: other prices, stages, limits and events, and one more migration."""
    package = folder / "later_partner"
    here = Path(__file__).parents[2] / "src" / "millpond_products" / "partner" / "migrations"
    shutil.copytree(here, package / "migrations")
    (package / "__init__.py").touch()
    numbers = [int(file.name[:4]) for file in (package / "migrations").glob("*.sql")]
    (package / "migrations" / f"{max(numbers) + 1:04}_later.sql").write_text(ADDED, "utf-8")
    changed: list[Product] = []
    for product in PRODUCTS:
        kinds = tuple(
            replace(
                kind,
                price=kind.price + 7 if isinstance(kind.price, int) else kind.price,
                stages=("renamed", "rest") if kind.stages else (),
                firm_stages=(),
                attempts_max=kind.attempts_max + 2,
                time_limit=timedelta(seconds=1),
                expires_in=timedelta(seconds=90) if kind is not GUARD else kind.expires_in,
            )
            for kind in product.kinds
        )
        migrations = "later_partner" if product is PARTNER else product.migrations
        changed.append(replace(product, kinds=kinds, migrations=migrations))
    return changed


async def test_what_is_reported_of_an_end_never_changes(
    server: DatabaseServer, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    async with server.database(template) as dsn, receiving() as receiver:
        with served_replicate() as double:
            double.double.plan = _planned
            scripts, leases = dict[str, str](), list["Lease"]()
            options: dict[str, Any] = {"roles": ROLES, "provider_url": double.url, "slots": 20}
            options["idempotency_window"] = timedelta(days=30)  # for the clock is moved by days
            async with running_deployment(dsn, tmp_path / "files", steered(scripts, leases), **options) as deployment:
                ending = Ending(deployment, receiver, scripts, leases)
                for end in (ending.partner, ending.actions, ending.studio, ending.effects, ending.guard, ending.native):
                    await end()
                before = [await one.read(deployment) for one in ending.ended]
                assert _ends(ending.ended, before) == EXPECTED
                assert await verify(deployment.engine.db) == []
            async with running_deployment(dsn, tmp_path / "files", later(tmp_path), **options) as deployment:
                assert [await one.read(deployment) for one in ending.ended] == before
                _, admin = await deployment.engine.access.make_key(actor="test", scope="admin")
                for one in ending.ended:
                    await _attack(deployment, one, admin)
                await _report_late(deployment, ending.leases)
                after = [await one.read(deployment) for one in ending.ended]
                for one, described, was in zip(ending.ended, after, before, strict=True):
                    assert described == was, one
                assert await verify(deployment.engine.db) == []


def _planned(given: dict[str, Any]) -> Script:
    """What becomes of a prediction; of one that goes well there is word even after its end."""
    if given.get("product") == ENDLESS:
        return Script(seconds=NEVER)
    return Script(status="failed", error="It broke.") if "text" in given else Script(stragglers=2)


def _ends(jobs: Sequence[Ended], read: Sequence[list[bytes]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one, (job, *_) in zip(jobs, read, strict=True):
        decoded = json.loads(job)
        found.setdefault(one.product, []).append(decoded.get("status") or decoded["state"])
    return found


async def _attack(deployment: Deployment, one: Ended, admin: str) -> None:
    """Everything that somebody could try with a job that has ended."""
    user, operator = replace(one.user, http=deployment.http), User(deployment.http, admin, "admin")
    path, body, headers = one.start
    native = f"/v1/jobs/{one.job_id.lower()}"
    tries = [
        await user.send("POST", f"{one.path}/cancel"),
        await user.send("POST", f"{native}/cancel"),
        await user.send("POST", f"{one.path}/response", {"message_output": "After all."}),
        await operator.send("POST", f"{native}/answer?tenant={TENANT}", {"answer": 1}),
        *[
            await operator.send("POST", f"{native}/transition?tenant={TENANT}", {"state": state})
            for state in ("running", "pending", "queued", "processing", "completed", "failed", "canceled", "success")
            if one.product not in {"studio", "native"} or state not in {"pending", "queued"}  # a retry, by contract
        ],
    ]
    if one.product not in {"studio", "native"}:  # there an operator may begin it again, by contract
        tries.append(await operator.send("POST", f"{native}/retry?tenant={TENANT}"))
    if one.product == "actions":
        tries.append(await user.send("POST", f"{one.path}/retry"))  # a new job
    assert all(answer.status_code < 500 for answer in tries), [answer.text for answer in tries]
    again = await user.send("POST", path, body, headers=headers)
    assert again.status_code in {200, 202}, again.text
    assert one.job_id in again.text, "the same key is the same job"
    await _write_by_hand(deployment, one)
    with contextlib.suppress(MillpondError):
        await deployment.engine.answer(TENANT, one.number, {"late": True})


async def _write_by_hand(deployment: Deployment, one: Ended) -> None:
    connection = await connect(deployment.engine.db.dsn)
    try:
        for change in CHANGES:
            with pytest.raises(
                Exception, match=r"transition denied|permission denied|do not fit|append-only|constraint"
            ):
                await connection.execute(f"update millpond.jobs set {change} where id = $1", one.number)
        for statement in ("update millpond.events set data = '{}'", "delete from millpond.events"):
            with pytest.raises(Exception, match="append-only"):
                await connection.execute(f"{statement} where job_id = $1", one.number)
    finally:
        await connection.close()


async def _report_late(deployment: Deployment, leases: Sequence[Lease]) -> None:
    """Workers of the first server that come back with what they held."""
    assert len(leases) >= 4
    for held in leases:
        for call in (
            deployment.engine.note(Note(held, 99, "progress", "{}", 0.1)),
            deployment.engine.note(Note(held, 100, "stage", "{}", None, "fetching")),
            deployment.engine.finish(End(held, "succeeded", '{"late": true}')),
            deployment.engine.finish(End(held, "failed", None, ERROR)),
            deployment.engine.finish(End(held, "canceled", None, ERROR)),
            deployment.engine.give_back(Return(held, "attempt", ERROR)),
            deployment.engine.park(held, {"late": True}),
            deployment.engine.proceed(held, {"late": True}),
        ):
            with pytest.raises(MillpondError):
                await call
