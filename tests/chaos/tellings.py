"""The product of the chaos around webhooks: nothing is done, what is told of it is the point."""

from __future__ import annotations

from penstock import Job, Penstock

app = Penstock()


@app.kind("tell")
async def tell(job: Job, number: int) -> None:
    """Tell of it."""
