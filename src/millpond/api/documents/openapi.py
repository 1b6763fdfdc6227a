"""The OpenAPI 3.1 document, made from the route table, the wire's types and the product's kinds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, cast

import msgspec

from millpond import errors, values, wire
from millpond.api import parameters, problems
from millpond.api.calls import EVENT_STREAM, JSON
from millpond.api.documents.samples import sample
from millpond.api.problems import as_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from millpond.api.product import Parameters, Product, Refuse
    from millpond.api.routes import Route
    from millpond.errors import MillpondError
    from millpond.kinds import Kind

    _About: TypeAlias = "Product | _Native"

_TITLE: Final = "Millpond"
_DESCRIPTION: Final = """\
Submit jobs, watch them, read their results, and manage credits.

Send a key as `Authorization: Bearer KEY`. A browser can follow one job with a token, sent the same way or as `?token=`.
Times are RFC 3339 in UTC, ids are prefixed text that sorts by time, credits are whole numbers.
Lists are paginated: send `next_cursor` as `cursor` to get the next page.

Every response has a `Request-Id`; include it when you report a problem. Errors are `application/problem+json` with a
stable `code`; `retryable` states whether the same request may succeed later, and `Retry-After` when.
`RateLimit` states how many requests remain, `RateLimit-Policy` the limit.
"""
_TAGS: Final = {
    "jobs": "Submit, read, watch and cancel jobs.",
    "batches": "Submit many jobs under one handle, with counts, one cancel and one webhook.",
    "artifacts": "Upload and download files.",
    "quotes": "Get the price of a job.",
    "wallet": "Balances and ledger entries of accounts.",
    "kinds": "Kinds of jobs, their schemas and lifecycles.",
    "queues": "Status, pause and resume of queues.",
    "limits": "How many jobs run at once and start per period; change, close and open.",
    "failures": "Failures grouped by cause.",
    "workers": "Fleet workers and direct workers.",
    "routes": "Queues whose jobs are run by the fleet.",
    "scaling": "The desired number of workers.",
    "worker": "Endpoints called by fleet workers.",
    "tenants": "Tenants and their accounts.",
    "grants": "Grant credits.",
    "adjustments": "Adjust credits.",
    "keys": "API keys.",
    "endpoints": "Webhook endpoints of tenants.",
    "deliveries": "Webhook deliveries and their attempts.",
    "callbacks": "Callbacks from providers.",
    "audit": "The log of operator actions.",
    "board": "Views of the dashboard.",
    "bulk": "Bulk operations on jobs.",
    "schedules": "Schedules, which submit jobs at their due times, and what they did.",
    "verify": "Verification of the database.",
    "server": "Health of the process.",
}
_JOB_ID: Final = {"type": "string", "pattern": "^job_[0-7][0-9a-hjkmnp-tv-z]{25}$"}
_KEY_ID: Final = {"type": "string", "pattern": "^key_[0-7][0-9a-hjkmnp-tv-z]{25}$"}
_WORKER_ID: Final = {"type": "string", "pattern": "^worker_[0-7][0-9a-hjkmnp-tv-z]{25}$"}
_ARTIFACT_ID: Final = {"type": "string", "pattern": "^art_[0-7][0-9a-hjkmnp-tv-z]{25}$"}
_ENDPOINT_ID: Final = {"type": "string", "pattern": "^ep_[0-7][0-9a-hjkmnp-tv-z]{25}$"}
_DELIVERY_ID: Final = {"type": "string", "pattern": "^msg_[0-7][0-9a-hjkmnp-tv-z]{25}$"}
_BATCH_ID: Final = {"type": "string", "pattern": "^batch_[0-7][0-9a-hjkmnp-tv-z]{25}$"}
_BULK_ID: Final = {"type": "string", "pattern": "^bulk_[0-7][0-9a-hjkmnp-tv-z]{25}$"}
_SCHEDULE_ID: Final = {"type": "string", "pattern": "^sched_[0-7][0-9a-hjkmnp-tv-z]{25}$"}
_IDS: Final = {
    "artifacts": (_ARTIFACT_ID, "The id of an artifact."),
    "batches": (_BATCH_ID, "The id of a batch."),
    "deliveries": (_DELIVERY_ID, "The id of a delivery."),
    "endpoints": (_ENDPOINT_ID, "The id of an endpoint."),
    "bulk": (_BULK_ID, "The id of a bulk operation."),
    "jobs": (_JOB_ID, "The id of a job."),
    "keys": (_KEY_ID, "The id of a key."),
    "schedules": (_SCHEDULE_ID, "The id of a schedule."),
    "workers": (_WORKER_ID, "The id of a worker."),
}
"""The schema and description of `{id}` in a path, by the group of the route."""
_NAME: Final = msgspec.json.schema(wire.Name)
_IDEMPOTENCY_KEY: Final = msgspec.json.schema(wire.Key)
_PATH: Final = {
    "kind": (_NAME, "The name of a kind."),
    "queue": (_NAME, "The name of a queue."),
    "route": (_NAME, "The name of a route."),
    "tenant": (_NAME, "The name of a tenant."),
    "account": (_NAME, "The name of an account."),
    "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    "name": (_NAME, "Any name; distinguishes receivers."),
    "provider": (_NAME, "The name of a provider."),
    "token": ({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,512}$"}, "The callback token of a prediction."),
    "part": ({"type": "string", "pattern": "^[a-z.]{1,40}$"}, "An asset of the page."),
}
_HEADERS: Final = {
    "Request-Id": ("The id of this request.", {"type": "string"}),
    "RateLimit": ("The number of remaining requests, and the seconds until the limit is reset.", {"type": "string"}),
    "RateLimit-Policy": ("The limit of requests, and its period in seconds.", {"type": "string"}),
    "Retry-After": ("Seconds to wait before the next request.", {"type": "integer"}),
    "Location": ("The URL of the job or batch.", {"type": "string"}),
    "Idempotency-Replayed": ("`true` if the response is a replay of the first one.", {"type": "string"}),
    "ETag": ("The version of the response.", {"type": "string"}),
    "Preference-Applied": ("The preferences that were applied.", {"type": "string"}),
    "WWW-Authenticate": ("The required authentication scheme.", {"type": "string"}),
}
_REQUEST_HEADERS: Final = {
    "Idempotency-Key": ("Makes the request safe to repeat; printable ASCII.", _IDEMPOTENCY_KEY),
    "Prefer": ("wait=SECONDS: respond when the job has ended, or after that time.", {"type": "string"}),
    "If-None-Match": ("The ETag of a previous response.", {"type": "string"}),
    "Last-Event-ID": ("Continue after this event.", {"type": "string", "pattern": "^[0-9]{0,9}$"}),
}
_PLACE: Final = (
    "Continue after this event or chunk.",
    {"type": "string", "pattern": r"^([0-9]{1,9}(\.[0-9]{1,9})?)?$"},
)
"""The header Last-Event-ID where a stream also has the chunks of a job's text."""
_SENT: Final = {
    "POST /v1/jobs": ("Idempotency-Key",),
    "POST /v1/jobs/{id}/retry": ("Idempotency-Key",),
    "GET /v1/jobs/{id}": ("Prefer", "If-None-Match"),
    "GET /v1/jobs/{id}/events": ("Last-Event-ID",),
    "GET /v1/jobs/{id}/stream": ("Last-Event-ID",),
}
_GIVEN: Final = {
    wire.Accepted: ("Location", "Retry-After", "Idempotency-Replayed"),
    wire.Job: ("ETag", "Retry-After", "Preference-Applied"),
}


@dataclass(frozen=True, slots=True)
class _Native:
    """The description of the native API, in the form of a product."""

    title: str = _TITLE
    about: str = _DESCRIPTION
    groups: Mapping[str, str] = field(default_factory=lambda: _TAGS)
    parameters: Parameters = field(default_factory=lambda: _PATH)
    refusal: type[msgspec.Struct] = wire.Problem
    refusal_form: bytes = problems.MEDIA_TYPE
    refuse: Refuse = as_problem


_NATIVE: Final = _Native()
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_FRAME: Final = {
    "type": "object",
    "description": "A server-sent event. Its data is an Event; the last one holds the job's state and outcome.",
    "properties": {
        "id": {"type": "string", "description": "The number of the event."},
        "event": {"type": "string", "description": "The type of the event; `end` for the last one."},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["data"],
}


def document(
    routes: Iterable[Route], kinds: Mapping[str, Kind], *, server: str = "", product: Product | None = None
) -> dict[str, Any]:
    """The document of the native API or of a product; with ``kinds``, a submit has a variant with the input of each."""
    routes = tuple(routes)
    about = _NATIVE if product is None else product
    schemas = _schemas(routes, about.refusal)
    if kinds:
        for made in (wire.Submit, wire.AskPrice):
            schemas |= dict(_by_kind(schemas[made.__name__], made.__name__, kinds))
        schemas |= {_input_name(kind): _input(kind) for kind in kinds.values()}
    paths: dict[str, dict[str, Any]] = {}
    for route in filter(lambda route: route.path, routes):  # a route without a path is a redirect
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, about)
    return {
        "openapi": "3.1.0",
        "info": {"title": about.title, "version": version("millpond"), "description": about.about, "license": _LICENSE},
        "servers": [{"url": server or "/"}],
        "tags": [{"name": name, "description": text} for name, text in about.groups.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "headers": {name: {"description": text, "schema": schema} for name, (text, schema) in _HEADERS.items()},
            "examples": {kind.code: {"value": _example(kind, about)[1]} for kind in problems.all_errors()},
            "securitySchemes": _SECURITY,
        },
    }


_LICENSE: Final = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_SECURITY: Final = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of scope client, worker, viewer, operator or admin.",
    },
    "fleet_secret": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Fleet-Secret",
        "description": "A key of scope worker, for registration. It can also be sent as a bearer key.",
    },
    "worker_token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token that a worker receives at registration.",
    },
    "token": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "A browser token for one job. It can also be sent as a bearer key.",
    },
}


# Shapes


def _schemas(routes: Iterable[Route], refusal: Any) -> dict[str, Any]:
    shapes = [shape for route in routes for shape in (route.body, *route.answers.values()) if _is_shape(shape)]
    _, components = wire.schema_of(*dict.fromkeys((*shapes, refusal, wire.Event)))
    for shape in shapes:
        if either := _either(shape):
            components[shape.__name__]["oneOf"] = [_only(name, either) for name in either]
    return components


def _either(shape: type[msgspec.Struct]) -> tuple[str, ...]:
    return shape.either if issubclass(shape, wire.Request) else ()


def _only(given: str, either: tuple[str, ...]) -> dict[str, Any]:
    """The schema in which one of the members is present, and the others are not."""
    members = {name: {"not": {"type": "null"}} if name == given else {"type": "null"} for name in either}
    return {"required": [given], "properties": members}


def _is_shape(shape: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(shape, type) and issubclass(cast("type[object]", shape), msgspec.Struct)


def _by_kind(base: dict[str, Any], name: str, kinds: Mapping[str, Kind]) -> Iterator[tuple[str, Any]]:
    """The schema of a request with a variant for each kind, whose input has the schema of the kind."""
    mapping: dict[str, str] = {}
    for kind in kinds.values():
        variant = f"{name}.{_safe(kind.name)}"
        given = {"$ref": f"#/components/schemas/{_input_name(kind)}"}
        must = [*base["required"], *(["input"] if kind.json_schema.get("required") or _needs_input(kind) else [])]
        yield (
            variant,
            {
                **base,
                "title": variant,
                "description": kind.summary,
                "properties": {**base["properties"], "kind": {"const": kind.name}, "input": given},
                "required": must,
            },
        )
        mapping[kind.name] = f"#/components/schemas/{variant}"
    yield (
        name,
        {
            "description": base.get("description", ""),
            "oneOf": [{"$ref": target} for target in mapping.values()],
            "discriminator": {"propertyName": "kind", "mapping": mapping},
        },
    )


def _needs_input(kind: Kind) -> bool:
    """Whether the kind refuses an empty input."""
    try:
        kind.read({})
    except errors.InputError:
        return True
    return False


def _input(kind: Kind) -> dict[str, Any]:
    """The schema of a kind's input: its references point to its place here, and integers have their bounds."""
    return {"type": "object", **_moved(kind.json_schema, f"#/components/schemas/{_input_name(kind)}")}


def _moved(schema: Any, base: str) -> Any:
    if isinstance(schema, dict):
        members = cast("dict[str, Any]", schema)
        moved = {name: _moved(below, base) for name, below in members.items()}
        if members.get("type") == "integer":
            moved = {"minimum": -values.INTEGER_MAX, "maximum": values.INTEGER_MAX} | moved
        reference = members.get("$ref", "")
        is_inner = isinstance(reference, str) and reference.startswith("#")  # a member may have this name too
        return moved | {"$ref": base + reference[1:]} if is_inner else moved
    if isinstance(schema, list):
        return [_moved(below, base) for below in cast("list[Any]", schema)]
    return schema


def _input_name(kind: Kind) -> str:
    return f"Input.{_safe(kind.name)}"


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name)


# Operations


def _operation(route: Route, schemas: dict[str, Any], about: _About) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": f"{route.handle.__module__.rpartition('.')[2]}_{route.handle.__name__}",
        "tags": [route.tag],
        "summary": route.summary.rstrip("."),
        "description": f"{route.summary} {route.description}{_scope(route)}".strip(),
        "security": _security(route),
        "parameters": list(_parameters(route, about)),
        "responses": {**_answers(route, schemas), **_refusals(route, about)},
    }
    if route.body is not None:
        schema = _ref(route.body)
        made["requestBody"] = {
            "required": any(schemas[route.body.__name__].get(word) for word in ("required", "oneOf")),
            "content": {JSON.decode(): {"schema": schema, "example": sample(schema, schemas)}},
        }
    return made


def _scope(route: Route) -> str:
    if not route.who:
        return ""
    token = f", or a browser token that may {route.token}" if route.token else ""
    return f" Scope: {' or '.join(sorted(route.who))}{token}."


def _security(route: Route) -> list[dict[str, list[str]]]:
    if not route.who:
        return []
    if "fleet" in route.who:
        return [{"worker_token": []}]
    made: list[dict[str, list[str]]] = [{"key": []}]
    if "worker" in route.who and len(route.who) == 1:
        made.append({"fleet_secret": []})
    if route.token is not None:
        made.append({"token": []})
    return made


def _parameters(route: Route, about: _About) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", route.path):
        schema, text = about.parameters[name] if name in about.parameters else _path_parameter(route, name)
        yield {"name": name, "in": "path", "required": True, "description": text, "schema": schema}
    query = route.query or parameters.Query
    shape = msgspec.json.schema_components([query])[1][query.__name__]
    needed = shape.get("required", ())
    for name, schema in shape["properties"].items():
        yield {"name": name, "in": "query", "required": name in needed, **_query_parameter(schema)}
    sent = _SENT.get(f"{route.method} {route.path}", ())
    for name in dict.fromkeys((*sent, *route.request_headers)):
        text, schema = _PLACE if name == "Last-Event-ID" and name in sent else _REQUEST_HEADERS[name]
        if name in about.parameters:
            schema, text = about.parameters[name]
        yield {"name": name, "in": "header", "required": False, "description": text, "schema": schema}


def _path_parameter(route: Route, name: str) -> tuple[dict[str, Any], str]:
    if name == "id":
        return _IDS.get(route.tag, _IDS["jobs"])
    return _PATH.get(name, ({"type": "string"}, ""))  # a product need not describe its parameters


def _query_parameter(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without null: a parameter without a value is left out of the query."""
    kept = {name: value for name, value in schema.items() if value is not None}
    if "anyOf" in kept:
        (only,) = [below for below in kept.pop("anyOf") if below != {"type": "null"}]
        kept |= only
    text = kept.pop("description", "")
    return {"description": text, "schema": kept}


def _answers(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    return {str(status): _answer(route, status, shape, schemas) for status, shape in route.answers.items()}


def _answer(route: Route, status: int, shape: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    given = (*_GIVEN.get(shape, ()), *route.gives)
    made: dict[str, Any] = {"description": _meaning(status, shape), "headers": _headers(route, given)}
    if status in (204, 302, 304):  # responses without a body
        return made
    content: dict[str, Any] = {}
    for form in route.offers:
        if form == JSON:
            schema = _ref(shape) if _is_shape(shape) else {"type": "object"}
            content[form.decode()] = {"schema": schema, "example": sample(schema, schemas)}
        elif form == EVENT_STREAM:
            content[form.decode()] = {"itemSchema": _FRAME}
        else:
            content[form.decode()] = {"schema": {"type": "string"}}
    return made | {"content": content}


def _meaning(status: int, shape: Any) -> str:
    words = {201: "Created.", 202: "Accepted.", 304: "Not modified."}
    text = (getattr(shape, "__doc__", "") or "").partition("\n")[0] if _is_shape(shape) else ""
    return text or words.get(status, "Success.")


def _headers(route: Route, more: Iterable[str]) -> dict[str, Any]:
    names = ["Request-Id", *(["RateLimit", "RateLimit-Policy"] if route.who else []), *more]
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


# Refusals


def refusals(route: Route) -> list[type[MillpondError]]:
    """Every error of a route: its own, and those of the common checks."""
    found: list[type[MillpondError]] = [errors.MalformedError, errors.InvalidError, errors.NotAcceptableError]
    found += [errors.TooLargeError, errors.MethodNotAllowedError, errors.TooSlowError, errors.HeadTooLargeError]
    if route.who:
        found += [errors.UnauthorizedError, errors.ForbiddenError, errors.RateLimitedError, errors.UnavailableError]
    if route.body is not None:
        found += [errors.MediaTypeError]
    return [*found, *route.errors, errors.MillpondError]


def status_of(kind: type[MillpondError], product: Product | None = None) -> int:
    """The HTTP status of an error; a product may have its own."""
    return _example(kind, _NATIVE if product is None else product)[0]


def _refusals(route: Route, about: _About) -> dict[str, Any]:
    by_status: dict[int, list[type[MillpondError]]] = {}
    for kind in refusals(route):
        by_status.setdefault(_example(kind, about)[0], []).append(kind)
    return {
        str(status): {
            "description": " ".join(f"`{kind.code}`: {problems.title(kind)}." for kind in kinds),
            "headers": _headers(route, _REFUSAL_HEADERS.get(status, ())),
            "content": {
                about.refusal_form.decode(): {
                    "schema": _ref(about.refusal),
                    "examples": {kind.code: {"$ref": f"#/components/examples/{kind.code}"} for kind in kinds},
                }
            },
        }
        for status, kinds in sorted(by_status.items())
    }


_REFUSAL_HEADERS: Final = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}


def _example(kind: type[MillpondError], about: _About) -> tuple[int, Any]:
    error = kind(**({"allow": "GET"} if kind is errors.MethodNotAllowedError else {}))
    return about.refuse(error, problems.describe(error))


def _ref(shape: Any) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{shape.__name__}"}
