"""Handlers that run in processes: what kills them, what they survive, and that they can do all that others can."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millpond import Millpond, Worker
from millpond.engine.engine import Engine
from millpond.errors import SettingsError
from millpond.services.expirer import expirer
from millpond.services.scheduler import scheduler
from tests.checks import until
from tests.clocks import Clock
from tests.factories import HOUR, OWNER, TENANT
from tests.process import apart
from tests.process.conftest import Site, working
from tests.process.processes import begun, gone, is_alive

if TYPE_CHECKING:
    import io
    from uuid import UUID

    from millpond import Job
    from millpond.store.db import Database


# A job that must stop


@pytest.mark.parametrize("kind", ["sleeps", "sleeps_async", "computes", "matches"])
async def test_a_cancel_kills_whatever_the_code_does(site: Site, tmp_path: Path, kind: str) -> None:
    """The slot is free again, and the next job runs in another process."""
    job_id = await site.submit(kind, {"file": str(tmp_path / "begun")})
    pid = (await begun(tmp_path / "begun"))["pid"]
    await site.engine.cancel(TENANT, job_id)
    job = await site.ended(job_id)
    assert (job.outcome, job.error["code"]) == ("canceled", "canceled")
    assert not is_alive(pid)
    assert (await site.run("pid")).output != pid
    assert not site.worker._runs


async def test_code_that_reaches_a_checkpoint_keeps_its_process(site: Site, tmp_path: Path) -> None:
    job_id = await site.submit("heeds", {"file": str(tmp_path / "begun")})
    pid = (await begun(tmp_path / "begun"))["pid"]
    await site.engine.cancel(TENANT, job_id)
    assert (await site.ended(job_id)).outcome == "canceled"
    assert (await site.run("pid")).output == pid


async def test_code_may_tidy_up_before_it_is_killed(site: Site, tmp_path: Path) -> None:
    job_id = await site.submit("tidies", {"file": str(tmp_path / "begun")})
    await begun(tmp_path / "begun")
    await site.engine.cancel(TENANT, job_id)
    assert (await site.ended(job_id)).outcome == "canceled"
    assert (tmp_path / "begun.tidied").exists()


async def test_what_the_code_has_started_is_killed_too(site: Site, tmp_path: Path) -> None:
    job_id = await site.submit("starts_others", {"file": str(tmp_path / "begun")})
    other = (await begun(tmp_path / "begun"))["other"]
    await site.engine.cancel(TENANT, job_id)
    await site.ended(job_id)
    await gone(other)


async def test_the_time_limit_kills(site: Site, tmp_path: Path) -> None:
    job = await site.run("late", {"file": str(tmp_path / "begun")})
    assert (job.outcome, job.attempts) == ("failed", 1)
    assert job.error == {"code": "time_limit", "message": "The job exceeded its time limit of 0.3 s."}
    assert not is_alive((await begun(tmp_path / "begun"))["pid"])


async def test_the_stall_limit_kills(site: Site, tmp_path: Path) -> None:
    job = await site.run("stalls", {"file": str(tmp_path / "begun")})
    assert (job.outcome, job.error["code"]) == ("failed", "stalled")
    assert not is_alive((await begun(tmp_path / "begun"))["pid"])


async def test_code_that_reports_does_not_stall(site: Site) -> None:
    assert (await site.run("reports")).output == "done"


async def test_the_end_of_the_job_by_its_deadline_kills(site: Site, tmp_path: Path) -> None:
    """The lease is lost with it."""
    given = {"file": str(tmp_path / "begun")}
    submitted = await site.engine.submit("sleeps", given, **OWNER, expires_in=HOUR)
    pid = (await begun(tmp_path / "begun"))["pid"]
    await Clock(site.engine.db).advance(HOUR)

    async def has_expired() -> bool:
        await expirer(site.engine).run_once()
        return (await site.read(submitted.job_id)).outcome == "expired"

    await until(has_expired)
    await gone(pid)
    assert (await site.run("pid")).output != pid


async def test_a_lost_lease_kills(site: Site, tmp_path: Path) -> None:
    job_id = await site.submit("sleeps", {"file": str(tmp_path / "begun")})
    pid = (await begun(tmp_path / "begun"))["pid"]
    (run,) = site.worker._runs.values()
    await site.engine.abandon(run.lease.token)  # as if it had expired and was taken back
    await gone(pid)
    await site.engine.cancel(TENANT, job_id)


async def test_a_worker_that_stops_gives_back_the_job(db: Database, tmp_path: Path) -> None:
    async with working(db, tmp_path, grace=timedelta(seconds=0.1)) as site:
        job_id = await site.submit("computes", {"file": str(tmp_path / "begun")})
        pid = (await begun(tmp_path / "begun"))["pid"]
        pids = site.pids()
    assert pid in pids
    assert not any(map(is_alive, pids))
    job = await site.read(job_id)
    assert (job.phase, job.attempts, job.error["code"]) == ("ready", 0, "interrupted")


# A process that ends


@pytest.mark.parametrize(
    ("how", "message", "facts"),
    [
        ("segfault", "The process that ran the job was killed by SIGSEGV (segmentation fault).", {"signal": "SIGSEGV"}),
        ("abort", "The process that ran the job was killed by SIGABRT (aborted).", {"signal": "SIGABRT"}),
        ("exit", "The process that ran the job exited with code 3.", {"exit_code": 3}),
        (
            "kill",
            "The process that ran the job was killed by SIGKILL. The usual reason is that memory was used up.",
            {"signal": "SIGKILL"},
        ),
    ],
    ids=["segfault", "abort", "exit", "kill"],
)
async def test_a_crash_is_one_failed_attempt_of_one_job(
    site: Site, tmp_path: Path, how: str, message: str, facts: dict[str, Any]
) -> None:
    other_id = await site.submit("waits", {"file": str(tmp_path / "begun"), "go": str(tmp_path / "go")})
    other = await begun(tmp_path / "begun")
    job = await site.run("crashes", {"how": how})
    assert (job.outcome, job.attempts) == ("failed", 1)
    assert job.error == {"code": "process_crashed", "message": message} | facts
    (tmp_path / "go").touch()
    assert (await site.ended(other_id)).output == other["pid"]
    assert (await site.run("pid")).output in site.pids()


async def test_a_crash_leaves_a_traceback(site: Site, log: io.StringIO) -> None:
    await site.run("crashes", {"how": "segfault"})
    raised = [json.loads(line) for line in log.getvalue().splitlines() if "handler.raised" in line]
    assert [each["error"] for each in raised] == [
        "ProcessCrashedError: The process that ran the job was killed by SIGSEGV (segmentation fault)."
    ]
    assert "Fatal Python error: Segmentation fault" in raised[0]["traceback"]
    assert "in crashes" in raised[0]["traceback"]


async def test_the_time_limit_leaves_a_traceback(site: Site, tmp_path: Path, log: io.StringIO) -> None:
    await site.run("late", {"file": str(tmp_path / "begun")})
    (raised,) = [json.loads(line) for line in log.getvalue().splitlines() if "handler.raised" in line]
    assert "in late" in raised["traceback"]


async def test_a_process_that_is_killed_from_outside_fails_its_attempt(site: Site, tmp_path: Path) -> None:
    job_id = await site.submit("sleeps", {"file": str(tmp_path / "begun")})
    os.kill((await begun(tmp_path / "begun"))["pid"], signal.SIGKILL)
    job = await site.ended(job_id)
    assert (job.outcome, job.error["signal"]) == ("failed", "SIGKILL")


async def test_an_idle_process_that_is_killed_fails_nothing(site: Site) -> None:
    first = (await site.run("pid")).output
    os.kill(first, signal.SIGKILL)
    second = await site.run("pid")
    assert second.error is None
    assert second.output != first


async def test_a_crashed_job_is_tried_again(site: Site) -> None:
    job = await site.run("crashes_once")
    assert (job.output, job.attempts) == (2, 1)


async def test_sys_exit_fails_the_job_and_keeps_the_process(site: Site) -> None:
    pid = (await site.run("pid")).output
    job = await site.run("leaves")
    assert job.error == {"code": "handler_failed", "message": "RuntimeError: SystemExit(4)"}
    assert (await site.run("pid")).output == pid


async def test_signals_that_are_not_from_the_worker_are_ignored(site: Site, tmp_path: Path) -> None:
    """A service manager sends SIGTERM to all processes of a service, and the worker then lets its jobs finish."""
    job_id = await site.submit("waits", {"file": str(tmp_path / "begun"), "go": str(tmp_path / "go")})
    pid = (await begun(tmp_path / "begun"))["pid"]
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    (tmp_path / "go").touch()
    assert (await site.ended(job_id)).output == pid


# The pool


async def test_a_process_runs_many_jobs(site: Site) -> None:
    found = {(await site.run(kind)).output for kind in ("pid", "pid_async", "pid")}
    assert len(found) == 1
    assert found == site.pids()
    assert os.getpid() not in found


async def test_jobs_run_beside_each_other_in_as_many_processes_as_slots(site: Site, tmp_path: Path) -> None:
    """Jobs that need no process run in the worker."""
    go = str(tmp_path / "go")
    jobs = [await site.submit("waits", {"file": str(tmp_path / f"{n}"), "go": go}) for n in range(2)]
    pids = {(await begun(tmp_path / f"{n}"))["pid"] for n in range(2)}
    assert pids == site.pids()
    Path(go).touch()
    assert {(await site.ended(job)).output for job in jobs} == pids
    assert (await site.run("inline")).output == os.getpid()


async def test_what_a_handler_leaves_running_cannot_act_for_the_next_job(site: Site, tmp_path: Path) -> None:
    go, error = str(tmp_path / "go"), tmp_path / "error"
    await site.run("leaves_a_thread", {"go": go, "file": str(error)})
    job_id = await site.submit("waits", {"file": str(tmp_path / "begun"), "go": str(error)})
    await begun(tmp_path / "begun")
    Path(go).touch()
    assert (await site.ended(job_id)).error is None
    assert (await begun(error))["error"] == "LeaseLostError"
    assert not [event for event in await site.engine.events(TENANT, job_id) if event.type == "log"]


async def test_what_a_handler_prints_disturbs_nothing(site: Site) -> None:
    assert (await site.run("prints")).output == "done"


@pytest.mark.parametrize("how", ["lambda", "local", "main", "replaced"])
async def test_what_cannot_be_imported_is_refused_at_the_start(db: Database, how: str) -> None:
    def handler(job: Job) -> None: ...

    if how == "main":
        handler.__module__, handler.__qualname__ = "__main__", "handler"
    elif how == "replaced":
        handler.__module__, handler.__qualname__ = apart.__name__, "pid"
    app = Millpond()
    app.kind("local", run="process")((lambda _: None) if how == "lambda" else handler)
    reason = {
        "main": "is defined in __main__, a script or a notebook",
        "replaced": "is not what the module 'tests.process.apart' has under the name 'pid'",
    }.get(how, "is defined inside of a function")
    engine = Engine(db, app)
    with pytest.raises(SettingsError) as caught:
        await Worker(engine.source(), app).run(asyncio.Event())
    assert caught.value.message == (
        f"The handler of kind 'local', which runs in a process, {reason}, so that another process cannot import it."
    )
    assert caught.value.field == "app"


# What a handler can do


async def test_a_handler_knows_its_job(site: Site) -> None:
    job = await site.run("describes", {"word": "hello"})
    assert job.output == {
        "word": "hello",
        **OWNER,
        "attempt": 1,
        "kind": "describes",
        "state": "running",
        "is_current": True,
    }
    assert (await site.run("ordered", {"number": 3})).output == {"number": 3, "words": "none"}


@pytest.mark.parametrize("kind", ["does_all", "does_all_async"])
async def test_a_handler_can_do_all_that_others_can(site: Site, tmp_path: Path, kind: str) -> None:
    photo = await site.engine.artifacts.save(**OWNER, name="photo.txt", content_type="text/plain", data=b"a photo")
    job = await site.run(kind, {"photo": photo.id, "path": str(tmp_path)})
    assert job.error is None
    assert job.output["copy"] == "a photo"
    assert job.output["is_canceled"] is False
    assert (job.stage, job.captured) == ("two", 3)
    files = {record.name: record for record in await site.engine.artifacts.of_job(TENANT, job.job_id)}
    assert await site.engine.artifacts.fetch(files["words.txt"]) == b"A PHOTO"
    assert (files["film.mp4"].size, files["words.txt"].id) == (7, job.output["saved"])
    events = await site.engine.events(TENANT, job.job_id)
    assert [event.data["text"] for event in events if event.type == "log"] == ["a line", "a line in the background"]
    assert [event.data["progress"] for event in events if event.type == "progress"] == [0.5]
    assert await text_of(site, job.job_id) == "some text"


async def text_of(site: Site, job_id: UUID) -> str:
    async with site.engine.db.transaction() as tx:
        rows = await tx.fetch("select text from millpond.chunks where job_id = $1 order by after, number", job_id)
    return "".join(row["text"] for row in rows)


@pytest.mark.parametrize("kind", ["composed", "composed_async"])
async def test_a_handler_makes_steps_children_sleeps_and_questions(site: Site, kind: str) -> None:
    job_id = await site.submit(kind, {"parts": 5})

    async def is_asking() -> bool:
        await scheduler(site.engine).run_once()
        return bool(await site.engine.questions(TENANT, job_id))

    await until(is_asking)
    (question,) = await site.engine.questions(TENANT, job_id)
    await site.engine.answer_question(TENANT, job_id, question.name, answer=True, actor="test")
    job = await site.ended(job_id)
    assert job.error is None
    pid = job.output.pop("first")
    assert pid in site.pids()
    assert job.output == {"numbers": list(range(5)), "one": 100, "failed": "It is negative.", "answer": True}


async def test_a_handler_parks(site: Site) -> None:
    job_id = await site.submit("parks")
    await site.until("parked", job_id)
    await site.engine.answer(TENANT, job_id, 7)
    assert (await site.ended(job_id)).output == [{"asked": True}, 7]


async def test_what_a_handler_raises_is_kept(site: Site, log: io.StringIO) -> None:
    permanent = await site.run("raises", {"error": "permanent"})
    assert permanent.error == {"code": "permanent", "message": "It will never work.", "hint": "Give up."}
    assert permanent.attempts == 0
    transient = await site.run("raises", {"error": "transient"})
    assert (transient.error["code"], transient.attempts) == ("transient", 2)
    other = await site.run("raises", {"error": "words"})
    assert other.error == {"code": "handler_failed", "message": "ValueError: words"}
    lines = [json.loads(line) for line in log.getvalue().splitlines() if "handler.raised" in line]
    assert 'apart.py", line' in lines[-1]["traceback"]
    assert "millpond/worker" not in lines[-1]["traceback"]
    misread = await site.run("misreads")
    assert misread.error["code"] == "not_found"


async def test_what_a_handler_logs_is_in_the_log_of_the_worker(site: Site, log: io.StringIO) -> None:
    job = await site.run("warns")
    (warned,) = [json.loads(line) for line in log.getvalue().splitlines() if "handler.warned" in line]
    assert (warned["library"], warned["text"], warned["job_id"]) == ("lens", "It is dusty.", job.id)


def test_run_and_runs_are_not_confused() -> None:
    app = Millpond()
    with pytest.raises(Exception, match=r'Did you mean run="process"\?'):
        app.kind("one", runs="process")(apart.pid)
    with pytest.raises(Exception, match=r'Did you mean runs="fleet"\?'):
        app.kind("two", run="fleet")(apart.pid)
