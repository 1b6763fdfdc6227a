"""The guard product: the routes of its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import errors
from millpond.product import (
    ANY_KEY,
    BULK_BODY_MAX,
    CLIENTS,
    IDEMPOTENCY_HEADERS,
    JOB_HEADERS,
    OPERATORS,
    READERS,
    OfTenant,
    Product,
    Route,
    playground,
)
from millpond_products.guard import decisions, dry_run, flow, messages, rules, wire
from millpond_products.guard.kinds import GUARD, KIND
from millpond_products.guard.sets import RulesOfTenant, sets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.gates import Gate
    from millpond.product import Code, Engine
    from millpond_products.settings import ProductSettings

_ABSENT: Final = (errors.NotFoundError,)

_JOB_ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/jobs",
        group="jobs",
        handle=messages.make,
        summary="Check a message against your rules, and then the response of your model.",
        description="With message_output, both are checked at once. The webhook_secret is returned only in this "
        "response. A request with the same Idempotency-Key returns the same response.",
        who=CLIENTS,
        query=OfTenant,
        request_headers=IDEMPOTENCY_HEADERS,
        gives=JOB_HEADERS,
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
        summary="Get a job with the results of the rules.",
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
        summary="Submit the response of your model to a waiting job.",
        description="The same response again returns the same result; a different one is rejected.",
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
    _rule("GET", "", rules.list_rules, "List the rules in their order.", {200: wire.Rules}),
    _rule(
        "POST",
        "",
        rules.make_rule,
        "Create a rule at the end of the list.",
        {201: wire.Rule},
        body=wire.MakeRule,
        errors=(errors.InputError, errors.ConflictError),
    ),
    _rule("GET", "/{rule_id}", rules.read, "Get a rule.", {200: wire.Rule}, errors=_ABSENT),
    _rule(
        "PATCH",
        "/{rule_id}",
        rules.change_rule,
        "Update a rule.",
        {200: wire.Rule},
        body=wire.ChangeRule,
        errors=(*_ABSENT, errors.InputError, errors.ConflictError),
    ),
    _rule("DELETE", "/{rule_id}", rules.remove, "Delete a rule.", {204: None}, errors=_ABSENT),
    _rule(
        "POST",
        "/reorder",
        rules.reorder_rules,
        "Reorder the rules.",
        {200: wire.Rules},
        body=wire.Reorder,
        errors=(errors.InputError,),
    ),
    _rule(
        "POST",
        "/dry-run",
        dry_run.run,
        "Test rules on a text.",
        {200: wire.Filtered},
        description="Uses the stored rules or the given ones. Nothing is stored, and no webhook is sent.",
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
        summary="Get the status of the queues.",
        description="An operator key for all tenants sees every queue; other keys see the queue of their messages.",
        who=ANY_KEY,
        answers={200: wire.Queues},
    ),
)

_PAGE_ROUTES: Final = playground("millpond_products.guard")

_ABOUT: Final = """\
Check the messages of users against your rules before your model receives them, and its responses before users do.

Submit a message. When it has passed the rules, you receive a webhook with the filtered text. Call your model and submit
its response, which is also checked; you receive the result in a second webhook. Webhooks are signed according to
Standard Webhooks with the secret of the job.

Jobs require a client key. Rules require an admin key, because anybody who can read the rules can circumvent them. An
admin key for all tenants names one as `?tenant=`. Times are RFC 3339 in UTC.
Errors are `application/problem+json` with a stable `code`; `field` names the invalid field of the request.
"""


def _id(prefix: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$"}


def _handlers(engine: Engine, settings: ProductSettings) -> Code:  # noqa: ARG001 - the signature for all products
    return decisions.handlers(sets_of(engine))


def _gates(engine: Engine) -> Mapping[str, Gate]:
    """The gate for kinds of any product: the rules of the tenant."""
    return {KIND.name: RulesOfTenant(sets_of(engine))}


PRODUCT: Final = Product(
    lifecycle=GUARD,
    kinds=(KIND,),
    title="Guard",
    about=_ABOUT,
    routes=(*_JOB_ROUTES, *_RULE_ROUTES, *_HEALTH_ROUTES, *_PAGE_ROUTES),
    page_scope="operator",
    groups={
        "jobs": "Messages and their responses.",
        "rules": "Rules that messages are checked against.",
        "health": "Status of the queues.",
        "page": "The playground page.",
        "server": "The documentation of this API.",
    },
    parameters={
        "job_id": (_id("job"), "The id of a job."),
        "rule_id": (_id("rule"), "The id of a rule."),
        "part": ({"type": "string", "enum": ["page.css", "page.js", "icon.svg"]}, "The name of the asset."),
        "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    },
    migrations="millpond_products.guard",
    handlers=_handlers,
    gates=_gates,
)
