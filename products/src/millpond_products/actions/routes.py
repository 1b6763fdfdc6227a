"""The actions product: the routes of its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond import errors
from millpond.product import EVENT_STREAM, IDEMPOTENCY_HEADERS, JOB_HEADERS, Product, Route
from millpond_products.actions import action_jobs, http_request, parameters, run_command, trigger_github_workflow, wire
from millpond_products.actions.kinds import ACTIONS, HTTP_REQUEST, KINDS, RUN_COMMAND, TRIGGER_GITHUB_WORKFLOW

if TYPE_CHECKING:
    from millpond.product import Code, Engine
    from millpond_products.settings import ProductSettings

USERS: Final = frozenset({"client"})

_ABSENT: Final = (errors.NotFoundError,)
_KEYED: Final = (errors.IdempotencyKeyError, errors.IdempotencyConflictError)
_MADE: Final = (*_KEYED, errors.InsufficientCreditsError, errors.TooManyActiveJobsError)

_ROUTES: Final = (
    Route(
        method="GET",
        path="/api/actions",
        group="actions",
        handle=action_jobs.list_actions,
        summary="List the actions.",
        description="The built-in actions and those of the app, with their input as JSON Schema.",
        who=USERS,
        answers={200: wire.Actions},
    ),
    Route(
        method="POST",
        path="/api/jobs",
        group="jobs",
        handle=action_jobs.submit,
        summary="Start an action.",
        description="A request with the same Idempotency-Key returns the first response byte for byte, with "
        "Idempotency-Replayed: true. A different request with the same key is rejected.",
        who=USERS,
        request_headers=IDEMPOTENCY_HEADERS,
        gives=JOB_HEADERS,
        body=wire.Submit,
        answers={202: wire.Accepted},
        errors=(errors.UnknownKindError, errors.InputError, errors.OutboundRefusedError, *_MADE),
    ),
    Route(
        method="GET",
        path="/api/jobs",
        group="jobs",
        handle=action_jobs.list_jobs,
        summary="List your jobs, newest first.",
        who=USERS,
        query=parameters.ListJobs,
        answers={200: wire.Jobs},
    ),
    Route(
        method="GET",
        path="/api/jobs/{id}",
        group="jobs",
        handle=action_jobs.read,
        summary="Get a job.",
        who=USERS,
        token="read",  # noqa: S106 - the right that a token needs
        answers={200: wire.Job},
        errors=_ABSENT,
    ),
    Route(
        method="GET",
        path="/api/jobs/{id}/logs",
        group="jobs",
        handle=action_jobs.logs,
        summary="Get the log of a job.",
        description="The log is append-only and remains available after the job has ended.",
        who=USERS,
        token="read",  # noqa: S106 - the right that a token needs
        query=parameters.ReadLogs,
        answers={200: wire.Logs},
        errors=_ABSENT,
    ),
    Route(
        method="GET",
        path="/api/jobs/{id}/stream",
        group="jobs",
        handle=action_jobs.stream,
        summary="Stream the log of a job as server-sent events.",
        description="Each line is an event `log` with its number as id. At the end, one event `status` contains "
        "the state and the output, and the stream closes. To resume without loss after a "
        "disconnect, send the last id as Last-Event-ID (or ?lastEventId=). After the end, the "
        "response is 204.",
        who=USERS,
        token="read",  # noqa: S106 - the right that a token needs
        request_headers=("Last-Event-ID",),
        query=parameters.ReadStream,
        offers=(EVENT_STREAM,),
        answers={200: None, 204: None},
        errors=(*_ABSENT, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/api/jobs/{id}/cancel",
        group="jobs",
        handle=action_jobs.cancel,
        summary="Cancel a job.",
        description="A pending job ends immediately: 200. A running job is asked to stop, then stopped: 202.",
        who=USERS,
        token="cancel",  # noqa: S106 - the right that a token needs
        answers={200: wire.Job, 202: wire.Job},
        errors=(*_ABSENT, errors.CancelUnavailableError),
    ),
    Route(
        method="POST",
        path="/api/jobs/{id}/retry",
        group="jobs",
        handle=action_jobs.retry,
        summary="Retry an ended job as a new job.",
        description="The new job names the old one in `retryOf`. One Idempotency-Key creates one job.",
        who=USERS,
        request_headers=IDEMPOTENCY_HEADERS,
        gives=JOB_HEADERS,
        answers={202: wire.Job},
        errors=(*_ABSENT, errors.RetryUnavailableError, *_MADE),
    ),
)

_ABOUT: Final = """\
Run automation actions with append-only logs, and follow the logs live.

Send a client key as `Authorization: Bearer KEY`: each account is a user. Requests for objects of other users return
404. A browser can follow one job with a token, sent the same way or as `?token=`. Times are RFC 3339 in UTC. Lists are
paginated: send `nextCursor` as `cursor` to get the next page. Errors are `application/problem+json` with a stable
`code`; `field` names the invalid field of the request.
"""


def handlers(engine: Engine, settings: ProductSettings) -> Code:
    return {
        HTTP_REQUEST.name: {None: http_request.handler(engine)},
        RUN_COMMAND.name: {None: run_command.handler(settings)},
        TRIGGER_GITHUB_WORKFLOW.name: {None: trigger_github_workflow.handler(engine, settings)},
    }


PRODUCT: Final = Product(
    lifecycle=ACTIONS,
    kinds=KINDS,
    title="Actions",
    about=_ABOUT,
    routes=_ROUTES,
    groups={
        "actions": "The available actions.",
        "jobs": "Start actions and read their jobs.",
        "server": "The documentation of this API.",
    },
    parameters={
        "id": ({"type": "string", "pattern": "^job_[0-7][0-9a-hjkmnp-tv-z]{25}$"}, "The id of a job."),
        "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    },
    handlers=handlers,
)
