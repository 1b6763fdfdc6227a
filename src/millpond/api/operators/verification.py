"""Verification over HTTP: check every invariant of the database, one check per process at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond import values, wire
from millpond.api import parameters, principals
from millpond.api.calls import job_text, reply
from millpond.api.routes import Route
from millpond.api.scopes import OPERATORS
from millpond.errors import RateLimitedError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply


VERIFY_PAUSE: Final = 10
"""After how many seconds a caller may try again while a check is running."""


async def verification(call: Call) -> Reply:
    principals.check_all_tenants(call)
    newest = None if call.query.newest is None else values.duration(call.query.newest, field="newest")
    if call.state.verifying.locked():
        raise RateLimitedError(
            "A verification is already running.", hint="Wait until it has finished.", retry_after=VERIFY_PAUSE
        )
    async with call.state.verifying:
        violations = await call.engine.verify(newest=newest)
    found = [
        wire.Violation(
            invariant=violation.invariant,
            subject=violation.subject,
            job_id=job_text(violation.job_id),
            detail=violation.detail,
        )
        for violation in violations
    ]
    return reply(wire.Verification(ok=not found, violations=found))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/verify",
        handle=verification,
        summary="Check every invariant of the database.",
        description="Only one check per process runs at a time, because it takes long and loads the database.",
        who=OPERATORS,
        query=parameters.Verify,
        answers={200: wire.Verification},
    ),
)
