"""The product of the tests: one kind of job for each thing a kind can be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from millpond.app import Millpond
from millpond.kinds import Kind
from millpond.limits import Limit
from tests.lifecycles import LIFECYCLES

app = Millpond()


@app.kind("free")
def free(job: Any, **anything: Any) -> None:
    """Costs nothing and takes any input."""


@app.kind("priced", price=5)
def priced(job: Any, product: str = "shoe", style: str = "plain", size: int = 1) -> None:
    """Costs five credits."""


@app.kind("budgeted", price=5, budget=50)
def budgeted(job: Any) -> None:
    """Its children may cost fifty credits."""


@app.kind("limited", price=5, expires_in="1h", limits=[Limit("one", at_once=1, starts=1_000, per="1m", key="account")])
def limited(job: Any, **anything: Any) -> None:
    """Runs one job of an account at a time."""


@app.kind("metered", price=lambda given: given.units)
def metered(job: Any, units: int) -> None:
    """Costs what its input says."""


@app.kind("staged", price=5, stages=("planning", "rendering", "uploading"), firm_stages=("uploading",))
def staged(job: Any) -> None:
    """Has stages; the last one cannot be interrupted."""


@app.kind("brief", price=5, expires_in="1h")
def brief(job: Any) -> None:
    """Has a deadline, so it may be parked."""


@app.kind("vetted", price=5, expires_in="1h", answered_by="operator")
def vetted(job: Any) -> None:
    """Waits for the answer of an operator."""


@app.kind("fragile", price=5, attempts_max=2, interruptions_max=2, lapses_max=2)
def fragile(job: Any) -> None:
    """Fails at the second failure of a sort."""


@app.kind("fair", is_fair=True)
def fair(job: Any) -> None:
    """Its queue takes turns between tenants."""


@app.kind(
    "drawn",
    schema={
        "type": "object",
        "properties": {"width": {"type": "integer", "minimum": 1}},
        "required": ["width"],
        "additionalProperties": False,
    },
)
def drawn(job: Any, **given: Any) -> None:
    """Its input is described by a JSON Schema."""


@app.kind("filmed", price=5, runs="fleet", expires_in="1h", stages=("drawing", "cutting"), interruptions_max=3)
def filmed(job: Any, **anything: Any) -> None:
    """Runs on the fleet; may be parked; its jobs may go to routes of their own."""


@app.kind("delivered", price=5, expires_in="1h", is_delivered=True)
def delivered(job: Any) -> None:
    """With a URL of its own it has succeeded only when that has taken the news."""


for made in LIFECYCLES:
    app.add(Kind(name=made.name, lifecycle=made, price=3, expires_in=timedelta(hours=1)))
