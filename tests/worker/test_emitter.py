"""Text that handlers emit: written in order and once, soon but not piece by piece, and all of it before the end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from millpond import BlockedError, Millpond, Worker
from millpond.engine.engine import Engine
from millpond.engine.queue import registry
from millpond.errors import CanceledError, InvalidError, LeaseLostError, UnavailableError
from millpond.work import CHUNK_MAX, TEXT_MAX, Chunk
from millpond.worker import RemoteSource, emitter
from millpond.worker.emitter import Emitter, TextBuffer
from tests.checks import until
from tests.doubles.fleet import FleetDouble
from tests.engine.test_chunks import stored
from tests.factories import OWNER, TENANT
from tests.gates import WordGate
from tests.waiting import PATIENCE
from tests.worker.test_remote import came, double, working
from tests.worker.test_tracebacks import serving
from tests.worker.test_worker import SOON, opened, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millpond import Job
    from millpond.store.db import Database

__all__ = ["double"]  # a fixture

WORDS = [f"word {number} " for number in range(400)]


@pytest.fixture
def app() -> Millpond:
    return Millpond()


def joined(found: list[tuple[Any, ...]]) -> str:
    return "".join(text for *_, text in found)


# Handlers


async def test_what_a_handler_emits_is_written_before_its_end(db: Database, app: Millpond, tmp_path: Path) -> None:
    @app.kind("talkative")
    async def talkative(job: Job) -> int:
        for word in WORDS:
            await job.emit(word)
            await asyncio.sleep(0)
        return len(WORDS)

    async with opened(db, app, tmp_path) as engine:
        job = await run(engine, "talkative")
        assert (job.outcome, job.output) == ("succeeded", 400)
        found = await stored(db, job.job_id)
    assert joined(found) == "".join(WORDS)
    assert [number for _, number, *_ in found] == list(range(1, len(found) + 1))
    assert found[0][3] == WORDS[0]  # the first piece does not wait for others
    assert len(found) < 100


async def test_the_last_text_does_not_wait_for_the_next_write(
    db: Database, app: Millpond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emitter, "GAP", 3600.0)

    @app.kind("brief")
    async def brief(job: Job) -> None:
        for word in WORDS:
            await job.emit(word)

    async with opened(db, app, tmp_path) as engine:
        job = await run(engine, "brief")
        assert [text for *_, text in await stored(db, job.job_id)] == [WORDS[0], "".join(WORDS[1:])]


async def test_text_is_not_written_when_its_handler_has_blocked_it(
    db: Database, app: Millpond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emitter, "GAP", 3600.0)

    @app.kind("strict")
    async def strict(job: Job) -> None:
        await job.emit("first ")
        await job.emit("second")
        raise BlockedError("Not this.")

    async with opened(db, app, tmp_path) as engine:
        job = await run(engine, "strict")
        assert job.outcome == "blocked"
        assert joined(await stored(db, job.job_id)) == "first "


async def test_a_plain_handler_emits_from_its_thread(db: Database, app: Millpond, tmp_path: Path) -> None:
    @app.kind("plain")
    def plain(job: Job) -> str:
        for word in WORDS:
            job.emit(word)
        return threading.current_thread().name

    async with opened(db, app, tmp_path) as engine:
        job = await run(engine, "plain")
        assert job.output.startswith("millpond job_")
        assert joined(await stored(db, job.job_id)) == "".join(WORDS)


async def test_a_handler_that_awaits_nothing_else_is_followed_while_it_runs(
    db: Database, app: Millpond, tmp_path: Path
) -> None:
    """Awaiting what emits lets the worker write, even if the handler occupies the event loop otherwise."""
    written = asyncio.Event()

    class Watched(Engine):
        async def emit(self, *groups: Sequence[Chunk]) -> list[bool | Exception]:
            results = await super().emit(*groups)
            if max(chunk.number for group in groups for chunk in group) > 1:
                written.set()
            return results

    @app.kind("busy")
    async def busy(job: Job) -> None:
        while not written.is_set():
            await job.emit(".")

    await registry.register(db, app.kinds.values())
    job = await run(Watched(db, app), "busy")
    assert job.outcome == "succeeded"


async def test_a_job_that_emits_too_much_fails_precisely(db: Database, app: Millpond, tmp_path: Path) -> None:
    @app.kind("endless")
    async def endless(job: Job) -> None:
        while True:
            await job.emit("x" * 100_000)

    async with opened(db, app, tmp_path) as engine:
        job = await run(engine, "endless")
        assert job.outcome == "failed"
        assert job.error == {
            "code": "invalid",
            "field": "text",
            "message": "An attempt may emit at most 1,048,576 bytes of text.",
        }
        found = await stored(db, job.job_id)
    assert joined(found) == "x" * 1_000_000
    assert max(len(text) for *_, text in found) == CHUNK_MAX


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "must be a text, not int"),
        (b"bytes", "must be a text, not bytes"),
        ("a\0b", "NUL character"),
        ("\ud800", "lone surrogate"),
    ],
    ids=["number", "bytes", "nul", "surrogate"],
)
async def test_what_is_no_text_is_refused(
    db: Database, app: Millpond, tmp_path: Path, given: Any, message: str
) -> None:
    @app.kind("odd")
    async def odd(job: Job) -> None:
        await job.emit("good")
        await job.emit("")
        await job.emit(given)

    async with opened(db, app, tmp_path) as engine:
        job = await run(engine, "odd")
        assert (job.outcome, job.error["code"], job.error["field"]) == ("failed", "invalid_input", "text")
        assert message in job.error["message"]
        assert joined(await stored(db, job.job_id)) == "good"


@pytest.mark.parametrize("knows", ["its kind", "another kind"])
async def test_a_kind_with_a_gate_refuses_the_first_piece(
    db: Database, app: Millpond, tmp_path: Path, knows: str
) -> None:
    async def leaky(job: Job, *_: Any) -> None:
        await job.emit("se")
        await job.emit("cret")

    app.gate("words", WordGate({}, {"secret": "no secrets"}))
    app.kind("leaky", gate="words")(leaky)
    async with opened(db, app, tmp_path) as engine:
        submitted = await engine.submit("leaky", {}, **OWNER)
        source = engine.source()
        if knows == "its kind":
            await Worker(source, app).drain()
        else:
            other = Millpond()
            other.kind("other", queue="leaky")(leaky)
            await Worker(source, other, fallback=leaky).drain()
        job = await engine.read(TENANT, submitted.job_id)
        assert (job.outcome, job.error["field"]) == ("failed", "text")
        assert "cannot emit text, because the kind has a gate" in job.error["message"]
        assert await stored(db, job.job_id) == []


async def test_a_cancel_is_noticed_by_what_emits(db: Database, app: Millpond, tmp_path: Path) -> None:
    begun = asyncio.Event()

    @app.kind("long")
    async def long(job: Job) -> None:
        while True:
            await job.emit("tick ")
            begun.set()
            await asyncio.sleep(0.001)

    async with opened(db, app, tmp_path) as engine:
        submitted = await engine.submit("long", {}, **OWNER)
        working = asyncio.create_task(Worker(engine.source(), app).drain())
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
            await engine.cancel(TENANT, submitted.job_id)
            await working
        assert (await engine.read(TENANT, submitted.job_id)).outcome == "canceled"


async def test_a_second_attempt_begins_with_number_one(db: Database, app: Millpond, tmp_path: Path) -> None:
    @app.kind("unsteady", **SOON)
    async def unsteady(job: Job) -> None:
        await job.emit(f"attempt {job.attempt}")
        if job.attempt == 1:
            await job.emit(", and then")
            raise RuntimeError

    async with opened(db, app, tmp_path) as engine:
        job = await run(engine, "unsteady")
        assert job.outcome == "succeeded"
        assert [(number, epoch, text) for _, number, epoch, text in await stored(db, job.job_id)] == [
            (1, 2, "attempt 2")
        ]


# The order of writes, whatever becomes of them


class Scripted:
    """A source that answers as it is told, and stores what it was asked to write, once per number."""

    def __init__(self, answers: Sequence[Any] = ()) -> None:
        self.answers = list(answers)
        self.asked: list[list[tuple[int, str]]] = []
        self.written: dict[int, str] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def emit(self, *groups: Sequence[Chunk]) -> list[bool | Exception]:
        (group,) = groups
        self.asked.append([(chunk.number, chunk.text) for chunk in group])
        await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else False
        if isinstance(answer, str):  # it is written, but the answer is lost
            self._write(group)
            raise UnavailableError(answer)
        if isinstance(answer, Exception):
            if isinstance(answer, UnavailableError):
                raise answer
            return [answer]
        self._write(group)
        return [answer]

    def _write(self, group: Sequence[Chunk]) -> None:
        for chunk in group:
            assert self.written.setdefault(chunk.number, chunk.text) == chunk.text

    @property
    def text(self) -> str:
        assert list(self.written) == list(range(1, len(self.written) + 1))
        return "".join(self.written.values())


class Emitting:
    """A job as far as its emitter knows it."""

    def __init__(self, source: Scripted) -> None:
        self.reason: Exception | None = None
        self.emitter = Emitter(source)  # type: ignore[arg-type]
        lease: Any = None
        self.buffer = TextBuffer(lease, self.stop, lambda: self.reason)

    def stop(self, reason: Exception) -> None:
        self.reason = reason

    async def emit(self, text: str) -> None:
        if (written := self.emitter.add(self.buffer, text, len(text.encode()))) is not None:
            async with asyncio.timeout(PATIENCE):
                await written

    async def flush(self) -> None:
        if (written := self.emitter.flush(self.buffer)) is not None:
            async with asyncio.timeout(PATIENCE):
                await written


async def test_what_is_emitted_while_a_write_runs_is_written_together_afterwards() -> None:
    source = Scripted()
    job = Emitting(source)
    await job.emit("first")
    source.gate.clear()
    await job.emit("a")
    flushing = asyncio.create_task(job.flush())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for letter in "bcdef":
        await job.emit(letter)
    source.gate.set()
    await flushing
    await job.flush()
    assert source.asked == [[(1, "first")], [(2, "a")], [(3, "bcdef")]]


@pytest.mark.parametrize("answer", [UnavailableError(), "written"], ids=["not written", "written"])
async def test_a_chunk_whose_answer_was_lost_is_sent_again_as_it_was(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(emitter, "_BACKOFF", SOON["backoff"])
    source = Scripted([False, answer, answer, False])
    job = Emitting(source)
    await job.emit("first")
    await job.emit("a")
    flushing = asyncio.create_task(job.flush())
    await until(lambda: asked(source, 2))
    await job.emit("b")
    await flushing
    await job.flush()
    assert source.text == "firstab"
    assert source.asked[1] == source.asked[2] == source.asked[3] == [(2, "a")]


async def asked(source: Scripted, times: int) -> bool:
    return len(source.asked) >= times


async def test_a_lost_lease_stops_the_job_and_accepts_no_more() -> None:
    job = Emitting(Scripted([False, LeaseLostError()]))
    await job.emit("first")
    await job.emit("a")
    with pytest.raises(LeaseLostError):
        await job.flush()
    assert isinstance(job.reason, LeaseLostError)
    with pytest.raises(LeaseLostError):
        await job.emit("b")


async def test_a_refusal_is_raised_by_what_emits_next() -> None:
    job = Emitting(Scripted([False, InvalidError("No.")]))
    await job.emit("first")
    await job.emit("a")
    with pytest.raises(InvalidError):
        await job.flush()
    with pytest.raises(InvalidError):
        await job.emit("b")
    assert job.reason is None


async def test_a_job_that_must_stop_learns_it_with_the_answer() -> None:
    source = Scripted([True])
    job = Emitting(source)
    await job.emit("first")
    assert isinstance(job.reason, CanceledError)
    assert source.text == "first"


async def test_nobody_waits_for_an_unavailable_source_when_the_job_must_stop() -> None:
    source = Scripted([False] + [UnavailableError()] * 100)
    job = Emitting(source)
    await job.emit("first")
    job.stop(CanceledError())
    await job.emit("a")
    with pytest.raises(CanceledError):
        await job.flush()


async def test_a_job_waits_while_much_of_its_text_is_not_written() -> None:
    source = Scripted()
    job = Emitting(source)
    await job.emit("first")
    source.gate.clear()
    await job.emit("x" * emitter.UNWRITTEN_MAX)
    waiting = asyncio.create_task(job.emit("y"))
    await until(lambda: asked(source, 2))
    assert not waiting.done()
    source.gate.set()
    await waiting
    assert source.text == "first" + "x" * emitter.UNWRITTEN_MAX + "y"


async def test_text_is_split_between_characters() -> None:
    source = Scripted()
    job = Emitting(source)
    text = "a" + "é€😀" * 40_000
    await job.emit(text)
    assert source.text == text
    assert len(text.encode()) < TEXT_MAX
    assert all(len(chunk) <= CHUNK_MAX and len(group) <= 2 for group in source.asked for _, chunk in group)
    assert all(len(chunk.encode()) <= CHUNK_MAX for chunk in source.written.values())


async def test_what_is_dropped_is_not_written() -> None:
    source = Scripted()
    job = Emitting(source)
    await job.emit("first")
    await job.emit("a")
    job.emitter.drop(job.buffer)
    await job.flush()
    assert source.text == "first"


# Over HTTP


async def test_a_fleet_worker_emits_over_http(db: Database) -> None:
    app = Millpond()

    @app.kind("far", runs="fleet", queue="gpu")
    async def far(job: Job) -> None:
        for word in WORDS:
            await job.emit(word)

    async with serving(db, app) as site:
        secret = await site.key(scope="worker", tenant=None, account=None)
        submitted = [await site.engine.submit("far", {}, **OWNER) for _ in range(3)]
        assert await Worker(RemoteSource(site.url, secret), app, slots=3).drain() == 3
        for each in submitted:
            assert (await site.engine.read(TENANT, each.job_id)).outcome == "succeeded"
            assert joined(await stored(db, each.job_id)) == "".join(WORDS)


async def test_the_refusal_of_one_job_is_its_own_alone(db: Database) -> None:
    async def talk(job: Job) -> None:
        await job.emit("hello")

    app, plain = Millpond(), Millpond()
    app.gate("words", WordGate({}, {}))
    for name, gate in (("gated", "words"), ("open", None)):
        app.kind(name, runs="fleet", queue="gpu", gate=gate)(talk)
        plain.kind(name, runs="fleet", queue="gpu")(talk)  # the worker does not know of the gate
    async with serving(db, app) as site:
        site.engine.gates.update(app.gates)
        secret = await site.key(scope="worker", tenant=None, account=None)
        gated, free = [await site.engine.submit(name, {}, **OWNER) for name in ("gated", "open")]
        await Worker(RemoteSource(site.url, secret), plain, slots=2).drain()
        job = await site.engine.read(TENANT, gated.job_id)
        assert (job.outcome, job.error["field"]) == ("failed", "text")
        assert (await site.engine.read(TENANT, free.job_id)).outcome == "succeeded"


async def test_text_goes_to_an_unsteady_server_once(double: FleetDouble, app: Millpond) -> None:
    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        for word in WORDS[:20]:
            await job.emit(word)
            await asyncio.sleep(0.005)

    double.give()
    double.refusals["emit"] = UnavailableError()
    async with working(double, app):
        await came(double, "complete")
    (text,) = double.texts.values()
    assert "".join(text) == "".join(WORDS[:20])


async def test_a_lease_that_the_server_does_not_know_ends_the_job(double: FleetDouble, app: Millpond) -> None:
    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        double.held.clear()
        await job.emit("a")
        raise AssertionError("it goes on")

    double.give()
    async with working(double, app):
        await came(double, "emit")
    assert double.verbs("complete", "fail") == []


async def test_a_cancel_comes_with_the_answer(double: FleetDouble, app: Millpond) -> None:
    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        double.canceling.add(job.id)
        await job.emit("a")

    double.give()
    async with working(double, app):
        (failed,) = await came(double, "fail")
    assert failed["outcome"] == "canceled"
