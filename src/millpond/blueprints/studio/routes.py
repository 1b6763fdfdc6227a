"""The studio blueprint as it is served: the contract's paths, with what each takes, gives and refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import errors
from millpond.api.blueprint import Blueprint
from millpond.api.playground import playground
from millpond.api.routes import OPERATORS, PAGES, Route
from millpond.blueprints.studio import (
    copywriting,
    generate,
    measuring,
    parameters,
    scraping,
    studio_jobs,
    wallet,
    wire,
)
from millpond.blueprints.studio.kinds import KINDS, STUDIO

if TYPE_CHECKING:
    from millpond.api.blueprint import Code
    from millpond.engine.engine import Engine
    from millpond.settings import Settings

USERS: Final = frozenset({"client"})

_ABSENT: Final = (errors.NotFoundError,)
_MADE: Final = (
    errors.InvalidError,
    errors.OutboundRefusedError,
    errors.IdempotencyConflictError,
    errors.InsufficientCreditsError,
    errors.TooManyActiveJobsError,
)


def _generate(path: str, handle: Any, body: Any, summary: str, *more: type[errors.MillpondError]) -> Route:
    return Route(
        method="POST",
        path=f"/api/generate/{path}",
        group="generate",
        handle=handle,
        summary=summary,
        told="Its credits, row and place in line are written together, or nothing is. A second request with the same"
        " idempotency_key answers 200 with the job that the first one made, as it stands now, and deducts nothing.",
        who=USERS,
        gives=("Idempotency-Replayed",),
        body=body,
        answers={202: wire.Accepted, 200: wire.Accepted},
        errors=(*_MADE, *more),
    )


_USERS_ROUTES: Final = (
    _generate("scrape", generate.make_scrape, wire.MakeScrape, "Read the page of a product."),
    _generate("copy", generate.make_copy, wire.MakeCopy, "Write the copy of an ad."),
    _generate("static-ad", generate.make_static_ad, wire.MakeStaticAd, "Make a picture.", errors.ProviderMissingError),
    _generate("tts", generate.make_speech, wire.MakeSpeech, "Have a text spoken.", errors.ProviderMissingError),
    _generate("video", generate.make_video, wire.MakeVideo, "Make a film.", errors.ProviderMissingError),
    Route(
        method="GET",
        path="/api/jobs",
        group="jobs",
        handle=studio_jobs.list_jobs,
        summary="List your jobs, the newest first.",
        who=USERS,
        query=parameters.ListJobs,
        answers={200: wire.Jobs},
    ),
    Route(
        method="GET",
        path="/api/jobs/{job_id}",
        group="jobs",
        handle=studio_jobs.read,
        summary="Read a job.",
        who=USERS,
        answers={200: wire.Job},
        errors=_ABSENT,
    ),
    Route(
        method="POST",
        path="/api/jobs/{job_id}/cancel",
        group="jobs",
        handle=studio_jobs.cancel,
        summary="Cancel a job; its credits come back.",
        told="One that waits, in line or for its provider, ends at once. One that a worker is at stays processing until"
        " that has heard of it.",
        who=USERS,
        answers={200: wire.Job},
        errors=(*_ABSENT, errors.CancelUnavailableError),
    ),
    Route(
        method="GET",
        path="/api/credits",
        group="credits",
        handle=wallet.read,
        summary="Read what you have, and what changed it.",
        who=USERS,
        query=parameters.ReadCredits,
        answers={200: wire.Credits},
    ),
)

_OPERATORS_ROUTES: Final = (
    Route(
        method="POST",
        path="/api/admin/jobs/{job_id}/retry",
        group="admin",
        handle=studio_jobs.retry,
        summary="Begin a job anew that has failed or expired.",
        told="The same job is pending again, and its credits are deducted again.",
        who=OPERATORS,
        answers={202: wire.Accepted},
        errors=(
            *_ABSENT,
            errors.RetryUnavailableError,
            errors.InsufficientCreditsError,
            errors.TooManyActiveJobsError,
        ),
    ),
)


_PAGE_ROUTES: Final = playground(
    "millpond.blueprints.studio",
    more={"/sample": ("sample.html", "The page of a product that does not exist.")},
    with_storage=True,
)

_ABOUT: Final = """\
Turn the page of a product into an ad: its facts, the copy, a picture, a voice, a film; pay with credits.

Users send a client key as `Authorization: Bearer KEY`: each account is a user. Operators send an admin key. What is
another user's answers 404. Times are RFC 3339 in UTC. Lists come in pages: send `next_cursor` as `cursor` for the next
one. Errors are `application/problem+json` with a stable `code`; the `field` says what of the request is wrong.
"""


def refuse(error: BaseException, problem: dict[str, Any]) -> tuple[int, Any]:
    """What the engine calls available is a balance here; what stands in a job's input was a member of the request."""
    if "field" in problem:
        problem["field"] = problem["field"].removeprefix("input.")
    if isinstance(error, errors.InsufficientCreditsError):
        problem = {("balance" if name == "available" else name): value for name, value in problem.items()}
    return problem["status"], problem


def handlers(engine: Engine, settings: Settings) -> Code:
    provided = engine.providers.handlers()
    names = {kind.name for kind in KINDS.values()} & set(provided)
    return {
        KINDS["copy"].name: {None: copywriting.handler(engine, settings)},
        KINDS["scrape"].name: {None: scraping.handler(engine)},
        **{name: {None: measuring.measured(provided[name][None])} for name in names},
    }


BLUEPRINT: Final = Blueprint(
    lifecycle=STUDIO,
    kinds=tuple(KINDS.values()),
    title="Studio",
    about=_ABOUT,
    routes=(*_USERS_ROUTES, *_OPERATORS_ROUTES, *_PAGE_ROUTES, *PAGES),
    groups={
        "generate": "Have something made.",
        "jobs": "See what became of it.",
        "credits": "What it costs.",
        "admin": "What operators do.",
        "page": "For browsers.",
        "server": "This document.",
    },
    parameters={
        "job_id": ({"type": "string", "pattern": "^job_[0-7][0-9a-hjkmnp-tv-z]{25}$"}, "The id of a job."),
        "part": ({"type": "string", "enum": ["page.css", "page.js", "icon.svg", "sample.css", "sample.jpg"]}, "Which."),
        "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    },
    refuse=refuse,
    refusal=wire.Refusal,
    handlers=handlers,
)
