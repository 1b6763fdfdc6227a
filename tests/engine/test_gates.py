"""Gates: an input is looked at before it is paid for, an output before it is released; a fault lets nothing pass."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec
import psycopg
import pytest

from millpond import logs, values
from millpond.api.product import Product, register_gates
from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.engine.jobs.transactions import submit_in
from millpond.engine.queue import registry
from millpond.engine.verify import verify
from millpond.errors import (
    BlockedError,
    ContentBlockedError,
    GateMissingError,
    IdempotencyConflictError,
    InputError,
    InvalidError,
    LifecycleError,
    NotFoundError,
    TransitionDeniedError,
    UnavailableError,
)
from millpond.kinds import Kind
from millpond.lifecycle import lifecycle
from millpond.storage.local import Local
from millpond.work import End, Return
from millpond.worker.worker import Worker
from tests.checks import refused, snapshot
from tests.factories import ACCOUNT, OWNER, TENANT, Factory
from tests.gates import WordGate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from millpond.engine.jobs.artifacts import ArtifactRecord
    from millpond.engine.jobs.jobs import SubmitRequest
    from millpond.engine.queue.leases import Lease
    from millpond.store.db import Database
    from tests.clocks import Clock

HOUSE = WordGate({"bomb": "no bombs"}, {"codename": "inside"})
STERN = lifecycle(
    "stern",
    """
    * -> waiting submitted
    waiting -> working started
    waiting -> done succeeded
    waiting -> broken failed expired
    working -> waiting requeued
    working -> done succeeded
    working -> broken failed expired
    broken -> waiting retried
    """,
    ends="done=succeeded broken=failed",
)


class ScriptedGate:
    """A gate whose verdicts the test sets."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.error: Exception | None = None
        self.gives: Any = None

    async def inbound(self, tenant: str, given: Any) -> Any:
        return self._pass("inbound", tenant, given)

    async def outbound(self, tenant: str, given: Any) -> Any:
        return self._pass("outbound", tenant, given)

    def _pass(self, direction: str, tenant: str, given: Any) -> Any:
        self.asked.append((direction, tenant, given))
        if self.error is not None:
            raise self.error
        return given if self.gives is None else self.gives


def _app(scripted_gate: ScriptedGate) -> Millpond:
    app = Millpond()
    app.gate("house", HOUSE)
    app.gate("scripted", scripted_gate)

    @app.kind("ad", price=lambda given: len(given.prompt), gate="house")
    def ad(job: Any, prompt: str, tone: str = "dry") -> dict[str, Any]:
        return {"text": f"{prompt} ({tone})"}

    @app.kind("mood", price=5, gate="scripted", runs="fleet")
    def mood(job: Any, **given: Any) -> None: ...

    @app.kind("bad", price=5, gate="nowhere")
    def bad(job: Any, **given: Any) -> None: ...

    @app.kind("stern", price=5, gate="scripted", lifecycle=STERN)
    def stern(job: Any, **given: Any) -> None: ...

    @app.kind("open")
    def free(job: Any, **given: Any) -> None: ...

    return app


@pytest.fixture
def scripted_gate() -> ScriptedGate:
    return ScriptedGate()


@pytest.fixture
async def engine(db: Database, scripted_gate: ScriptedGate) -> AsyncIterator[Engine]:
    app = _app(scripted_gate)
    await registry.register(db, app.kinds.values())
    made = Engine(db, app)
    await made.grant(TENANT, ACCOUNT, 1_000)
    yield made
    assert await verify(db) == []


@pytest.fixture
def make(engine: Engine, clock: Clock) -> Factory:
    return Factory(engine, clock)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", as_json=True, stream=stream)
    yield stream
    logs.silence()


async def _balance(engine: Engine) -> tuple[int, int]:
    balance = await engine.balance(TENANT, ACCOUNT)
    return balance.available, balance.held


# What goes in


async def test_a_blocked_input_is_reported_with_its_verdicts_and_nothing_is_written(
    db: Database, engine: Engine
) -> None:
    async with refused(db, ContentBlockedError, field="input") as caught:
        await engine.submit("ad", {"prompt": "make a bomb now"}, **OWNER, idempotency_key="k")
    error = caught.value
    assert (error.status, error.code, error.field) == (422, "content_blocked", "input")
    (verdict,) = error.details["verdicts"]
    assert verdict == {"name": "no bombs", "field": "input.prompt"}
    assert not (await engine.submit("ad", {"prompt": "a hat"}, **OWNER, idempotency_key="k")).is_replay


async def test_a_redacted_input_is_what_is_stored_and_paid_for(db: Database, engine: Engine, make: Factory) -> None:
    given = {"prompt": "for ann@example.com", "tone": "dry"}
    submitted = await engine.submit("ad", given, **OWNER, idempotency_key="k")
    job = await make.read(submitted.job_id)
    assert job.input == {"prompt": "for [EMAIL]", "tone": "dry"}
    assert (job.price, await _balance(engine)) == (len("for [EMAIL]"), (1_000 - 11, 11))
    assert "ann@example.com" not in str(await snapshot(db)), "nor does it stay beside the key"


async def test_what_the_rules_do_not_touch_is_stored_as_it_came(engine: Engine, make: Factory) -> None:
    submitted = await engine.submit("ad", {"prompt": "in the rain"}, **OWNER)
    assert (await make.read(submitted.job_id)).input == {"prompt": "in the rain"}


async def test_of_many_each_passes_by_itself(engine: Engine, make: Factory) -> None:
    requests: list[SubmitRequest] = [
        {"kind": "ad", "input": {"prompt": text}, **OWNER, "idempotency_key": f"k{n}"}
        for n, text in enumerate(["a hat", "a bomb", "to bob@example.com", "a cat"])
    ]
    requests.append({"kind": "open", "input": {"x": "bomb"}, **OWNER})
    requests.append({"kind": "bad", "input": {}, **OWNER})
    first, blocked, mailed, last, free, bad = await engine.submit_many(requests)
    assert isinstance(blocked, ContentBlockedError)
    assert isinstance(bad, GateMissingError)
    stored = [(await make.read(it.job_id)).input for it in (first, mailed, last, free) if not isinstance(it, Exception)]
    assert stored == [{"prompt": "a hat"}, {"prompt": "to [EMAIL]"}, {"prompt": "a cat"}, {"x": "bomb"}]
    again = await engine.submit_many(requests[:3])
    assert [isinstance(it, Exception) or it.is_replay for it in again] == [True, True, True]
    assert isinstance(again[1], ContentBlockedError)


async def test_in_a_transaction_of_the_caller_the_gate_is_asked_too(engine: Engine, dsn: str, make: Factory) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            with pytest.raises(ContentBlockedError):
                await engine.submit("ad", {"prompt": "bomb"}, **OWNER, tx=connection)
            submitted = await engine.submit("ad", {"prompt": "to ann@example.com"}, **OWNER, tx=connection)
    finally:
        await connection.close()
    assert (await make.read(submitted.job_id)).input == {"prompt": "to [EMAIL]"}


async def test_who_cannot_ask_a_gate_cannot_submit(engine: Engine, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        with pytest.raises(InvalidError) as caught:
            submit_in(connection, engine.app, "ad", {"prompt": "x"}, **OWNER)
        assert caught.value.field == "kind"
        with pytest.raises(psycopg.Error) as raised:
            connection.execute("select millpond.submit('mood', '{}', %s, %s)", (TENANT, ACCOUNT))
        assert (raised.value.sqlstate, raised.value.diag.column_name) == ("PS101", "kind")


async def test_a_gate_that_is_not_there_is_a_precise_refusal(db: Database, engine: Engine, log: io.StringIO) -> None:
    async with refused(db, GateMissingError, field="kind") as caught:
        await engine.submit("bad", {}, **OWNER)
    assert (caught.value.status, caught.value.code, caught.value.field) == (503, "gate_missing", "kind")
    assert "'nowhere'" in caught.value.message
    engine.gates.report(engine.app.kinds.values())
    (line,) = [msgspec.json.decode(line) for line in log.getvalue().splitlines()]
    assert (line["event"], line["type"], line["gate"]) == ("gate.missing", "bad", "nowhere")


async def test_a_gate_that_fails_lets_nothing_in(
    db: Database, engine: Engine, scripted_gate: ScriptedGate, log: io.StringIO
) -> None:
    scripted_gate.error = RuntimeError("cannot bear ann@example.com")
    async with refused(db, UnavailableError) as caught:
        await engine.submit("mood", {}, **OWNER)
    assert caught.value.retryable
    assert "gate.failed" in log.getvalue()
    assert "ann@example.com" not in log.getvalue() + str(caught.value)


async def test_an_input_that_no_longer_fits_is_refused(db: Database, engine: Engine) -> None:
    async with refused(db, InputError, field="input.ann@example.com"):
        await engine.submit("ad", {"prompt": "x", "ann@example.com": "y"}, **OWNER)


# The same again


async def test_a_replay_is_answered_as_before_whatever_the_rules_say_today(
    engine: Engine, scripted_gate: ScriptedGate
) -> None:
    first = await engine.submit("mood", {"a": 1, "b": [1.0]}, **OWNER, idempotency_key="k")
    scripted_gate.error = BlockedError(verdicts=[])
    asked = len(scripted_gate.asked)
    again = await engine.submit("mood", {"b": [1], "a": 1.0}, **OWNER, idempotency_key="k")
    assert (again.job_id, again.is_replay, again.price) == (first.job_id, True, first.price)
    assert len(scripted_gate.asked) == asked, "it was not even asked"
    with pytest.raises(IdempotencyConflictError):
        await engine.submit("mood", {"a": 2}, **OWNER, idempotency_key="k")
    with pytest.raises(ContentBlockedError):
        await engine.submit("mood", {"a": 2}, **OWNER, idempotency_key="other")


async def test_a_replay_is_the_same_request_though_it_would_be_redacted_otherwise(
    engine: Engine, scripted_gate: ScriptedGate
) -> None:
    scripted_gate.gives = {"a": "[ONE]"}
    first = await engine.submit("mood", {"a": "x"}, **OWNER, idempotency_key="k")
    scripted_gate.gives = {"a": "[TWO]"}
    assert (await engine.submit("mood", {"a": "x"}, **OWNER, idempotency_key="k")).job_id == first.job_id
    with pytest.raises(IdempotencyConflictError):
        await engine.submit("mood", {"a": "[ONE]"}, **OWNER, idempotency_key="k")


async def test_who_asks_first_learns_of_a_key_that_a_gate_let_pass(engine: Engine) -> None:
    asked = {"prompt": "a hat, ask ann@example.com"}
    first = await engine.submit("ad", asked, **OWNER, idempotency_key="k")
    known = await engine.replay("ad", asked, **OWNER, idempotency_key="k")
    assert known is not None
    assert (known.job_id, known.is_replay) == (first.job_id, True)
    with pytest.raises(IdempotencyConflictError):
        await engine.replay("ad", {"prompt": "a coat"}, **OWNER, idempotency_key="k")


async def test_a_key_from_before_the_gate_is_still_good(engine: Engine, scripted_gate: ScriptedGate) -> None:
    kind = engine.app.kinds["mood"]
    object.__setattr__(kind, "gate", None)
    first = await engine.submit("mood", {"a": 1}, **OWNER, idempotency_key="k")
    object.__setattr__(kind, "gate", "scripted")
    scripted_gate.error = BlockedError()
    assert (await engine.submit("mood", {"a": 1}, **OWNER, idempotency_key="k")).job_id == first.job_id
    with pytest.raises(IdempotencyConflictError):
        await engine.submit("mood", {"a": 2}, **OWNER, idempotency_key="k")


async def test_tags_are_part_of_what_a_key_stands_for_behind_a_gate_too(engine: Engine) -> None:
    async def submit(tags: dict[str, str] | None) -> bool:
        made = await engine.submit("mood", {"a": 1}, **OWNER, tags=tags, idempotency_key="k")
        return made.is_replay

    assert [await submit({"team": "ads", "env": "x"}), await submit({"env": "x", "team": "ads"})] == [False, True]
    for other in ({"team": "ads"}, None):
        with pytest.raises(IdempotencyConflictError):
            await submit(other)


async def test_two_at_once_with_one_key_are_one_job(engine: Engine) -> None:
    import asyncio  # noqa: PLC0415 - here alone

    answers = await asyncio.gather(
        *(engine.submit("ad", {"prompt": "to ann@example.com"}, **OWNER, idempotency_key="k") for _ in range(5))
    )
    assert len({answer.job_id for answer in answers}) == 1


# What comes out


async def _finish(engine: Engine, make: Factory, kind: str, output: Any, given: Any = None) -> Any:
    await engine.submit(kind, {"prompt": "hello"} if kind == "ad" else given, **OWNER)
    (lease,) = await make.claimed(kind)
    state = await engine.finish(End(lease, "succeeded", values.encode(output, field="output")))
    job = await make.read(lease.job_id)
    assert job.state == state
    return job


async def test_a_good_output_is_released_and_captured(engine: Engine, make: Factory) -> None:
    job = await _finish(engine, make, "ad", {"text": "A fine hat."})
    assert (job.outcome, job.output, job.captured) == ("succeeded", {"text": "A fine hat."}, 5)


async def test_a_redacted_output_is_what_is_stored(engine: Engine, make: Factory) -> None:
    job = await _finish(engine, make, "ad", {"text": "Ask ann@example.com.", "n": 3})
    assert (job.outcome, job.output, job.captured) == ("succeeded", {"text": "Ask [EMAIL].", "n": 3}, 5)


async def test_a_blocked_output_ends_the_job_blocked_and_releases_the_hold(engine: Engine, make: Factory) -> None:
    job = await _finish(engine, make, "ad", {"text": "The codename is Falcon."})
    assert (job.state, job.outcome, job.output, job.captured) == ("blocked", "blocked", None, 0)
    assert job.error["code"] == "blocked"
    (verdict,) = job.error["verdicts"]
    assert verdict == {"name": "inside", "field": "output.text"}
    assert "codename" not in str(job.error)
    assert await _balance(engine) == (1_000, 0), "what is not released is not charged"
    assert "Falcon" not in str(await engine.events(TENANT, job.job_id))


async def test_a_gate_that_fails_lets_nothing_out(
    engine: Engine, make: Factory, scripted_gate: ScriptedGate, log: io.StringIO
) -> None:
    await engine.submit("mood", {}, **OWNER)
    (lease,) = await make.claimed("mood")
    scripted_gate.error = ValueError("cannot bear a codename")
    assert await engine.finish(End(lease, "succeeded", '{"text":"codename"}')) == "blocked"
    job = await make.read(lease.job_id)
    assert (job.output, job.error["code"], job.error["reason"]) == (None, "blocked", "gate_failed")
    assert await _balance(engine) == (1_000, 0)
    assert "codename" not in log.getvalue()


async def test_a_gate_that_is_gone_lets_nothing_out(engine: Engine, make: Factory) -> None:
    await engine.submit("mood", {}, **OWNER)
    (lease,) = await make.claimed("mood")
    del engine.gates["scripted"]
    assert await engine.finish(End(lease, "succeeded", "{}")) == "blocked"


async def test_a_database_that_is_away_is_no_verdict(
    engine: Engine, make: Factory, scripted_gate: ScriptedGate
) -> None:
    await engine.submit("mood", {}, **OWNER)
    (lease,) = await make.claimed("mood")
    scripted_gate.error = UnavailableError()
    with pytest.raises(UnavailableError):
        await engine.finish(End(lease, "succeeded", "{}"))
    scripted_gate.error = None
    assert await engine.finish(End(lease, "succeeded", "{}")) == "succeeded"


async def test_a_lifecycle_without_a_blocked_end_fails_instead(
    engine: Engine, make: Factory, scripted_gate: ScriptedGate
) -> None:
    await engine.submit("stern", {}, **OWNER)
    (lease,) = await make.claimed("stern")
    scripted_gate.error = BlockedError("No.", verdicts=[{"name": "x"}])
    assert await engine.finish(End(lease, "succeeded", "{}")) == "broken"
    job = await make.read(lease.job_id)
    assert (job.error["code"], job.error["verdicts"], job.captured) == ("blocked", [{"name": "x"}], 0)


@pytest.mark.parametrize("outcome", ["failed", "blocked", "canceled"])
async def test_what_must_not_go_out_does_not_go_out_as_an_error(engine: Engine, make: Factory, outcome: Any) -> None:
    """Whoever writes the code of a job could otherwise fail, and say there what his output must not say."""
    reported = []
    for message in ("It broke.", "The codename is Heron.", "Ask ann@example.com.", "Heron"):
        lease = await leased(engine, make)
        details = {"codename": "Heron"} if message == "Heron" else {"size": 3}
        await engine.finish(End(lease, outcome, error={"code": "blocked", "message": message, **details}))
        job = await make.read(lease.job_id)
        assert job.outcome == outcome
        reported.append(job.error)
    withheld = {"code": "blocked", "message": reported[1]["message"], "reason": "withheld"}
    assert reported[0] == {"code": "blocked", "message": "It broke.", "size": 3}
    assert (reported[1], reported[3]) == (withheld, withheld)
    assert reported[2]["message"] == "Ask [EMAIL]."
    assert "Heron" not in str(reported)


async def test_nor_does_it_as_the_error_of_an_attempt(engine: Engine, make: Factory) -> None:
    lease = await leased(engine, make)
    error = {"code": "the codename", "message": "The codename is Heron."}
    assert await engine.give_back(Return(lease, "attempt", error)) == "requeued"
    job = await make.read(lease.job_id)
    events = await engine.events(TENANT, lease.job_id)
    assert job.error["code"] == "handler_failed"
    assert "Heron" not in str(job) + str(events)
    assert "codename" not in str(job) + str(events)


async def test_an_error_that_cannot_be_checked_reveals_nothing(
    engine: Engine, make: Factory, scripted_gate: ScriptedGate
) -> None:
    error = {"code": "boom", "message": "It broke."}
    for mood, gives in ((RuntimeError("x"), None), (BlockedError("x"), None), (None, "no error at all")):
        scripted_gate.error, scripted_gate.gives = None, None
        await engine.submit("mood", {}, **OWNER)
        (lease,) = await make.claimed("mood")
        scripted_gate.error, scripted_gate.gives = mood, gives
        assert await engine.finish(End(lease, "failed", error=error)) == "failed"
        assert "broke" not in str(await make.read(lease.job_id))
    scripted_gate.error, scripted_gate.gives = None, None
    await engine.submit("mood", {}, **OWNER)
    (lease,) = await make.claimed("mood")
    scripted_gate.error = UnavailableError()
    with pytest.raises(UnavailableError):
        await engine.finish(End(lease, "failed", error=error))
    assert (await make.read(lease.job_id)).phase == "leased"
    scripted_gate.error = None
    await engine.finish(End(lease, "failed", error=error))
    assert (await make.read(lease.job_id)).error == error


async def test_what_is_blocked_hands_over_no_files(
    engine: Engine, make: Factory, scripted_gate: ScriptedGate, tmp_path: Path
) -> None:
    """By a gate, by the code of the job, and by either where the lifecycle calls that a failure; swept at once."""
    engine = Engine(engine.db, engine.app, storage=Local(tmp_path))
    ways: list[tuple[str, Any, BlockedError | None]] = [
        ("mood", "succeeded", BlockedError("no")),
        ("mood", "blocked", None),
        ("stern", "succeeded", BlockedError("no")),
        ("stern", "blocked", None),
    ]
    for kind, outcome, mood in ways:
        scripted_gate.error = None
        submitted = await engine.submit(kind, {}, **OWNER)
        (lease,) = await make.claimed(kind)
        given = await _saved(engine, lease, None)
        made = await _saved(engine, lease, lease.epoch)
        assert len(await engine.artifacts.of_job(TENANT, submitted.job_id)) == 2
        scripted_gate.error = mood
        error = None if mood else {"code": "blocked", "message": "no"}
        end = End(lease, outcome, None if error else "{}", error)
        try:
            await engine.finish(end)
        except TransitionDeniedError as denied:
            await engine.finish(End(lease, "failed", error=denied.as_dict()))
        scripted_gate.error = None
        assert [file.id for file in await engine.artifacts.of_job(TENANT, submitted.job_id)] == [given.id]
        assert (await engine.artifacts.read(TENANT, given.id)).id == given.id
        with pytest.raises(NotFoundError):
            await engine.artifacts.read(TENANT, made.id)
        if kind == "stern" and mood:  # and they do not come back with the next run
            await engine.retry(TENANT, submitted.job_id)
            with pytest.raises(NotFoundError):
                await engine.artifacts.read(TENANT, made.id)
        await engine.artifacts.sweep()
        assert await engine.artifacts.store.head(made.path) is None
        assert await engine.artifacts.store.head(given.path) is not None
        if kind == "stern" and mood:
            (lease,) = await make.claimed(kind)
            await engine.finish(End(lease, "succeeded", "{}"))


async def test_a_failure_shows_its_files_as_before(engine: Engine, make: Factory, tmp_path: Path) -> None:
    engine = Engine(engine.db, engine.app, storage=Local(tmp_path))
    submitted = await engine.submit("open", {}, **OWNER)
    (lease,) = await make.claimed("open")
    made = await _saved(engine, lease, lease.epoch)
    await engine.finish(End(lease, "failed", error={"code": "boom", "message": "It broke."}))
    assert [file.id for file in await engine.artifacts.of_job(TENANT, submitted.job_id)] == [made.id]


async def _saved(engine: Engine, lease: Lease, epoch: int | None) -> ArtifactRecord:
    return await engine.artifacts.save(
        TENANT, ACCOUNT, name="a.txt", content_type="text/plain", data=b"a", job_id=lease.job_id, epoch=epoch
    )


async def leased(engine: Engine, make: Factory) -> Lease:
    await engine.submit("ad", {"prompt": "a hat"}, **OWNER)
    (lease,) = await make.claimed("ad")
    return lease


async def test_a_gate_knows_whose_job_it_is(engine: Engine, make: Factory, scripted_gate: ScriptedGate) -> None:
    await engine.submit("mood", {"a": 1}, **OWNER)
    (lease,) = await make.claimed("mood")
    await engine.finish(End(lease, "succeeded", '{"b":2}'))
    assert scripted_gate.asked == [("inbound", TENANT, {"a": 1}), ("outbound", TENANT, {"b": 2})]


async def test_an_engine_that_lacks_the_kind_asks_its_gate_all_the_same(
    engine: Engine, db: Database, make: Factory, scripted_gate: ScriptedGate
) -> None:
    await engine.submit("mood", {}, **OWNER)
    (lease,) = await make.claimed("mood")
    stranger = Engine(db, Millpond())
    assert await stranger.finish(End(lease, "succeeded", "{}")) == "blocked"


async def test_a_worker_beside_the_database_goes_through_the_gate(engine: Engine, make: Factory) -> None:
    submitted = await engine.submit("ad", {"prompt": "our codename", "tone": "x"}, **OWNER)
    fine = await engine.submit("ad", {"prompt": "our hat"}, **OWNER)
    await Worker(engine.source(), engine.app).drain()
    assert (await make.read(submitted.job_id)).outcome == "blocked"
    assert (await make.read(fine.job_id)).output == {"text": "our hat (dry)"}


# Once more


async def test_a_retry_is_asked_for_again(engine: Engine, make: Factory, scripted_gate: ScriptedGate) -> None:
    await engine.submit("mood", {"a": 1}, **OWNER)
    (lease,) = await make.claimed("mood")
    await engine.finish(End(lease, "failed", error={"code": "boom", "message": "It broke."}))
    scripted_gate.error = BlockedError(verdicts=[])
    with pytest.raises(ContentBlockedError):
        await engine.retry(TENANT, lease.job_id)
    scripted_gate.error = None
    assert (await engine.retry(TENANT, lease.job_id)).job_id != lease.job_id


async def test_a_retry_in_place_cannot_change_what_is_stored(
    engine: Engine, make: Factory, scripted_gate: ScriptedGate
) -> None:
    await engine.submit("stern", {"a": "x"}, **OWNER)
    (lease,) = await make.claimed("stern")
    await engine.finish(End(lease, "failed", error={"code": "boom", "message": "It broke."}))
    scripted_gate.gives = {"a": "[X]"}
    with pytest.raises(ContentBlockedError):
        await engine.retry(TENANT, lease.job_id)
    scripted_gate.gives = None
    assert (await engine.retry(TENANT, lease.job_id)).job_id == lease.job_id


# Declaring


def test_a_gate_is_declared_once() -> None:
    app = Millpond()
    app.gate("house", HOUSE)
    with pytest.raises(LifecycleError):
        app.gate("house", HOUSE)


async def test_a_product_hangs_its_gates(engine: Engine, scripted_gate: ScriptedGate) -> None:
    product = Product(
        lifecycle=STERN,
        kinds=(Kind(name="x"),),
        title="X",
        gates=lambda _: {"nowhere": scripted_gate, "house": scripted_gate},
    )
    register_gates(engine, [product])
    await engine.submit("bad", {}, **OWNER)
    assert engine.gates["house"] is HOUSE, "what the app declares stays"
