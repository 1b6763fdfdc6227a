"""Jobs in the state a test begins with, made by the verbs themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from millpond import values
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End, Note, Return

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.engine.jobs.jobs import JobRecord, Submitted
    from millpond.engine.queue.leases import Lease
    from millpond.lifecycle import Outcome
    from tests.clocks import Clock

TENANT = "acme"
ACCOUNT = "ann"


class Owner(TypedDict):
    tenant: str
    account: str


OWNER: Owner = {"tenant": TENANT, "account": ACCOUNT}
STRANGER = "globex"

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
ERROR = {"code": "boom", "message": "It broke."}


@dataclass(slots=True)
class Factory:
    """The verbs with everything that does not matter to a test filled in."""

    engine: Engine
    clock: Clock

    async def credits(self, amount: int = 100, account: str = ACCOUNT, tenant: str = TENANT) -> None:
        await self.engine.grant(tenant, account, amount)

    async def submitted(self, kind: str = "free", given: Any = None, **options: Any) -> Submitted:
        """A job whose account can pay for it."""
        owner: Any = {**OWNER} | {name: options.pop(name) for name in OWNER if name in options}
        price = self.engine.app.kinds[kind].price
        if isinstance(price, int) and price:
            await self.credits(price, **owner)
        return await self.engine.submit(kind, given, **owner, **options)

    async def claimed(self, *kinds: str, want: int = 1, duration: timedelta = MINUTE, worker: str = "w") -> list[Lease]:
        """What a worker gets that looks at the whole line."""
        return await self.engine.claim(Lanes(kinds), want, worker=worker, duration=duration)

    async def leased(self, kind: str = "free", given: Any = None, **options: Any) -> Lease:
        submitted = await self.submitted(kind, given, **options)
        (lease,) = await self.claimed(kind)
        assert lease.job_id == submitted.job_id
        return lease

    async def parked(self, kind: str = "brief", memo: Any = None) -> Lease:
        lease = await self.leased(kind)
        await self.engine.park(lease, memo)
        return lease

    async def finish(self, lease: Lease, outcome: Outcome = "succeeded", output: Any = None) -> str:
        error = None if outcome == "succeeded" else ERROR
        return await self.engine.finish(
            End(lease, outcome, None if output is None else values.encode(output, field="output"), error)
        )

    async def serve(self, kind: str) -> None:
        """Take the next job of a kind and end it well."""
        (lease,) = await self.claimed(kind)
        await self.finish(lease)

    async def ended(self, kind: str = "priced", outcome: Outcome = "succeeded") -> JobRecord:
        lease = await self.leased(kind)
        await self.finish(lease, outcome)
        return await self.read(lease.job_id)

    async def read(self, job_id: UUID) -> JobRecord:
        return await self.engine.read(TENANT, job_id)

    async def types(self, job_id: UUID) -> list[str]:
        """The names of what happened to a job, in order."""
        return [event.type for event in await self.engine.events(TENANT, job_id)]


def attempt(lease: Lease, delay: timedelta | None = None) -> Return:
    """Its code failed."""
    return Return(lease, "attempt", ERROR, delay)


def interruption(lease: Lease) -> Return:
    """The worker was interrupted."""
    return Return(lease, "interruption", ERROR)


def progress(lease: Lease, number: int, value: float) -> Note:
    return Note(lease, number, "progress", f'{{"progress": {value}}}', value=value)


def stage(lease: Lease, number: int, name: str) -> Note:
    return Note(lease, number, "stage", f'{{"stage": "{name}"}}', stage=name)
