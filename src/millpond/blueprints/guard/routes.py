"""The guard blueprint as it is served: the contract's paths, with what each takes, gives and refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import errors
from millpond.api.blueprint import Blueprint
from millpond.api.parameters import OfTenant
from millpond.api.playground import playground
from millpond.api.routes import ANY_KEY, BULK_BODY_MAX, CLIENTS, OPERATORS, PAGES, READERS, Route
from millpond.blueprints.guard import decisions, dry_run, flow, messages, rules, wire
from millpond.blueprints.guard.kinds import GUARD, KIND
from millpond.blueprints.guard.sets import RulesOfTenant, sets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.api.blueprint import Code
    from millpond.engine.engine import Engine
    from millpond.gates import Gate
    from millpond.settings import Settings

_ABSENT: Final = (errors.NotFoundError,)

_JOB_ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/jobs",
        group="jobs",
        handle=messages.make,
        summary="Hold a message against your rules, and then what your model says to it.",
        told="With message_output too, both are checked and nothing waits for you. The webhook_secret is told in this"
        " answer alone: keep it. With an Idempotency-Key the same request again gets the same answer.",
        who=CLIENTS,
        query=OfTenant,
        heeds=("Idempotency-Key",),
        gives=("Location", "Idempotency-Replayed"),
        body=wire.MakeJob,
        body_max=BULK_BODY_MAX,
        answers={202: wire.MadeJob},
        errors=(
            errors.InputError,
            errors.OutboundRefusedError,
            errors.IdempotencyKeyError,
            errors.IdempotencyConflictError,
            errors.TooManyActiveJobsError,
        ),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job_id}",
        group="jobs",
        handle=messages.read,
        summary="Read a job, with what the rules have found.",
        who=CLIENTS | READERS,
        query=OfTenant,
        answers={200: wire.Job},
        errors=_ABSENT,
    ),
    Route(
        method="POST",
        path="/v1/jobs/{job_id}/response",
        group="jobs",
        handle=messages.respond,
        summary="Give a job that waits for it what your model said.",
        told="Sent again, the same response is answered as before; another one is refused.",
        who=CLIENTS,
        query=OfTenant,
        body=wire.Respond,
        body_max=BULK_BODY_MAX,
        answers={202: wire.Responded},
        errors=(*_ABSENT, errors.AnswerUnavailableError, errors.InputError),
    ),
)


def _rule(method: str, path: str, handle: Any, summary: str, answers: Mapping[int, Any], **more: Any) -> Route:
    return Route(
        method=method,
        path=f"/v1/rules{path}",
        group="rules",
        handle=handle,
        summary=summary,
        who=READERS if method == "GET" else OPERATORS,
        query=OfTenant,
        answers=answers,
        **more,
    )


_RULE_ROUTES: Final = (
    _rule("GET", "", rules.list_rules, "List the rules, in their order.", {200: wire.Rules}),
    _rule(
        "POST",
        "",
        rules.make_rule,
        "Make a rule, behind the others.",
        {201: wire.Rule},
        body=wire.MakeRule,
        errors=(errors.InputError, errors.ConflictError),
    ),
    _rule("GET", "/{rule_id}", rules.read, "Read a rule.", {200: wire.Rule}, errors=_ABSENT),
    _rule(
        "PATCH",
        "/{rule_id}",
        rules.change_rule,
        "Change a rule.",
        {200: wire.Rule},
        body=wire.ChangeRule,
        errors=(*_ABSENT, errors.InputError, errors.ConflictError),
    ),
    _rule("DELETE", "/{rule_id}", rules.remove, "Delete a rule.", {204: None}, errors=_ABSENT),
    _rule(
        "POST",
        "/reorder",
        rules.reorder_rules,
        "Put the rules into another order.",
        {200: wire.Rules},
        body=wire.Reorder,
        errors=(errors.InputError,),
    ),
    _rule(
        "POST",
        "/dry-run",
        dry_run.run,
        "See what rules make of a text.",
        {200: wire.Filtered},
        told="The stored rules, or those that are given. Nothing is stored, and nobody is told.",
        body=wire.DryRun,
        body_max=BULK_BODY_MAX,
        errors=(errors.InputError,),
    ),
)

_HEALTH_ROUTES: Final = (
    Route(
        method="GET",
        path="/api/v1/health/queues",
        group="health",
        handle=flow.show,
        summary="See how the queues are doing.",
        told="A key of an operator of all tenants sees every queue, any other the one in which its messages wait.",
        who=ANY_KEY,
        answers={200: wire.Queues},
    ),
)

_PAGE_ROUTES: Final = playground("millpond.blueprints.guard")

_ABOUT: Final = """\
Hold what users write against your rules before your model sees it, and what it says before they do.

Submit a message; when it has passed, a webhook tells you so, with the text as it may go on. Ask your model, and give
what it said as the response: that is held against your rules too, and comes back in a second webhook. Webhooks are
signed by Standard Webhooks with the secret of the job.

Jobs need a client key, rules an admin key: who can read the rules knows how to get around them. An admin key that is
for all tenants names one as `?tenant=`. Times are RFC 3339 in UTC.
Errors are `application/problem+json` with a stable `code`, and name the `field` that they are about.
"""


def _id(prefix: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$"}


def _handlers(engine: Engine, settings: Settings) -> Code:  # noqa: ARG001 - as all that make some
    return decisions.handlers(sets_of(engine))


def _gates(engine: Engine) -> Mapping[str, Gate]:
    """Any kind can be put behind the rules of its tenant."""
    return {KIND.name: RulesOfTenant(sets_of(engine))}


BLUEPRINT: Final = Blueprint(
    lifecycle=GUARD,
    kinds=(KIND,),
    title="Guard",
    about=_ABOUT,
    routes=(*_JOB_ROUTES, *_RULE_ROUTES, *_HEALTH_ROUTES, *_PAGE_ROUTES, *PAGES),
    groups={
        "jobs": "Messages and what was said to them.",
        "rules": "What they are held against.",
        "health": "How the queues are doing.",
        "page": "For browsers.",
        "server": "This document.",
    },
    parameters={
        "job_id": (_id("job"), "The id of a job."),
        "rule_id": (_id("rule"), "The id of a rule."),
        "part": ({"type": "string", "enum": ["page.css", "page.js", "icon.svg"]}, "Which."),
        "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    },
    migrations="millpond.blueprints.guard",
    handlers=_handlers,
    gates=_gates,
)
