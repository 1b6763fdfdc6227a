"""Customers: they submit, cancel and repeat requests, and write down what was acknowledged."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx2

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: Final = {"sum": 50, "part": 15, "refused": 10, "endless": 5, "sheet": 20}
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
    is_cancel_acknowledged: bool = False
    is_refused: bool = False
    settled_at: float | None = None
    """When all jobs up to this one had ended, by the monotonic clock."""

    @property
    def body(self) -> dict[str, Any]:
        return {"kind": self.kind, "input": {"n": self.n}}


@dataclass(slots=True)
class Load:
    """All orders; each is sent until it is acknowledged, with the same key."""

    urls: Sequence[str]
    api_key: str
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
                if order.job_id is None and not order.is_refused:
                    await self.submit(http, order)
            if order.job_id is not None and order.kind == "endless":
                await self.cancel(http, order)
            await asyncio.sleep(0.01)

    async def finish(self) -> None:
        """Repeat what was not acknowledged. From then on each order is one job."""
        order = None
        try:
            async with asyncio.timeout(FINISH_SECONDS), httpx2.AsyncClient(timeout=_TIMEOUT) as http:
                for order in self.orders:
                    while order.job_id is None and not order.is_refused:
                        await self.submit(http, order)
                    while order.kind == "endless" and not (order.is_cancel_acknowledged or order.is_refused):
                        await self.cancel(http, order)
        except TimeoutError:
            self.complaints.append(f"all is well again, and yet {order} is not acknowledged")

    async def submit(self, http: httpx2.AsyncClient, order: Order) -> None:
        answer = await self._send(http, "/v1/jobs", order.body, {"Idempotency-Key": order.key})
        if answer is None:
            return
        if answer.status_code in _ACCEPTED:
            job_id = answer.json()["id"]
            if order.job_id not in {None, job_id}:
                self.complaints.append(f"{order.key} was {order.job_id} and is now {job_id}")
            order.job_id = job_id
        elif answer.status_code != 503:
            order.is_refused = True
            self.complaints.append(f"{order.key}: {answer.status_code} {answer.text[:300]}")

    async def cancel(self, http: httpx2.AsyncClient, order: Order) -> None:
        answer = await self._send(http, f"/v1/jobs/{order.job_id}/cancel", None, {})
        if answer is not None and answer.status_code in _ACCEPTED:
            order.is_cancel_acknowledged = True
        elif answer is not None and answer.status_code != 503:
            order.is_refused = True
            self.complaints.append(f"cancel of {order.job_id}: {answer.status_code} {answer.text[:300]}")

    async def _send(
        self, http: httpx2.AsyncClient, path: str, body: Any, headers: dict[str, str]
    ) -> httpx2.Response | None:
        """The answer, or none if there was none; then nothing is known."""
        headers |= {"Authorization": f"Bearer {self.api_key}"}
        with suppress(httpx2.TransportError):
            answer = await http.post(self.dice.choice(self.urls) + path, json=body, headers=headers)
            self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
            if answer.status_code == 503 and "retry-after" not in answer.headers:
                self.complaints.append(f"{path}: 503 without Retry-After: {answer.text[:300]}")
            return answer
        await asyncio.sleep(0.1)
        return None
