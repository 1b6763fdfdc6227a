"""The actions blueprint as it is served: the contract's paths, with what each takes, gives and refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond import errors
from millpond.api.blueprint import Blueprint
from millpond.api.calls import EVENT_STREAM
from millpond.api.routes import PAGES, Route
from millpond.blueprints.actions import (
    action_jobs,
    http_request,
    parameters,
    run_command,
    trigger_github_workflow,
    wire,
)
from millpond.blueprints.actions.kinds import ACTIONS, HTTP_REQUEST, KINDS, RUN_COMMAND, TRIGGER_GITHUB_WORKFLOW

if TYPE_CHECKING:
    from millpond.api.blueprint import Code
    from millpond.engine.engine import Engine
    from millpond.settings import Settings

USERS: Final = frozenset({"client"})

_ABSENT: Final = (errors.NotFoundError,)
_KEYED: Final = (errors.IdempotencyKeyError, errors.IdempotencyConflictError)
_MADE: Final = (*_KEYED, errors.InsufficientCreditsError, errors.TooManyActiveJobsError)
_KEY: Final = ("Idempotency-Key",)
_GIVEN: Final = ("Location", "Idempotency-Replayed")

_ROUTES: Final = (
    Route(
        method="GET",
        path="/api/actions",
        group="actions",
        handle=action_jobs.list_actions,
        summary="List what can be done.",
        told="Those that come with Millpond, and those of the app, each with what it takes as JSON Schema.",
        who=USERS,
        answers={200: wire.Actions},
    ),
    Route(
        method="POST",
        path="/api/jobs",
        group="jobs",
        handle=action_jobs.submit,
        summary="Have an action done.",
        told="Send the same Idempotency-Key again and the first answer comes back, byte for byte, with"
        " Idempotency-Replayed: true; another request with it is refused.",
        who=USERS,
        heeds=_KEY,
        gives=_GIVEN,
        body=wire.Submit,
        answers={202: wire.Accepted},
        errors=(errors.UnknownKindError, errors.InputError, errors.OutboundRefusedError, *_MADE),
    ),
    Route(
        method="GET",
        path="/api/jobs",
        group="jobs",
        handle=action_jobs.list_jobs,
        summary="List your jobs, the newest first.",
        who=USERS,
        query=parameters.ListJobs,
        answers={200: wire.Jobs},
    ),
    Route(
        method="GET",
        path="/api/jobs/{id}",
        group="jobs",
        handle=action_jobs.read,
        summary="Read a job.",
        who=USERS,
        token="read",  # noqa: S106 - what it must allow
        answers={200: wire.Job},
        errors=_ABSENT,
    ),
    Route(
        method="GET",
        path="/api/jobs/{id}/logs",
        group="jobs",
        handle=action_jobs.logs,
        summary="Read a job's log.",
        told="Nothing changes a line that is written, and none goes away when the job has ended.",
        who=USERS,
        token="read",  # noqa: S106 - what it must allow
        query=parameters.ReadLogs,
        answers={200: wire.Logs},
        errors=_ABSENT,
    ),
    Route(
        method="GET",
        path="/api/jobs/{id}/stream",
        group="jobs",
        handle=action_jobs.stream,
        summary="Watch a job's log as server-sent events.",
        told="Each line is an event `log` with its number as id; at the end there is one event `status` with the state"
        " and the output, and the stream ends. A reader that was cut off sends the last id it saw as Last-Event-ID (or"
        " ?lastEventId=), and misses nothing; one that has seen the end is answered 204.",
        who=USERS,
        token="read",  # noqa: S106 - what it must allow
        heeds=("Last-Event-ID",),
        query=parameters.Stream,
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
        told="One that is pending ends at once, and no worker hears of it: 200. One that is running is asked to stop,"
        " and cut off when it does not: 202.",
        who=USERS,
        token="cancel",  # noqa: S106 - what it must allow
        answers={200: wire.Job, 202: wire.Job},
        errors=(*_ABSENT, errors.CancelUnavailableError),
    ),
    Route(
        method="POST",
        path="/api/jobs/{id}/retry",
        group="jobs",
        handle=action_jobs.retry,
        summary="Do once more what has ended, as a new job.",
        told="The new job says which one it repeats, as retryOf. An Idempotency-Key makes it once.",
        who=USERS,
        heeds=_KEY,
        gives=_GIVEN,
        answers={202: wire.Job},
        errors=(*_ABSENT, errors.RetryUnavailableError, *_MADE),
    ),
)

_ABOUT: Final = """\
Have something done, watch its log live, and keep it.

Send a client key as `Authorization: Bearer KEY`: each account is a user. What is another user's answers 404. A browser
follows one job with a token instead, also as `?token=`. Times are RFC 3339 in UTC. Lists come in pages: send
`nextCursor` as `cursor` for the next one. Errors are `application/problem+json` with a stable `code`; the `field` says
what of the request is wrong.
"""


def handlers(engine: Engine, settings: Settings) -> Code:
    return {
        HTTP_REQUEST.name: {None: http_request.handler(engine)},
        RUN_COMMAND.name: {None: run_command.handler(settings)},
        TRIGGER_GITHUB_WORKFLOW.name: {None: trigger_github_workflow.handler(engine, settings)},
    }


BLUEPRINT: Final = Blueprint(
    lifecycle=ACTIONS,
    kinds=KINDS,
    title="Actions",
    about=_ABOUT,
    routes=(*_ROUTES, *PAGES),
    groups={
        "actions": "What can be done.",
        "jobs": "Have it done, and see what became of it.",
        "server": "This document.",
    },
    parameters={
        "id": ({"type": "string", "pattern": "^job_[0-7][0-9a-hjkmnp-tv-z]{25}$"}, "The id of a job."),
        "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    },
    handlers=handlers,
)
