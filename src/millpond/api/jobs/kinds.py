"""Kinds over HTTP: input schemas, prices and lifecycles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond import errors, wire
from millpond.api import parameters
from millpond.api.calls import Reply, reply
from millpond.api.routes import TEXT, Route
from millpond.api.scopes import ANY_KEY
from millpond.errors import NotFoundError

if TYPE_CHECKING:
    from datetime import timedelta

    from millpond.api.calls import Call
    from millpond.engine.reads.estimates import Durations
    from millpond.kinds import Kind
    from millpond.lifecycle import Lifecycle


async def list_kinds(call: Call) -> Reply:
    durations = await call.engine.estimates.durations()
    closed = call.query.closed
    kinds = sorted(
        (kind for kind in call.engine.app.kinds.values() if kind.is_open or closed), key=lambda kind: kind.name
    )
    return reply(wire.Kinds(data=[_to_wire(kind, durations.get(kind.name)) for kind in kinds]))


async def read(call: Call) -> Reply:
    kind = _named(call)
    durations = await call.engine.estimates.durations()
    return reply(_to_wire(kind, durations.get(kind.name)))


async def diagram(call: Call) -> Reply:
    text = _named(call).lifecycle.mermaid().encode()
    return Reply(200, text, [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-cache")])


def _named(call: Call) -> Kind:
    kind = call.engine.app.kinds.get(call.params["kind"])
    if kind is None:
        raise NotFoundError(f"There is no kind {call.params['kind'][:80]!r}.", field="kind")
    return kind


def _to_wire(kind: Kind, durations: Durations | None) -> wire.KindInfo:
    return wire.KindInfo(
        name=kind.name,
        summary=kind.summary,
        is_open=kind.is_open,
        price=kind.price if isinstance(kind.price, int) else "by input",
        budget=kind.budget,
        queue=kind.queue,
        priority=kind.priority,
        stages=list(kind.stages),
        firm_stages=list(kind.firm_stages),
        expires_in_seconds=_seconds(kind.expires_in),
        time_limit_seconds=_seconds(kind.time_limit),
        input_schema=kind.json_schema,
        lifecycle=lifecycle_to_wire(kind.lifecycle),
        durations=None
        if durations is None
        else wire.Durations(p50=durations.p50, p90=durations.p90, jobs=durations.jobs),
    )


def lifecycle_to_wire(drawn: Lifecycle) -> wire.LifecycleInfo:
    return wire.LifecycleInfo(
        name=drawn.name,
        states={state.name: state.phase for state in drawn.states.values()},
        ends={state.name: state.outcome for state in drawn.states.values() if state.outcome},
        transitions=[
            wire.Arrow(from_state=transition.source, event=transition.event, to_state=transition.target)
            for transition in drawn.transitions
        ],
        mermaid=drawn.mermaid(),
    )


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/kinds",
        handle=list_kinds,
        summary="List the kinds with their input schemas and prices.",
        who=ANY_KEY,
        query=parameters.ListKinds,
        answers={200: wire.Kinds},
    ),
    Route(
        method="GET",
        path="/v1/kinds/{kind}",
        handle=read,
        summary="Get a kind.",
        who=ANY_KEY,
        answers={200: wire.KindInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/kinds/{kind}/diagram",
        handle=diagram,
        summary="Get the lifecycle of a kind as a Mermaid diagram.",
        who=ANY_KEY,
        offers=(TEXT,),
        answers={200: None},
        errors=(errors.NotFoundError,),
    ),
)
