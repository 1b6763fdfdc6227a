"""The studio product: the routes of its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import errors
from millpond.product import JOB_HEADERS, OPERATORS, Product, Route, playground
from millpond_products.llm.companion import LLM
from millpond_products.renderer.companion import RENDERER
from millpond_products.studio import copywriting, generate, measuring, parameters, scraping, studio_jobs, wallet, wire
from millpond_products.studio.kinds import KINDS, STUDIO

if TYPE_CHECKING:
    from millpond.product import Code, Engine
    from millpond_products.settings import ProductSettings

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
        description="The deduction of credits, the job and its dispatch are written in one transaction. A "
        "second request with the same idempotency_key returns 200 with the current state of the "
        "existing job and deducts nothing.",
        who=USERS,
        gives=JOB_HEADERS,
        body=body,
        answers={202: wire.Accepted, 200: wire.Accepted},
        errors=(*_MADE, *more),
    )


_USERS_ROUTES: Final = (
    _generate("scrape", generate.make_scrape, wire.MakeScrape, "Scrape a product page."),
    _generate("copy", generate.make_copy, wire.MakeCopy, "Write the copy of an ad."),
    _generate(
        "static-ad", generate.make_static_ad, wire.MakeStaticAd, "Create an image ad.", errors.ProviderMissingError
    ),
    _generate("tts", generate.make_speech, wire.MakeSpeech, "Convert text to speech.", errors.ProviderMissingError),
    _generate("video", generate.make_video, wire.MakeVideo, "Create a video ad.", errors.ProviderMissingError),
    Route(
        method="GET",
        path="/api/jobs",
        group="jobs",
        handle=studio_jobs.list_jobs,
        summary="List your jobs, newest first.",
        who=USERS,
        query=parameters.ListJobs,
        answers={200: wire.Jobs},
    ),
    Route(
        method="GET",
        path="/api/jobs/{job_id}",
        group="jobs",
        handle=studio_jobs.read,
        summary="Get a job.",
        who=USERS | OPERATORS,
        answers={200: wire.Job},
        errors=_ABSENT,
    ),
    Route(
        method="POST",
        path="/api/jobs/{job_id}/cancel",
        group="jobs",
        handle=studio_jobs.cancel,
        summary="Cancel a job; its credits are refunded.",
        description="A waiting job ends immediately. A job held by a worker stays processing until it has stopped.",
        who=USERS | OPERATORS,
        answers={200: wire.Job},
        errors=(*_ABSENT, errors.CancelUnavailableError),
    ),
    Route(
        method="GET",
        path="/api/credits",
        group="credits",
        handle=wallet.read,
        summary="Get your balance and its entries.",
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
        summary="Retry a failed or expired job.",
        description="The job becomes pending again, and its credits are deducted again.",
        who=OPERATORS,
        gives=("Location", "Retry-After"),
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
    "millpond_products.studio",
    more={"/sample": ("sample.html", "The page of a fictitious product.")},
    with_storage=True,
)

_ABOUT: Final = """\
Create an ad from a product page: product data, copy, image, speech and video. Jobs are paid with credits.

Users send a client key as `Authorization: Bearer KEY`: each account is a user. Operators send an admin key, with which
they can read, cancel and retry any job. Requests for objects of other users return 404. Times are RFC 3339 in UTC.
Lists are paginated: send `next_cursor` as `cursor` to get the next page. Errors are `application/problem+json` with a
stable `code`; `field` names the invalid field of the request.
"""


def refuse(error: BaseException, problem: dict[str, Any]) -> tuple[int, Any]:
    """Maps available credits to the balance, and fields of a job's input to fields of the request."""
    if "field" in problem:
        problem["field"] = problem["field"].removeprefix("input.")
    if isinstance(error, errors.InsufficientCreditsError):
        problem = {("balance" if name == "available" else name): value for name, value in problem.items()}
    return problem["status"], problem


def handlers(engine: Engine, settings: ProductSettings) -> Code:
    provided = engine.providers.handlers()
    names = {kind.name for kind in KINDS.values()} & set(provided)
    return {
        KINDS["copy"].name: {None: copywriting.handler(engine, settings)},
        KINDS["scrape"].name: {None: scraping.handler(engine)},
        **{name: {None: measuring.measured(provided[name][None])} for name in names},
    }


PRODUCT: Final = Product(
    lifecycle=STUDIO,
    kinds=tuple(KINDS.values()),
    title="Studio",
    about=_ABOUT,
    routes=(*_USERS_ROUTES, *_OPERATORS_ROUTES, *_PAGE_ROUTES),
    groups={
        "generate": "Start jobs.",
        "jobs": "Read and cancel jobs.",
        "credits": "Balance and entries.",
        "admin": "Operator endpoints.",
        "page": "The playground page.",
        "server": "The documentation of this API.",
    },
    parameters={
        "job_id": ({"type": "string", "pattern": "^job_[0-7][0-9a-hjkmnp-tv-z]{25}$"}, "The id of a job."),
        "part": (
            {"type": "string", "enum": ["page.css", "page.js", "icon.svg", "sample.css", "sample.jpg"]},
            "The name of the asset.",
        ),
        "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    },
    refuse=refuse,
    refusal=wire.ErrorBody,
    handlers=handlers,
    companions=(LLM, RENDERER),
)
