"""The product of the chaos around webhooks: nothing is done, what is told of it is the point."""

from __future__ import annotations

from millpond import Job, Millpond

app = Millpond()


@app.kind("announce")
async def announce(job: Job, number: int) -> None:
    """Tell of it."""
