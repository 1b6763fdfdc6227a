"""Customers: they submit, cancel and repeat requests, and write down what was acknowledged."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx2

from tests.chaos.faults.app import CANCELED, TENANT

if TYPE_CHECKING:
    from collections.abc import Sequence

# Limits come here: kinds with a limit, and in `checks.py` that it was never exceeded.
KINDS: Final = {
    "sum": 45,
    "part": 13,
    "refused": 8,
    "endless": 4,
    "sheet": 15,
    "tree": 5,
    "family": 3,
    "grove": 3,
    "report": 4,
}
FINISH_SECONDS: Final = 240.0
_TIMEOUT: Final = httpx2.Timeout(8.0)
_ACCEPTED: Final = {200, 202}


@dataclass(slots=True)
class Order:
    """A request with a key of its own, and what the customer knows of it."""

    key: str
    kind: str
    n: int
    job_id: str | None = None
    fire_id: str | None = None
    """Of a run of a schedule."""
    is_cancel_acknowledged: bool = False
    is_refused: bool = False
    settled_at: float | None = None
    """When all jobs up to this one had ended, by the monotonic clock."""

    @property
    def body(self) -> dict[str, Any]:
        return {"kind": self.kind, "input": {"n": self.n}}

    @property
    def is_run(self) -> bool:
        """Whether it runs a schedule, which submits the job."""
        return self.kind == "report"

    @property
    def is_acknowledged(self) -> bool:
        return self.job_id is not None or self.fire_id is not None

    @property
    def needs_cancel(self) -> bool:
        return self.kind in CANCELED and not (self.is_cancel_acknowledged or self.is_refused)


@dataclass(slots=True)
class Load:
    """All orders; each is sent until it is acknowledged, with the same key."""

    urls: Sequence[str]
    api_key: str
    operator_key: str
    schedule_id: str
    """Of the schedule that operators run."""
    dice: random.Random
    complaints: list[str]
    orders: list[Order] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    _number: int = 0

    async def run(self, stop: asyncio.Event, customers: int) -> None:
        async with httpx2.AsyncClient(timeout=_TIMEOUT) as http, asyncio.TaskGroup() as group:
            for _ in range(customers):
                group.create_task(self._customer(http, stop))

    async def _customer(self, http: httpx2.AsyncClient, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._number += 1
            kind = self.dice.choices(list(KINDS), list(KINDS.values()))[0]
            order = Order(f"order-{self._number}", kind, self._number)
            self.orders.append(order)
            for _ in range(3):
                if not (order.is_acknowledged or order.is_refused):
                    await self.submit(http, order)
            if order.is_acknowledged and order.needs_cancel:
                await self.cancel(http, order)
            await asyncio.sleep(0.01)

    async def finish(self) -> None:
        """Repeat what was not acknowledged. From then on each order is one job."""
        order = None
        try:
            async with asyncio.timeout(FINISH_SECONDS), httpx2.AsyncClient(timeout=_TIMEOUT) as http:
                for order in self.orders:
                    while not (order.is_acknowledged or order.is_refused):
                        await self.submit(http, order)
                    while order.needs_cancel:
                        await self.cancel(http, order)
        except TimeoutError:
            self.complaints.append(f"all is well again, and yet {order} is not acknowledged")

    async def submit(self, http: httpx2.AsyncClient, order: Order) -> None:
        headers = {"Idempotency-Key": order.key}
        if order.is_run:
            path = f"/v1/schedules/{self.schedule_id}/run?tenant={TENANT}"
            answer = await self._send(http, path, None, headers, self.operator_key)
        else:
            answer = await self._send(http, "/v1/jobs", order.body, headers, self.api_key)
        if answer is None:
            return
        if answer.status_code in _ACCEPTED:
            acknowledged, known = answer.json()["id"], order.fire_id if order.is_run else order.job_id
            if known not in {None, acknowledged}:
                self.complaints.append(f"{order.key} was {known} and is now {acknowledged}")
            if order.is_run:
                order.fire_id = acknowledged
            else:
                order.job_id = acknowledged
        elif answer.status_code != 503:
            order.is_refused = True
            self.complaints.append(f"{order.key}: {answer.status_code} {answer.text[:300]}")

    async def cancel(self, http: httpx2.AsyncClient, order: Order) -> None:
        answer = await self._send(http, f"/v1/jobs/{order.job_id}/cancel", None, {}, self.api_key)
        if answer is not None and answer.status_code in _ACCEPTED:
            order.is_cancel_acknowledged = True
        elif answer is not None and answer.status_code != 503:
            order.is_refused = True
            self.complaints.append(f"cancel of {order.job_id}: {answer.status_code} {answer.text[:300]}")

    async def _send(
        self, http: httpx2.AsyncClient, path: str, body: Any, headers: dict[str, str], key: str
    ) -> httpx2.Response | None:
        """The answer, or none if there was none; then nothing is known."""
        headers |= {"Authorization": f"Bearer {key}"}
        with suppress(httpx2.TransportError):
            answer = await http.post(self.dice.choice(self.urls) + path, json=body, headers=headers)
            self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
            if answer.status_code == 503 and "retry-after" not in answer.headers:
                self.complaints.append(f"{path}: 503 without Retry-After: {answer.text[:300]}")
            return answer
        await asyncio.sleep(0.1)
        return None
