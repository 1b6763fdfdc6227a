"""A worker over HTTP before a double of the server: what it sends, and how it bears what a server seldom does."""

from __future__ import annotations

import asyncio
import hashlib
import io
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import BlockedError, Millpond, PermanentError, TransientError, logs
from millpond.errors import (
    ForbiddenError,
    MillpondError,
    NotFoundError,
    SettingsError,
    UnauthorizedError,
    UnavailableError,
    WorkerAliveError,
    WorkerRevokedError,
    WorkerUnapprovedError,
)
from millpond.worker import Notice, RemoteSource, Worker, remote
from tests.checks import until
from tests.doubles.fleet import SECRET, FleetDouble, served
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from millpond import Job

DATA = bytes(range(256)) * 20_000  # more than one piece


@pytest.fixture
async def double(anyio_backend: str) -> AsyncIterator[FleetDouble]:
    async with served() as made:
        yield made


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", as_json=True, stream=stream)
    yield stream
    logs.silence()


@pytest.fixture
def app() -> Millpond:
    return Millpond()


@asynccontextmanager
async def working(double: FleetDouble, app: Millpond, slots: int = 1) -> AsyncIterator[Worker]:
    worker = Worker(RemoteSource(double.url, SECRET), app, slots=slots, grace=timedelta(seconds=0.2))
    stop = asyncio.Event()
    task = asyncio.create_task(worker.run(stop))
    try:
        yield worker
    finally:
        stop.set()
        await task
    assert not worker._runs
    assert not worker.source._held  # pyright: ignore[reportAttributeAccessIssue]


async def came(double: FleetDouble, verb: str, times: int = 1) -> list[dict[str, Any]]:
    async def has_come() -> bool:
        return len(double.verbs(verb)) >= times

    await until(has_come)
    return double.verbs(verb)


# Reports


async def test_it_registers_for_the_routes_of_its_fleet_kinds_and_says_goodbye(
    double: FleetDouble, app: Millpond
) -> None:
    @app.kind("far", runs="fleet", queue="gpu")
    def far(job: Job, number: int) -> int:
        return number + 1

    @app.kind("near")
    def near(job: Job) -> None: ...

    double.give({"number": 4})
    async with working(double, app, slots=3):
        (done,) = await came(double, "complete")
    (registered,) = double.verbs("register")
    assert (registered["routes"], registered["slots"]) == (["gpu"], 3)
    assert done["output"] == 5
    assert len(double.verbs("deregister")) == 1


@pytest.mark.parametrize(
    ("error", "verb", "expected"),
    [
        (PermanentError("no"), "fail", {"error": {"code": "permanent", "message": "no"}, "outcome": "failed"}),
        (BlockedError("no"), "fail", {"error": {"code": "blocked", "message": "no"}, "outcome": "blocked"}),
        (
            TransientError("later", retry_after=timedelta(seconds=7)),
            "fail",
            {"error": {"code": "transient", "message": "later"}, "retry": True, "retry_after": 7},
        ),
    ],
    ids=["permanent", "blocked", "transient"],
)
async def test_what_a_handler_raises_is_reported(
    double: FleetDouble, app: Millpond, error: Exception, verb: str, expected: dict[str, Any]
) -> None:
    @app.kind("far", runs="fleet")
    def far(job: Job) -> None:
        raise error

    double.give()
    async with working(double, app):
        (said,) = await came(double, verb)
    assert expected.items() <= said.items()


async def test_a_job_of_an_unknown_kind_goes_to_the_fallback_with_its_whole_input(double: FleetDouble) -> None:
    async def anything(job: Job, given: Any) -> Any:
        await job.stage("b")
        return [job.kind, given]

    double.give([1, 2], kind="strange", stages=["a", "b"])
    worker = Worker(RemoteSource(double.url, SECRET, ["gpu:1"]), Millpond(), fallback=anything)
    assert await worker.drain() == 1
    (done,) = double.verbs("complete")
    assert done["output"] == ["strange", [1, 2]]
    assert double.verbs("note")[0]["notes"] == [{"number": 1, "type": "stage", "stage": "b"}]


async def test_a_burst_of_notes_becomes_few_requests_in_order_and_before_the_end(
    double: FleetDouble, app: Millpond
) -> None:
    @app.kind("far", runs="fleet", stages=["drawing"])
    async def far(job: Job) -> None:
        await job.stage("drawing")
        await job.progress(0.5)
        for n in range(500):
            await job.log(f"line {n}")

    double.give()
    async with working(double, app):
        await came(double, "complete")
    notes = [note for body in double.verbs("note") for note in body["notes"]]
    assert [note["number"] for note in notes] == list(range(1, 503))
    assert notes[-1] == {"number": 502, "type": "log", "level": "info", "text": "line 499"}
    assert len(double.verbs("note")) <= 4
    said = [verb for verb, _ in double.asked]
    assert said.index("complete") > max(n for n, verb in enumerate(said) if verb == "note")


async def test_a_cancel_is_heard_with_the_answer_to_a_note(double: FleetDouble, app: Millpond) -> None:
    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        double.canceling.add(job.id)
        while True:
            await job.log("on and on")
            await asyncio.sleep(0.01)

    double.give()
    async with working(double, app):
        (said,) = await came(double, "fail")
    assert said["outcome"] == "canceled"


async def test_code_that_waits_may_ask_for_a_cancel_before_the_next_heartbeat(
    double: FleetDouble, app: Millpond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses the first request. The next heartbeat of the worker would come after an hour."""
    monkeypatch.setattr("millpond.worker.context._ASK_GAP", 0.05)
    double.heartbeat_seconds = 3600

    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        double.canceling.add(job.id)
        double.refusals["heartbeat"] = ForbiddenError()
        while True:
            await job.check_cancel()
            await asyncio.sleep(0.01)

    double.give()
    async with working(double, app):
        (said,) = await came(double, "fail")
    assert (said["outcome"], said["error"]["code"]) == ("canceled", "canceled")
    assert len(double.verbs("heartbeat")) == 2


async def test_a_plain_handler_may_ask_for_a_cancel_too(
    double: FleetDouble, app: Millpond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.worker.context._ASK_GAP", 0.05)
    double.heartbeat_seconds = 3600

    @app.kind("far", runs="fleet")
    def far(job: Job) -> None:
        double.canceling.add(job.id)
        while True:
            job.check_cancel()
            time.sleep(0.01)

    double.give()
    async with working(double, app):
        (said,) = await came(double, "fail")
    assert (said["outcome"], said["error"]["code"]) == ("canceled", "canceled")


# A worker that cannot run jobs at present


@asynccontextmanager
async def hindered(
    double: FleetDouble, app: Millpond, obstacles: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Worker]:
    """A worker that meets these obstacles one after the other, the last one from then on."""
    monkeypatch.setattr("millpond.worker.remote._LOOK_AGAIN", 0.01)

    async def find() -> str | None:
        return obstacles.pop(0) if len(obstacles) > 1 else obstacles[0]

    async with working(double, app) as worker:
        worker.source.find_obstacle = find  # pyright: ignore[reportAttributeAccessIssue]
        yield worker


async def test_a_worker_that_cannot_run_jobs_takes_none_and_recovers(
    double: FleetDouble, app: Millpond, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.kind("far", runs="fleet")(done)
    double.heartbeat_seconds = 0.05
    obstacles: list[str | None] = ["The card is gone."]
    async with hindered(double, app, obstacles, monkeypatch):
        await came(double, "readiness", 2)
        assert double.unready_reason == "The card is gone."
        double.give()
        await came(double, "readiness", 4)
        assert double.waiting, "the job is not taken"
        obstacles[:] = [None]
        await came(double, "complete")
    assert double.unready_reason is None
    assert "worker.unready" in log.getvalue()
    assert "worker.ready" in log.getvalue()


async def test_a_job_that_comes_when_it_can_no_longer_run_is_given_back_before_it_begins(
    double: FleetDouble, app: Millpond, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.kind("far", runs="fleet")(done)
    obstacles: list[str | None] = [None, "The card is gone."]
    job = double.give()
    async with hindered(double, app, obstacles, monkeypatch):
        (said,) = await came(double, "requeue")
        assert (said["job_id"], said["reason"]) == (job, "The card is gone.")
    assert not double.verbs("complete", "fail")


@pytest.mark.parametrize("error", [NotFoundError(), UnavailableError()], ids=["an older server", "away"])
async def test_a_server_that_cannot_be_reached_is_no_reason_to_take_jobs(
    double: FleetDouble, app: Millpond, monkeypatch: pytest.MonkeyPatch, error: MillpondError
) -> None:
    app.kind("far", runs="fleet")(done)
    obstacles: list[str | None] = ["The card is gone."]
    double.refusals["readiness"] = error
    async with hindered(double, app, obstacles, monkeypatch):
        await came(double, "readiness")
        double.give()
        obstacles[:] = [None]
        await came(double, "complete")
    assert double.unready_reason is None


# Files


async def test_files_go_to_and_come_from_storage_whole(double: FleetDouble, app: Millpond, tmp_path: Path) -> None:
    @app.kind("far", runs="fleet")
    def far(job: Job) -> Any:
        path = job.download("mask", tmp_path / "mask.png")
        saved = job.save("note.txt", "done")
        copy = job.upload(path, "copy.png")
        return {"mask": len(job.open("mask")), "copy": copy, "note": saved.id}

    double.give(downloads={"mask": double.keep("mask", DATA)})
    async with working(double, app):
        (done,) = await came(double, "complete")
    output = done["output"]
    sha256 = hashlib.sha256(DATA).hexdigest()
    assert (tmp_path / "mask.png").read_bytes() == DATA
    assert output["mask"] == len(DATA)
    assert double.files[output["copy"]["id"]] == DATA
    assert double.files[output["note"]] == b"done"
    assert done["artifacts"][1] == {"id": output["copy"]["id"], "size": len(DATA), "sha256": sha256}
    assert [(body["name"], body["content_type"]) for body in double.verbs("upload")] == [
        ("note.txt", "text/plain"),
        ("copy.png", "image/png"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["mask.png"]


@pytest.mark.parametrize("fault", ["expired", "cut"])
async def test_a_download_goes_on_where_it_was(double: FleetDouble, app: Millpond, tmp_path: Path, fault: str) -> None:
    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        await job.download("mask", tmp_path / "mask")

    double.storage_faults.extend([fault, fault])
    double.give(downloads={"mask": double.keep("mask", DATA)})
    async with working(double, app):
        await came(double, "complete")
    assert (tmp_path / "mask").read_bytes() == DATA
    assert [job["renew"] for body in double.verbs("heartbeat") for job in body["jobs"]] == [["mask"], ["mask"]]


@pytest.mark.parametrize("fault", ["expired", "lost", "unanswered"])
async def test_an_upload_is_sent_again_to_a_new_url(
    double: FleetDouble, app: Millpond, tmp_path: Path, fault: str
) -> None:
    file = tmp_path / "film"
    file.write_bytes(DATA)

    @app.kind("far", runs="fleet")
    async def far(job: Job) -> str:
        return (await job.upload(file)).id

    double.storage_faults.append(fault)
    double.give()
    async with working(double, app):
        (done,) = await came(double, "complete")
    assert double.files[done["output"]] == DATA


async def test_a_file_that_storage_will_not_take_fails_the_attempt(
    double: FleetDouble, app: Millpond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.worker.transfers.TRIES", 2)

    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        await job.save("film", b"x")

    double.storage_faults.extend(["expired"] * 2)
    double.give()
    async with working(double, app):
        (said,) = await came(double, "fail")
    assert (said["error"]["code"], said["retry"]) == ("transient", True)
    assert "HTTP 403" in said["error"]["message"]


@pytest.mark.parametrize("name", ["../up", "", "a/b", ".."])
async def test_a_name_that_is_no_name_is_refused(double: FleetDouble, app: Millpond, name: str) -> None:
    @app.kind("far", runs="fleet")
    def far(job: Job) -> None:
        job.save(name, b"x")

    double.give()
    async with working(double, app):
        (said,) = await came(double, "fail")
    assert said["error"]["field"] == "name"
    assert not double.verbs("upload")


async def test_a_file_that_the_job_does_not_have_is_reported(double: FleetDouble, app: Millpond) -> None:
    @app.kind("far", runs="fleet")
    def far(job: Job) -> None:
        job.open("face")

    double.give(downloads={"mask": double.keep("mask", b"x")})
    async with working(double, app):
        (said,) = await came(double, "fail")
    assert said["error"]["hint"] == "Its files: mask."


# Failures


async def test_a_token_that_is_gone_drops_all_work_and_registers_again(
    double: FleetDouble, app: Millpond, log: io.StringIO
) -> None:
    """What it held is somebody else's by now: nothing of it is reported."""
    begun = asyncio.Event()

    @app.kind("far", runs="fleet")
    async def far(job: Job, hangs: int = 0) -> str:
        begun.set()
        while hangs:
            await asyncio.sleep(0.01)
        return "done"

    double.give({"hangs": 1})
    async with working(double, app, slots=2) as worker:
        await begun.wait()
        double.tokens.clear()
        await came(double, "register", 2)
        await until(lambda: is_idle(worker))
        assert not double.verbs("complete", "fail", "requeue")
        second = double.give()
        (done,) = await came(double, "complete")
    assert done["job_id"] == second
    assert SECRET not in log.getvalue()


async def test_a_worker_that_is_thrown_out_stops_all_work_and_says_why(
    double: FleetDouble, app: Millpond, log: io.StringIO
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    double.give()
    worker = Worker(RemoteSource(double.url, SECRET), app, slots=2, grace=timedelta(hours=1))
    task = asyncio.create_task(worker.run(asyncio.Event()))
    await begun.wait()
    double.refusals["poll"] = WorkerRevokedError("Thrown out.")
    with pytest.raises(WorkerRevokedError, match="Thrown out"):
        await task
    assert ended.is_set()
    assert not double.verbs("complete", "fail", "requeue")
    assert "worker.dismissed" in log.getvalue()


@pytest.mark.parametrize(
    "error", [WorkerAliveError("Another is."), UnavailableError("Not yet.")], ids=["alive", "away"]
)
async def test_it_waits_until_it_is_let_in_and_reports_why(
    double: FleetDouble, app: Millpond, log: io.StringIO, error: MillpondError
) -> None:
    app.kind("far", runs="fleet")(done)
    double.refusals["register"] = error
    double.give()
    async with working(double, app):
        await came(double, "complete")
    assert error.message in log.getvalue() or isinstance(error, UnavailableError)
    assert len(double.verbs("register")) == 2


async def test_a_worker_that_is_not_approved_yet_waits(double: FleetDouble, app: Millpond, log: io.StringIO) -> None:
    app.kind("far", runs="fleet")(done)
    double.refusals["poll"] = WorkerUnapprovedError("An operator must approve it.")
    double.give()
    async with working(double, app):
        await came(double, "complete")
    assert "An operator must approve it." in log.getvalue()
    assert "service.failed" not in log.getvalue()


@pytest.mark.parametrize("error", [UnauthorizedError(), ForbiddenError("Not in the group.")], ids=["secret", "group"])
async def test_what_waiting_does_not_mend_is_raised(double: FleetDouble, app: Millpond, error: MillpondError) -> None:
    app.kind("far", runs="fleet")(done)
    double.refusals["register"] = error
    with pytest.raises(type(error)):
        await Worker(RemoteSource(double.url, SECRET), app).run(asyncio.Event())


async def test_it_can_be_stopped_while_it_is_not_let_in(double: FleetDouble, app: Millpond) -> None:
    app.kind("far", runs="fleet")(done)
    double.is_down = True
    stop = asyncio.Event()
    task = asyncio.create_task(Worker(RemoteSource(double.url, SECRET), app).run(stop))
    await asyncio.sleep(0)
    stop.set()
    await task


async def test_an_end_is_reported_to_a_server_that_was_away(
    double: FleetDouble, app: Millpond, log: io.StringIO
) -> None:
    """Its work is kept for as long as the lease is trusted."""

    @app.kind("far", runs="fleet")
    async def far(job: Job) -> str:
        double.is_down = True
        await job.log("said while nobody listens")
        return "kept"

    double.give()
    async with working(double, app, slots=2):
        await until(lambda: was_said(log, "server.unavailable"))
        double.is_down = False
        (done,) = await came(double, "complete")
    assert done["output"] == "kept"
    assert double.verbs("note")[0]["notes"][0]["text"] == "said while nobody listens"


async def test_work_whose_lease_cannot_be_trusted_any_more_is_dropped(double: FleetDouble, app: Millpond) -> None:
    double.lease_seconds, double.heartbeat_seconds = 0.6, 0.1
    cut = asyncio.Event()

    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        double.is_down = True
        try:
            await asyncio.sleep(3600)
        finally:
            cut.set()

    double.give()
    async with working(double, app):
        async with asyncio.timeout(PATIENCE):
            await cut.wait()
        double.is_down = False
    assert not double.verbs("complete", "fail", "requeue")


async def test_a_lease_that_was_lost_is_dropped_at_the_next_heartbeat(double: FleetDouble, app: Millpond) -> None:
    double.heartbeat_seconds = 0.1
    cut = asyncio.Event()

    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        double.held.clear()
        try:
            await asyncio.sleep(3600)
        finally:
            cut.set()

    double.give()
    async with working(double, app):
        async with asyncio.timeout(PATIENCE):
            await cut.wait()
    assert not double.verbs("complete", "fail", "requeue")


async def test_a_notice_requeues_what_cannot_end_in_time(double: FleetDouble, app: Millpond) -> None:
    begun = asyncio.Event()

    @app.kind("far", runs="fleet")
    async def far(job: Job) -> None:
        begun.set()
        await asyncio.sleep(3600)

    async def notices() -> AsyncIterator[Notice]:
        await begun.wait()
        yield Notice(15.2, "the machine is taken away")

    double.give()
    worker = Worker(RemoteSource(double.url, SECRET), app, notices=notices(), grace=timedelta(hours=1))
    async with asyncio.timeout(PATIENCE):
        await worker.run(asyncio.Event())
    (said,) = double.verbs("requeue")
    assert said["reason"] == "the machine is taken away"
    assert len(double.verbs("deregister")) == 1


@pytest.mark.parametrize(
    ("url", "secret", "field"),
    [(None, "x", "url"), ("http://127.0.0.1:1", None, "secret"), ("http://127.0.0.1:1", "a\nb", "secret")],
    ids=["no url", "no secret", "line breaks"],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str | None, secret: str | None, field: str
) -> None:
    monkeypatch.delenv("MILLPOND_URL", raising=False)
    monkeypatch.delenv("MILLPOND_FLEET_SECRET", raising=False)
    with pytest.raises(SettingsError) as caught:
        RemoteSource(url, secret)
    assert caught.value.field == field


async def test_an_app_without_a_kind_for_the_fleet_is_reported(double: FleetDouble, app: Millpond) -> None:
    app.kind("near")(done)
    with pytest.raises(SettingsError, match="no kind that runs on the fleet"):
        await Worker(RemoteSource(double.url, SECRET), app).run(asyncio.Event())


async def done(job: Job) -> str:
    return "done"


async def is_idle(worker: Worker) -> bool:
    return not worker._runs


async def was_said(log: io.StringIO, event: str) -> bool:
    return event in log.getvalue()


def test_no_pause_of_an_outage_grows_beyond_a_few_seconds() -> None:
    assert max(remote._pause_after(UnavailableError(), failures) for failures in range(1, 40)) <= 6
