"""``millpond worker`` as an operator runs it: a real process, real signals, a real database."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond import logs
from millpond.store.embedded import open_embedded
from tests.acceptance.processes import PRODUCT, Shell, shell, until

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.engine.jobs.jobs import JobRecord

SHORT = timedelta(seconds=0.5)


@pytest.fixture(autouse=True)
def calm(sh: Shell) -> None:
    """No worker dies here: its leases are not to run out on a busy machine."""
    sh.environment["MILLPOND_LEASE"] = "30s"


OWNER: dict[str, Any] = {"tenant": "acme", "account": "ann"}


async def submit(engine: Engine, kind: str, given: Any = None) -> UUID:
    return (await engine.submit(kind, given, **OWNER)).job_id


async def read(engine: Engine, job_id: UUID) -> JobRecord:
    return await engine.read("acme", job_id)


async def until_in(engine: Engine, phase: str, *job_ids: UUID) -> None:
    async def are_there() -> bool:
        return {(await read(engine, job_id)).phase for job_id in job_ids} == {phase}

    await until(are_there)


async def types(engine: Engine, job_id: UUID) -> list[str]:
    return [event.type for event in await engine.events("acme", job_id)]


# Work


@pytest.mark.parametrize("kind", ["quick", "quick_async"])
async def test_it_runs_what_is_submitted_before_and_after_it_came(engine: Engine, sh: Shell, kind: str) -> None:
    early = await submit(engine, kind, {"number": 1})
    sh.worker()
    await until_in(engine, "ended", early)
    late = await submit(engine, kind, {"number": 2})
    await until_in(engine, "ended", late)
    assert [(await read(engine, job_id)).output for job_id in (early, late)] == [{"number": 1}, {"number": 2}]
    assert (await engine.balance("acme", "ann")).available == 996


async def test_a_transient_error_is_tried_again_and_another_fails_at_the_cap(engine: Engine, sh: Shell) -> None:
    flaky, broken = await submit(engine, "flaky"), await submit(engine, "broken")
    sh.worker()
    await until_in(engine, "ended", flaky, broken)
    job = await read(engine, flaky)
    assert (job.outcome, job.output, job.attempts) == ("succeeded", 3, 2)
    job = await read(engine, broken)
    assert (job.outcome, job.attempts, job.captured) == ("failed", 2, 0)
    assert "ZeroDivisionError" in job.error["message"]


@pytest.mark.parametrize("kind", ["limited", "limited_plain"])
async def test_a_job_that_runs_longer_than_its_kind_allows_is_stopped(engine: Engine, sh: Shell, kind: str) -> None:
    """The time is one attempt's: it is tried again, and fails at the cap."""
    job_id = await submit(engine, kind)
    sh.worker()
    await until_in(engine, "ended", job_id)
    job = await read(engine, job_id)
    assert (job.outcome, job.attempts, job.error["code"]) == ("failed", 2, "time_limit")


async def test_a_parked_job_holds_no_worker_and_goes_on_with_its_answer(engine: Engine, sh: Shell) -> None:
    job_id = await submit(engine, "asking")
    sh.worker("--slots", "1")
    await until_in(engine, "parked", job_id)
    other = await submit(engine, "quick")
    await until_in(engine, "ended", other)
    await engine.answer("acme", job_id, {"approved": True})
    await until_in(engine, "ended", job_id)
    assert (await read(engine, job_id)).output == {"approved": True}


@pytest.mark.parametrize("kind", ["exits", "exits_async", "exits_in_time"])
async def test_a_handler_that_exits_ends_its_job_and_not_the_worker(engine: Engine, sh: Shell, kind: str) -> None:
    """``sys.exit`` in a script that became a handler is an error like any other."""
    job_id = await submit(engine, kind)
    worker = sh.worker()
    await until_in(engine, "ended", job_id)
    assert (await read(engine, job_id)).outcome == "failed"
    assert worker.is_running


@pytest.mark.parametrize("kind", ["odd", "huge"])
async def test_what_cannot_be_stored_fails_the_job_and_is_reported(engine: Engine, sh: Shell, kind: str) -> None:
    """An error or output that no database can hold must not leave the job in nobody's hands."""
    job_id = await submit(engine, kind)
    sh.worker()
    await until_in(engine, "ended", job_id)
    job = await read(engine, job_id)
    assert (job.outcome, job.epoch) == ("failed", 1)
    assert job.error["message"]


async def test_a_note_that_was_never_sent_leaves_no_gap(engine: Engine, sh: Shell) -> None:
    job_id = await submit(engine, "forgetful")
    sh.worker()
    await until_in(engine, "ended", job_id)
    assert await types(engine, job_id) == ["submitted", "started", "log", "succeeded"]


async def test_a_job_of_a_kind_it_does_not_know_goes_back_for_a_worker_that_does(
    engine: Engine, sh: Shell, tmp_path: Path
) -> None:
    """While a new version is rolled out, old workers meet jobs they have never heard of."""
    old = tmp_path / "old.py"
    old.write_text(
        "from millpond import Millpond\napp = Millpond()\n@app.kind('ancient', queue='quick')\ndef ancient(job): ...\n"
    )
    job_id = await submit(engine, "quick")
    worker = sh.worker(app=old)
    await until_in(engine, "waiting", job_id)
    job = await read(engine, job_id)
    assert (job.attempts, job.error["code"]) == (0, "interrupted")
    assert worker.is_running
    worker.terminate()
    assert worker.wait() == 0
    sh.worker()
    await until_in(engine, "ended", job_id)
    assert (await read(engine, job_id)).outcome == "succeeded"


# Cancels


@pytest.mark.parametrize("kind", ["heedful", "heedful_plain", "asks"])
async def test_a_cancel_is_heeded_at_a_checkpoint(engine: Engine, sh: Shell, kind: str) -> None:
    job_id = await submit(engine, kind)
    sh.worker()
    await until_in(engine, "leased", job_id)
    assert (await engine.cancel("acme", job_id)).is_accepted
    await until_in(engine, "ended", job_id)
    job = await read(engine, job_id)
    assert (job.outcome, job.captured) == ("canceled", 0)


@pytest.mark.parametrize("kind", ["waits", "waits_plain", "deaf", "deaf_plain"])
async def test_a_cancel_that_is_not_heeded_is_forced_after_the_grace(engine: Engine, sh: Shell, kind: str) -> None:
    """Code that looks at nothing is cut off, by its worker or by the database."""
    given = {"file": "never"} if kind.startswith("waits") else {}
    job_id = await submit(engine, kind, given)
    worker = sh.worker(MILLPOND_GRACE="0.5s")
    await until_in(engine, "leased", job_id)
    await engine.cancel("acme", job_id, grace=SHORT)
    await until_in(engine, "ended", job_id)
    assert (await read(engine, job_id)).outcome == "canceled"
    other = await submit(engine, "quick")
    await until_in(engine, "ended", other)
    assert worker.is_running


# Leaving


@pytest.mark.parametrize("kind", ["waits", "waits_plain"])
async def test_sigterm_lets_running_jobs_finish_and_takes_no_more(
    engine: Engine, sh: Shell, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "go"
    running = await submit(engine, kind, {"file": str(file)})
    worker = sh.worker()
    await until_in(engine, "leased", running)
    worker.terminate()
    await until(lambda: said(worker, "worker.stopping"))
    pending = await submit(engine, "quick")
    file.touch()
    assert worker.wait() == 0
    assert (await read(engine, running)).outcome == "succeeded"
    assert (await read(engine, pending)).phase == "ready"
    assert worker.log[-1]["event"] == "worker.stopped"


@pytest.mark.parametrize("kind", ["waits", "waits_plain", "deaf", "deaf_plain"])
async def test_what_does_not_finish_within_the_grace_goes_back_without_a_penalty(
    engine: Engine, sh: Shell, kind: str
) -> None:
    """Nor does it keep the process: not even code that ignores everything."""
    job_id = await submit(engine, kind, {"file": "never"} if kind.startswith("waits") else {})
    worker = sh.worker(MILLPOND_GRACE="0.3s")
    await until_in(engine, "leased", job_id)
    worker.terminate()
    assert worker.wait() == 0
    job = await read(engine, job_id)
    assert (job.phase, job.attempts) == ("ready", 0)
    (requeued,) = [event for event in await engine.events("acme", job_id) if event.type == "requeued"]
    assert requeued.data["cause"] == "interruption"


async def test_a_second_sigterm_ends_it_at_once(engine: Engine, sh: Shell) -> None:
    """Its job is then taken back when the lease has run out."""
    job_id = await submit(engine, "waits", {"file": "never"})
    worker = sh.worker(MILLPOND_GRACE="1h")
    await until_in(engine, "leased", job_id)
    worker.terminate()
    await until(lambda: said(worker, "worker.stopping"))
    worker.terminate()
    assert worker.wait() == 1
    assert (await read(engine, job_id)).phase == "leased"


async def test_drain_runs_what_is_ready_and_ends(engine: Engine, sh: Shell) -> None:
    job_ids = [await submit(engine, kind) for kind in ("quick", "quick_async") for _ in range(30)]
    worker = sh.worker("--drain", "--slots", "7")
    assert worker.wait() == 0
    assert {(await read(engine, job_id)).outcome for job_id in job_ids} == {"succeeded"}


async def test_drain_keeps_its_leases_alive(engine: Engine, sh: Shell, tmp_path: Path) -> None:
    """A job may take longer than a lease."""
    file = tmp_path / "go"
    job_id = await submit(engine, "waits", {"file": str(file)})
    worker = sh.worker("--drain")
    await until_in(engine, "leased", job_id)
    async with engine.db.transaction() as tx:
        granted = await tx.fetchval("select max(expires_at) from millpond.leases")

    async def is_prolonged() -> bool:
        async with engine.db.transaction() as tx:
            return await tx.fetchval("select max(expires_at) from millpond.leases") > granted

    await until(is_prolonged)
    file.touch()
    assert worker.wait() == 0
    assert (await read(engine, job_id)).epoch == 1


async def test_drain_heeds_sigterm(engine: Engine, sh: Shell) -> None:
    job_id = await submit(engine, "waits", {"file": "never"})
    worker = sh.worker("--drain", MILLPOND_GRACE="0.3s")
    await until_in(engine, "leased", job_id)
    worker.terminate()
    assert worker.wait() == 0
    assert (await read(engine, job_id)).phase == "ready"


async def test_without_an_address_it_brings_its_own_database_and_takes_it_along(tmp_path: Path) -> None:
    """The embedded server lives as long as its worker."""
    with shell(tmp_path, None) as sh:
        worker = sh.worker("--data-dir", tmp_path / "data")
        await until(lambda: said(worker, "worker.started"))
        with open_embedded(tmp_path / "data") as found:
            assert not found.is_owner
        worker.terminate()
        assert worker.wait() == 0
        with open_embedded(tmp_path / "data") as found:
            assert found.is_owner


# Failures


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "The file 'app.py' does not exist."),
        ("x = 1\n", "creates no Millpond() objects"),
        ("from millpond import Millpond\na = Millpond()\nb = Millpond()\n", "creates more than one Millpond()"),
    ],
)
def test_an_app_it_cannot_use_is_reported_in_one_line(sh: Shell, text: str | None, expected: str) -> None:
    if text is not None:
        (sh.folder / "app.py").write_text(text)
    worker = sh.run("worker", "app.py")
    assert worker.process.returncode == 5
    (line,) = worker.stderr.splitlines()
    assert expected in line
    assert worker.stdout == ""


def test_a_module_that_is_not_there_is_reported_in_one_line(sh: Shell) -> None:
    worker = sh.run("worker", "shop.jobs")
    assert worker.process.returncode == 5
    assert len(worker.stderr.splitlines()) == 1


def test_a_database_that_is_not_there_is_reported_in_one_line(sh: Shell) -> None:
    sh.dsn = "postgresql://nobody@/nothing?host=%2Fnowhere"
    worker = sh.run("worker", PRODUCT)
    assert worker.process.returncode == 8
    assert len(worker.stderr.splitlines()) == 1


async def test_every_line_of_the_log_is_json_with_its_time_and_an_event_of_the_catalogue(
    engine: Engine, sh: Shell
) -> None:
    job_ids = [await submit(engine, kind) for kind in ("quick", "flaky", "broken", "odd", "limited", "exits")]
    worker = sh.worker(MILLPOND_LOG_LEVEL="debug")
    await until_in(engine, "ended", *job_ids)
    worker.terminate()
    worker.wait()
    assert worker.stdout == ""
    for line in worker.log:
        assert list(line)[:2] == ["ts", "event"]
        assert line["event"] in logs.CATALOGUE
    assert {"worker.started", "worker.stopped", "job.completed", "handler.raised"} <= {
        line["event"] for line in worker.log
    }


async def said(worker: Any, event: str) -> bool:
    return f'"{event}"' in worker.stderr
