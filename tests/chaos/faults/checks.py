"""What must hold after each round, checked from the customers' own record."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx2
import msgspec

from millpond import webhooks
from millpond.engine.verify import verify
from millpond.errors import WebhookInvalidError
from millpond.ids import text
from millpond.store.db import Database
from millpond.store.queries import NamedQuery
from tests.chaos.faults import trees
from tests.chaos.faults.app import PRICE, SCHEDULED, cost, fate, output
from tests.chaos.faults.deployment import until_ready

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.store.db import Row
    from tests.chaos.faults.deployment import Deployment
    from tests.chaos.faults.load import Load, Order
    from tests.chaos.faults.schedules import Due
    from tests.doubles.receivers import Receivers

LEFT: Final = NamedQuery("faults.left", "one", "select count(*) as left from millpond.dispatches")
STUCK: Final = NamedQuery(
    "faults.stuck",
    "many",
    "select d.job_id, d.kind, d.phase, d.epoch, d.run_at, l.worker, l.expires_at, millpond.clock() as now"
    " from millpond.dispatches d left join millpond.leases l on l.token = d.lease_token limit 5",
)
PENDING: Final = NamedQuery(
    "faults.pending", "one", "select count(*) as left from millpond.fires where outcome = 'pending'"
)
JOBS: Final = NamedQuery(
    "faults.jobs",
    "many",
    "select id, parent_id, kind, coalesce((input ->> 'n')::integer, 0) as n, input ->> 'due' as due, outcome, captured,"
    " output #>> '{}' as output from millpond.jobs",
)
WALLET: Final = NamedQuery("faults.wallet", "maybe", "select available, held, active from millpond.accounts")

NUMBERS: Final = ("branch", "family", "leaf", "sum", "tree")
"""The kinds whose output is a number."""
FLAKY_KIND: Final = "part"
"""Its webhooks go to a receiver too that refuses some at first."""
SETTLE_SECONDS: Final = 240.0
WEBHOOK_SECONDS: Final = 420.0
"""A webhook that was refused twice, once for a fault, comes after 5 seconds and 5 minutes more."""
SAMPLE: Final = 5


@dataclass(slots=True)
class Checks:
    """Looks at the database beside the deployment, and at the API as a customer."""

    db: Database
    load: Load
    deployment: Deployment
    receivers: Receivers
    secret: str
    granted: int
    dice: random.Random
    complaints: list[str]
    due: Due
    """The due times at which a schedule has fired."""
    ended: set[tuple[str, str]] = field(default_factory=set)
    """All jobs with their outcomes, children and those of schedules too."""
    announced: set[tuple[str, str, str]] = field(default_factory=set)
    """Which receiver was told of which job, and what."""
    webhooks_read: int = 0
    children: int = 0
    _digests: dict[tuple[str, str], bytes] = field(default_factory=dict)
    _last: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """The time of the newest event that a receiver knows of a job."""

    async def settle(self) -> None:
        """Wait until the servers are ready and all jobs have ended."""
        url = ""
        try:
            async with asyncio.timeout(SETTLE_SECONDS), httpx2.AsyncClient(timeout=30) as http:
                for url in self.deployment.health_urls:
                    await until_ready(http, url)
                while (await self.db.run(PENDING))["left"] or (await self.db.run(LEFT))["left"]:
                    await asyncio.sleep(0.1)
        except TimeoutError:
            self.complaints.append(f"not settled; the last server that was looked at is {url}")
            self.complaints += [f"stuck: {dict(row)}" for row in await self.db.run(STUCK)]
        for order in self.load.orders:
            order.settled_at = order.settled_at or time.monotonic()

    async def run(self) -> None:
        await self._jobs()
        self.complaints += [str(violation) for violation in await verify(self.db)]
        async with httpx2.AsyncClient(timeout=30) as http:
            for order in self.dice.sample(self.load.orders, min(SAMPLE, len(self.load.orders))):
                await self.load.submit(http, order)
            sheets = [order for order in self.load.orders if order.kind == "sheet" and order.job_id is not None]
            for order in self.dice.sample(sheets, min(2, len(sheets))):
                await self._sheet(http, order)

    async def _jobs(self) -> None:
        rows = {row["id"]: row for row in await self.db.run(JOBS)}
        for job_id, row in rows.items():
            if (row["outcome"], row["captured"]) != fate(row["kind"], row["n"]):
                name = f"{text('job', job_id)} ({row['kind']} {row['n']})"
                self.complaints.append(f"{name} is {row['outcome']} and captured {row['captured']}")
            elif (
                row["kind"] in NUMBERS
                and row["outcome"] == "succeeded"
                and row["output"] != str(output(row["kind"], row["n"]))
            ):
                self.complaints.append(
                    f"{text('job', job_id)} ({row['kind']} {row['n']}): the output is {row['output']}"
                )
        self.ended = {(text("job", job_id), row["outcome"]) for job_id, row in rows.items()}
        self.children = sum(row["parent_id"] is not None for row in rows.values())
        self.complaints += trees.complaints(rows)
        self.complaints += await self.due.complaints(rows, self.load.orders)
        self._orders(rows)
        spent = sum(cost(order.kind, order.n) for order in self.load.orders) + PRICE * self.due.times.total()
        wallet = dict(await self.db.run(WALLET) or {})
        if wallet != {"available": self.granted - spent, "held": 0, "active": 0}:
            self.complaints.append(f"the wallet is {wallet} of {self.granted}, and {spent} should be spent")

    def _orders(self, rows: dict[UUID, Row]) -> None:
        """Each request that was acknowledged for a job is that job, and there are no others."""
        found = {
            text("job", job_id): row
            for job_id, row in rows.items()
            if row["parent_id"] is None and row["kind"] not in SCHEDULED
        }
        orders = [order for order in self.load.orders if not order.is_run]
        known = Counter(order.job_id for order in orders)
        self.complaints += [
            f"job {job_id} was acknowledged for {count} keys" for job_id, count in known.items() if count > 1
        ]
        self.complaints += [f"job {job_id} belongs to no order" for job_id in found.keys() - known.keys()]
        for order in orders:
            row = found.get(str(order.job_id))
            if row is None:
                self.complaints.append(f"{order.key} ({order.kind}) was acknowledged as {order.job_id}, and is lost")
            elif (row["kind"], row["n"]) != (order.kind, order.n):
                self.complaints.append(f"{order.key} ({order.kind} {order.n}) is {row['kind']} {row['n']}")

    async def _sheet(self, http: httpx2.AsyncClient, order: Order) -> None:
        """The file is that of the attempt that won; a URL that was changed or is too old is refused."""
        headers = {"Authorization": f"Bearer {self.load.api_key}"}
        url = self.load.urls[0]
        answer = await http.get(f"{url}/v1/jobs/{order.job_id}", headers=headers)
        if answer.status_code != 200 or not (job := answer.json())["output"]:
            self.complaints.append(f"{order.key}: the API answered {answer.status_code} {answer.text[:200]}")
            return
        file = (await http.get(f"{url}/v1/artifacts/{job['output']['file']}", headers=headers)).json()
        signed = file["download"]["url"]
        content = (await http.get(signed)).text
        if content != f"{order.job_id} {job['output']['epoch']}":
            self.complaints.append(
                f"{order.key}: the file of {order.job_id} says {content!r}, the output {job['output']}"
            )
        for name, changed in _tampered(signed).items():
            answer = await http.get(changed)
            if answer.status_code != 403 or answer.json()["code"] != "bad_signature":
                self.complaints.append(f"a URL with another {name}: {answer.status_code} {answer.text[:200]}")
        clock = self.deployment.programs["files"].clock
        clock.write_text("7200")
        answer = await http.get(signed)
        clock.write_text("0")
        if answer.status_code != 403 or answer.json()["code"] != "url_expired":
            self.complaints.append(f"a URL of two hours ago: {answer.status_code} {answer.text[:200]}")

    async def webhooks(self, *, are_all_due: bool) -> None:
        """Each end was announced, at least once, with a valid signature and one body, and after the start."""
        due = time.monotonic() - (0 if are_all_due else WEBHOOK_SECONDS)
        wanted = {("all", job_id, f"job.{outcome}") for job_id, outcome in self.ended}
        wanted |= {
            ("flaky", str(order.job_id), type_)
            for order in self.load.orders
            if order.kind == FLAKY_KIND and order.settled_at is not None and order.settled_at <= due
            for type_ in ("job.started", "job.succeeded")
        }
        try:
            async with asyncio.timeout(WEBHOOK_SECONDS):
                self._read_all()
                while not wanted <= self.announced:
                    await asyncio.sleep(0.1)
                    self._read_all()
        except TimeoutError:
            missing = sorted(wanted - self.announced)
            self.complaints.append(f"{len(missing)} webhooks did not arrive, such as {missing[:3]}")

    def _read_all(self) -> None:
        for received in self.receivers.received[self.webhooks_read :]:
            self.webhooks_read += 1
            body = msgspec.json.decode(received.body)
            job_id = body["data"]["id"]
            self.announced.add((received.name, job_id, body["type"]))
            digest = hashlib.sha256(received.body).digest()
            message, at = (received.name, received.id), datetime.fromisoformat(body["timestamp"])
            last = self._last.get((received.name, job_id), at)
            if message not in self._digests and at < last:
                self.complaints.append(f"webhook {received.id} of {job_id}, {body['type']}, came after a later one")
            self._last[received.name, job_id] = max(at, last)
            if self._digests.setdefault(message, digest) != digest:
                self.complaints.append(f"webhook {received.id} has changed")
            # The sender's clock may have been moved, so its own time counts as that of the receipt.
            sent = datetime.fromtimestamp(int(received.headers["webhook-timestamp"]), UTC)
            try:
                webhooks.verify(received.body, received.headers, self.secret, now=sent)
            except WebhookInvalidError as error:
                self.complaints.append(f"webhook {received.id}: {error}")


def _tampered(url: str) -> dict[str, str]:
    """The URL with one thing changed."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    letter = "A" if query["signature"][0] != "A" else "B"

    def changed(**more: str) -> str:
        return urlunsplit(parts._replace(query=urlencode(query | more)))

    return {
        "signature": changed(signature=letter + query["signature"][1:]),
        "expiry": changed(expires=str(int(query["expires"]) + 60)),
        "end": changed(signature=query["signature"][:-1]),
        "path": urlunsplit(parts._replace(path=parts.path + "x")),
    }
