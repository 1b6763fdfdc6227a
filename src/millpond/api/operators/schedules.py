"""Schedules over HTTP: create, change, pause, run and backfill them; read what they did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from millpond import errors, ids, schedules, values, wire
from millpond.api import parameters, principals
from millpond.api.calls import REPLAYED, Reply, copied, cursor, job_text, reply
from millpond.api.jobs import submissions
from millpond.api.routes import Route
from millpond.api.scopes import OPERATORS, READERS
from millpond.engine.queue.schedules import LATE
from millpond.engine.reads import summaries
from millpond.schedules import Schedule, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from millpond.api.calls import Call
    from millpond.engine.queue.fires import FireRecord
    from millpond.engine.queue.schedules import ScheduleRecord

_UPCOMING: Final = 10
_LAST_FIRES: Final = 20
_DURATIONS: Final = ("every", "jitter", "expires_in")


async def make(call: Call) -> Reply:
    body: wire.MakeSchedule = call.body
    _check_open(call, body.kind)
    declared = Schedule(
        body.name,
        body.kind,
        _timing(body),
        tenant=principals.one_tenant(call, call.query.tenant),
        account=principals.one_account(call, body.account),
        input=body.input,
        due_field=body.due_field,
        overlap=body.overlap,
        catch_up=body.catch_up,
        catch_up_max=body.catch_up_max,
        priority=body.priority,
        expires_in=_duration(body.expires_in, "expires_in"),
        tags=body.tags or {},
    )
    key = submissions.header_key(call)
    made, is_replay = await call.engine.schedules.make(declared, actor=call.principal.actor, key=key)
    return reply(await _detail(call, made), 201, *([REPLAYED] if is_replay else ()))


async def preview(call: Call) -> Reply:
    upcoming = await call.engine.schedules.preview(_timing(call.body), call.body.count)
    return reply(wire.SchedulePreview(upcoming=upcoming))


async def list_schedules(call: Call) -> Reply:
    query = call.query
    found = await call.engine.schedules.list(
        tenant=principals.tenant(call, query.tenant),
        account=principals.account(call, query.account),
        kind=query.kind,
        name=query.name,
        source=query.source or None,
        state=query.state or None,
        after=cursor("sched", query.cursor),
        limit=query.limit,
    )
    last = await call.engine.fires.last([each.schedule_id for each in found])
    fires = dict(zip(last, await _fires(call, list(last.values())), strict=True))
    present = await call.engine.schedules.present()
    data = [_to_wire(each, present, fires.get(each.schedule_id)) for each in found]
    return reply(wire.Schedules(data=data, next_cursor=data[-1].id if len(data) == query.limit else None))


async def read(call: Call) -> Reply:
    return reply(await _detail(call, await _schedule(call)))


async def update(call: Call) -> Reply:
    body: wire.UpdateSchedule = call.body
    given = {name: getattr(body, name) for name in body.__struct_fields__}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not UNSET}
    for name in _DURATIONS:
        if name in changes:
            changes[name] = _duration(changes[name], name)
    if "jitter" in changes:
        changes["jitter"] = changes["jitter"] or schedules.NO_JITTER
    if "kind" in changes:
        _check_open(call, changes["kind"])
    if "account" in changes:
        changes["account"] = principals.one_account(call, changes["account"])
    updated = await call.engine.schedules.update(call.params["id"], changes, **_owner(call), actor=call.principal.actor)
    return reply(await _detail(call, updated))


async def delete(call: Call) -> Reply:
    await call.engine.schedules.delete(call.params["id"], **_owner(call), actor=call.principal.actor)
    return Reply(204)


async def pause(call: Call) -> Reply:
    paused = await call.engine.schedules.pause(call.params["id"], **_owner(call), actor=call.principal.actor)
    return reply(await _detail(call, paused))


async def resume(call: Call) -> Reply:
    resumed = await call.engine.schedules.resume(call.params["id"], **_owner(call), actor=call.principal.actor)
    return reply(await _detail(call, resumed))


async def run(call: Call) -> Reply:
    schedule = await _schedule(call)
    _check_open(call, schedule.declared.kind)
    key = submissions.header_key(call)
    fire, is_replay = await call.engine.fires.run(schedule, actor=call.principal.actor, key=key)
    (data,) = await _fires(call, [fire])
    return reply(data, 202, *([REPLAYED] if is_replay else ()))


async def backfill(call: Call) -> Reply:
    schedule = await _schedule(call)
    _check_open(call, schedule.declared.kind)
    done = await call.engine.fires.backfill(schedule, *await _period(call), actor=call.principal.actor)
    return reply(copied(wire.Backfilled, done), 202)


async def preview_backfill(call: Call) -> Reply:
    schedule = await _schedule(call)
    return reply(copied(wire.Backfilled, await call.engine.fires.preview_backfill(schedule, *await _period(call))))


async def _period(call: Call) -> tuple[datetime, datetime]:
    """The period of a backfill."""
    body: wire.BackfillSchedule = call.body
    present = await call.engine.schedules.present()
    since = summaries.point_in_time(body.since, present, field="since")
    return since, present if body.until is None else summaries.point_in_time(body.until, present, field="until")


async def list_fires(call: Call) -> Reply:
    query, schedule = call.query, await _schedule(call)
    found = await call.engine.fires.list(
        schedule, outcome=query.outcome or None, before=cursor("fire", query.cursor), limit=query.limit
    )
    data = await _fires(call, found)
    return reply(wire.Fires(data=data, next_cursor=data[-1].id if len(data) == query.limit else None))


def _owner(call: Call) -> dict[str, str | None]:
    """The tenant and the account that the schedule must be of; none if the key is for all."""
    return {"tenant": principals.tenant(call, call.query.tenant), "account": call.principal.account}


async def _schedule(call: Call) -> ScheduleRecord:
    """The schedule named in the path."""
    return await call.engine.schedules.read(call.params["id"], **_owner(call))


def _check_open(call: Call, kind: str) -> None:
    if (closed := submissions.refusal(call, kind)) is not None:
        raise closed


def _timing(body: wire.MakeSchedule | wire.PreviewSchedule) -> Timing:
    return Timing(
        body.cron,
        _duration(body.every, "every"),
        body.at,
        schedules.ZONE if body.zone is None else body.zone,
        _duration(body.jitter, "jitter") or schedules.NO_JITTER,
    )


def _duration(given: str | float | None, field: str) -> timedelta | None:
    return None if given is None else values.duration(given, field=field)


# Answers


async def _detail(call: Call, schedule: ScheduleRecord) -> wire.ScheduleDetail:
    present = await call.engine.schedules.present()
    fires = await _fires(call, await call.engine.fires.list(schedule, limit=_LAST_FIRES))
    return _to_wire(
        schedule,
        present,
        fires[0] if fires else None,
        wire.ScheduleDetail,
        input=schedule.declared.input,
        upcoming=schedule.declared.timing.upcoming(present, _UPCOMING),
        fires=fires,
    )


def _to_wire(
    schedule: ScheduleRecord,
    present: datetime,
    last_fire: wire.Fire | None,
    shape: Any = wire.ScheduleInfo,
    **more: Any,
) -> Any:
    declared, timing = schedule.declared, schedule.declared.timing
    return shape(
        id=schedule.id,
        name=declared.name,
        tenant=declared.tenant,
        account=declared.account,
        kind=declared.kind,
        cron=timing.cron,
        every_seconds=_seconds(timing.every),
        at=timing.at,
        zone=timing.zone,
        jitter_seconds=timing.jitter.total_seconds(),
        due_field=declared.due_field,
        overlap=declared.overlap,
        catch_up=declared.catch_up,
        catch_up_max=declared.catch_up_max,
        priority=declared.priority,
        expires_in_seconds=_seconds(declared.expires_in),
        tags=dict(declared.tags),
        source=schedule.source,
        state=schedule.state,
        due_at=schedule.due_at,
        next_at=schedule.next_at,
        is_overdue=schedule.next_at is not None and present - schedule.next_at > LATE,
        paused_at=schedule.paused_at,
        orphaned_at=schedule.orphaned_at,
        created_at=schedule.created_at,
        updated_at=schedule.updated_at,
        last_fire=last_fire,
        **more,
    )


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


async def _fires(call: Call, found: Sequence[FireRecord]) -> list[wire.Fire]:
    """Fires with the present states of their jobs."""
    jobs = await call.engine.fires.jobs(found)
    return [_fire(fire, jobs) for fire in found]


def _fire(fire: FireRecord, jobs: Any) -> wire.Fire:
    job = jobs.get(fire.job_id)
    return wire.Fire(
        id=fire.id,
        schedule_id=ids.text("sched", fire.schedule_id),
        due_at=fire.due_at,
        until=fire.until,
        times=fire.times,
        cause=fire.cause,
        outcome=fire.outcome,
        reason=fire.reason,
        message=fire.message,
        at=fire.at,
        actor=fire.actor,
        job_id=job_text(fire.job_id if fire.outcome == "submitted" else None),
        job_state=job and job.state,
        job_phase=job and job.phase,
        job_outcome=job and job.outcome,
        job_started_at=job and job.started_at,
        job_finished_at=job and job.finished_at,
    )


_SUBMIT: Final = (
    errors.UnknownKindError,
    errors.InputError,
    errors.InsufficientCreditsError,
    errors.TooManyActiveJobsError,
)

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/schedules",
        handle=make,
        summary="Create a schedule, which submits jobs at its due times.",
        description="It is due at the matches of a cron expression in a time zone, at intervals counted from its "
        "creation, or once. The kind, the input and the timing are checked now; a job is charged when it is "
        "submitted. Requests with the same Idempotency-Key create one schedule.",
        who=OPERATORS,
        request_headers=submissions.IDEMPOTENCY_HEADERS,
        gives=("Idempotency-Replayed",),
        query=parameters.OfTenant,
        body=wire.MakeSchedule,
        answers={201: wire.ScheduleDetail},
        errors=(
            errors.UnknownKindError,
            errors.InputError,
            errors.AmountError,
            errors.ConflictError,
            errors.IdempotencyKeyError,
            errors.IdempotencyConflictError,
        ),
    ),
    Route(
        method="POST",
        path="/v1/schedules/preview",
        handle=preview,
        summary="Preview the next due times of a schedule without creating it.",
        who=READERS,
        body=wire.PreviewSchedule,
        answers={200: wire.SchedulePreview},
    ),
    Route(
        method="GET",
        path="/v1/schedules",
        handle=list_schedules,
        summary="List schedules, oldest first, each with its last fire.",
        who=READERS,
        query=parameters.ListSchedules,
        answers={200: wire.Schedules},
    ),
    Route(
        method="GET",
        path="/v1/schedules/{id}",
        handle=read,
        summary="Get a schedule with its input, its next ten due times and its last fires.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.ScheduleDetail},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="PATCH",
        path="/v1/schedules/{id}",
        handle=update,
        summary="Update a schedule; omitted fields are not changed.",
        description="If its timing changes, its next due time is counted from now. A schedule that is declared in the "
        "code of an app is changed there.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.UpdateSchedule,
        answers={200: wire.ScheduleDetail},
        errors=(
            errors.NotFoundError,
            errors.UnknownKindError,
            errors.InputError,
            errors.AmountError,
            errors.ConflictError,
        ),
    ),
    Route(
        method="DELETE",
        path="/v1/schedules/{id}",
        handle=delete,
        summary="Delete a schedule. Its jobs remain.",
        description="A schedule in the code of an app can be deleted once the app no longer declares it.",
        who=OPERATORS,
        query=parameters.OfTenant,
        answers={204: None},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/schedules/{id}/pause",
        handle=pause,
        summary="Pause a schedule. Due times that pass meanwhile are not made up for.",
        who=OPERATORS,
        query=parameters.OfTenant,
        answers={200: wire.ScheduleDetail},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/schedules/{id}/resume",
        handle=resume,
        summary="Resume a paused schedule with its next due time from now on.",
        who=OPERATORS,
        query=parameters.OfTenant,
        answers={200: wire.ScheduleDetail},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/schedules/{id}/run",
        handle=run,
        summary="Submit a job of a schedule now, whatever its due times and its state are.",
        description="If the job is refused, the response is the problem, and the fire is recorded as failed. Requests "
        "with the same Idempotency-Key submit one job.",
        who=OPERATORS,
        request_headers=submissions.IDEMPOTENCY_HEADERS,
        gives=("Idempotency-Replayed",),
        query=parameters.OfTenant,
        answers={202: wire.Fire},
        errors=(errors.NotFoundError, errors.ConflictError, errors.IdempotencyKeyError, *_SUBMIT),
    ),
    Route(
        method="POST",
        path="/v1/schedules/{id}/backfill",
        handle=backfill,
        summary="Fire the due times of a past period that have no job.",
        description="They were missed, skipped or refused. A period has at most 1,000 due times. The jobs are "
        "submitted in the background, and do not wait for each other.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.BackfillSchedule,
        answers={202: wire.Backfilled},
        errors=(errors.NotFoundError, errors.UnknownKindError),
    ),
    Route(
        method="POST",
        path="/v1/schedules/{id}/backfill/preview",
        handle=preview_backfill,
        summary="Count the due times that a backfill would fire, without firing them.",
        who=READERS,
        query=parameters.OfTenant,
        body=wire.BackfillSchedule,
        answers={200: wire.Backfilled},
        errors=(errors.NotFoundError, errors.UnknownKindError),
    ),
    Route(
        method="GET",
        path="/v1/schedules/{id}/fires",
        handle=list_fires,
        summary="List what a schedule did at its due times, the last one first.",
        who=READERS,
        query=parameters.ListFires,
        answers={200: wire.Fires},
        errors=(errors.NotFoundError,),
    ),
)
