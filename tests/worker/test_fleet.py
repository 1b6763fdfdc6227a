"""Real workers with nothing but the SDK, at a real server: killed, stopped, thrown out, and left alone for a while."""

from __future__ import annotations

import hashlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.acceptance.processes import Command, Shell, shell, until
from tests.cli.ups import Up, serving, up
from tests.waiting import PATIENCE
from tests.worker import bare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

APP = Path(__file__).with_name("far.py")
BARE = Path(bare.__file__)
BRISK = {"MILLPOND_FLEET_LEASE": "5s", "MILLPOND_FLEET_HEARTBEAT": "0.5s", "MILLPOND_WORKER_SILENCE": "1500ms"}
CALM = {"MILLPOND_FLEET_LEASE": "60s", "MILLPOND_FLEET_HEARTBEAT": "0.5s", "MILLPOND_WORKER_SILENCE": "2s"}


@pytest.fixture(scope="module")
async def site(
    anyio_backend: str, server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Shell, Up]]:
    """A server for the whole module; its own worker runs what is not the fleet's, which is nothing."""
    async with server.database() as dsn:
        with shell(tmp_path_factory.mktemp("site"), dsn) as sh:
            yield sh, await up(sh, APP, **BRISK)


@pytest.fixture
def sh(site: tuple[Shell, Up], tmp_path: Path) -> Any:
    """Whoever was hired in a test leaves with it."""
    with shell(tmp_path, None) as made:
        yield made


def hire(sh: Shell, at: Up, name: str, *words: str, **environment: str) -> Command:
    """A worker of the fleet, in an environment that has the SDK alone."""
    given = {"MILLPOND_FLEET_SECRET": at.ready["fleet_secret"], "WORKER": name, "MILLPOND_GRACE": "10s"}
    said = ("--url", at.url, "--name", name, *words)
    return sh.launch(sys.executable, BARE, "millpond.worker", APP, *said, **given | environment)


async def known(at: Up, name: str) -> dict[str, Any] | None:
    answer = await at.request("GET", "/v1/workers", key="admin_key")
    return next((each for each in answer.json()["data"] if each["worker"] == name), None)


async def operate(at: Up, name: str, verb: str) -> None:
    worker = await known(at, name)
    assert worker is not None
    answer = await at.request("POST", f"/v1/workers/{worker['id']}/{verb}", {}, key="admin_key")
    assert answer.is_success, answer.text


async def said(worker: Command, text: str) -> bool:
    return text in worker.stderr


async def test_it_runs_jobs_with_the_sdk_alone(site: tuple[Shell, Up], sh: Shell) -> None:
    _, at = site
    hire(sh, at, "one", "--slots", "2")
    jobs = [await at.submit("echo", {"number": n}) for n in range(5)]
    outputs = [(await at.until("ended", job))["output"] for job in jobs]
    assert [output["number"] for output in outputs] == list(range(5))
    assert {output["by"] for output in outputs} == {"one"}
    logs = (await at.request("GET", f"/v1/jobs/{jobs[3]}/logs")).json()["data"]
    assert [line["text"] for line in logs] == ["number 3"]
    odd = await at.submit("unreadable", {"x": 1, "y": 2})
    assert (await at.until("ended", odd))["output"] == ["x", "y"]
    silent = await at.submit("silent")
    assert (await at.until("ended", silent))["error"]["code"] == "stalled"
    asking = await at.submit("asking")
    await at.until("parked", asking)
    await at.request("POST", f"/v1/jobs/{asking}/answer", {"answer": 7}, key="admin_key")
    assert (await at.until("ended", asking))["output"] == [{"asked": True}, 7]


def test_the_environment_has_the_sdk_alone(sh: Shell) -> None:
    """Or the other tests prove nothing."""
    looked = sh.launch(sys.executable, BARE, "millpond.engine.engine")
    assert looked.wait() == 1
    assert "ModuleNotFoundError" in looked.stderr
    assert {"asyncpg", "structlog", "typer", "starlette", "jsonschema_rs", "uuid_utils"} <= bare.absent()
    assert not {"httpx2", "msgspec", "millpond"} & bare.absent()


async def test_its_jobs_have_steps_and_children(site: tuple[Shell, Up], sh: Shell) -> None:
    _, at = site
    hire(sh, at, "one", "--slots", "2")
    hire(sh, at, "two", "--slots", "2")
    job = await at.submit("composed", {"parts": 30})
    await until(lambda: asked(at, job))
    refused = await at.request("POST", f"/v1/jobs/{job}/answer", {"answer": "yes"}, key="client_key")
    assert refused.status_code == 403
    await at.request("POST", f"/v1/jobs/{job}/answer", {"answer": "yes"}, key="admin_key")
    output = (await at.until("ended", job))["output"]
    assert output["first"] in {"one", "two"}
    assert (output["numbers"], output["answer"]) == (list(range(30)), "yes")
    children = (await at.request("GET", f"/v1/jobs/{job}/children?limit=20")).json()
    assert (children["counts"]["submitted"], children["counts"]["succeeded"], len(children["data"])) == (30, 30, 20)
    assert {child["parent_id"] for child in children["data"]} == {job}
    assert (children["budget"]["amount"], children["budget"]["spent"]) == (10, 0)
    rest = (await at.request("GET", f"/v1/jobs/{job}/children?cursor={children['next_cursor']}")).json()
    assert [child["input"]["number"] for child in rest["data"]] == list(range(20, 30))


async def asked(at: Up, job: str) -> bool:
    return bool((await at.request("GET", f"/v1/jobs/{job}/questions", key="admin_key")).json()["data"])


async def test_a_file_goes_through_storage_and_arrives_whole(site: tuple[Shell, Up], sh: Shell) -> None:
    _, at = site
    hire(sh, at, "painter")
    words = b"quiet words " * 100_000
    digest = hashlib.sha256(words).hexdigest()
    fields = {"name": "words.txt", "content_type": "text/plain", "size": len(words), "sha256": digest}
    made = (await at.request("POST", "/v1/artifacts", fields)).json()
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        put = made["upload"]
        assert (await http.request(put["method"], put["url"], headers=put["headers"], content=words)).is_success
        job = await at.until("ended", await at.submit("shout", {"words": made["id"]}))
        assert job["error"] is None
        file = job["output"]["file"]
        kept = (await at.request("GET", f"/v1/artifacts/{file['id']}")).json()
        got = await http.get(kept["download"]["url"])
    assert got.content == words.upper()
    assert kept["sha256"] == file["sha256"] == hashlib.sha256(words.upper()).hexdigest()
    assert (kept["name"], kept["size"], kept["content_type"]) == ("loud.txt", len(words), "text/plain")


@pytest.mark.slow
async def test_a_job_whose_worker_was_killed_is_finished_by_another(
    site: tuple[Shell, Up], sh: Shell, tmp_path: Path
) -> None:
    _, at = site
    file = tmp_path / "go"
    first = hire(sh, at, "killed")
    job = await at.submit("hold", {"file": str(file)})
    await at.until("leased", job)
    first.kill()
    hire(sh, at, "heir")
    file.touch()
    assert (await at.until("ended", job))["output"] == {"by": "heir", "epoch": 2}


@pytest.mark.slow
async def test_a_worker_that_wakes_up_too_late_drops_its_result(
    site: tuple[Shell, Up], sh: Shell, tmp_path: Path
) -> None:
    """It was stopped for longer than its lease; its job is done by another, and it goes on with the next."""
    _, at = site
    file = tmp_path / "go"
    sleeper = hire(sh, at, "sleeper")
    job = await at.submit("hold_plain", {"file": str(file)})
    await at.until("leased", job)
    sleeper.process.send_signal(signal.SIGSTOP)
    file.touch()
    heir = hire(sh, at, "heir")
    done = await at.until("ended", job)
    assert done["output"] == {"by": "heir", "epoch": 2}
    heir.terminate()
    assert heir.wait() == 0
    sleeper.process.send_signal(signal.SIGCONT)
    following = await at.until("ended", await at.submit("echo"))
    assert following["output"]["by"] == "sleeper"
    assert await at.job(job) == done


async def test_sigterm_gives_back_what_is_not_done_and_leaves(
    site: tuple[Shell, Up], sh: Shell, tmp_path: Path
) -> None:
    _, at = site
    leaver = hire(sh, at, "leaver", MILLPOND_GRACE="0.3s")
    job = await at.submit("hold", {"file": str(tmp_path / "never")})
    await at.until("leased", job)
    leaver.terminate()
    assert leaver.wait() == 0
    left = await at.job(job)
    assert (left["phase"], left["attempts"], left["error"]["code"]) == ("ready", 0, "interrupted")
    assert await known(at, "leaver") is None
    await at.request("POST", f"/v1/jobs/{job}/cancel")


async def test_a_second_sigterm_ends_it_at_once(site: tuple[Shell, Up], sh: Shell, tmp_path: Path) -> None:
    _, at = site
    leaver = hire(sh, at, "hasty", MILLPOND_GRACE="1h")
    job = await at.submit("hold", {"file": str(tmp_path / "never")})
    await at.until("leased", job)
    leaver.terminate()
    await until(lambda: said(leaver, "worker.stopping"))
    leaver.terminate()
    assert leaver.wait() == 1
    await at.request("POST", f"/v1/jobs/{job}/cancel")


async def test_a_worker_that_is_thrown_out_stops_and_says_why(
    site: tuple[Shell, Up], sh: Shell, tmp_path: Path
) -> None:
    _, at = site
    rogue = hire(sh, at, "rogue")
    job = await at.submit("hold", {"file": str(tmp_path / "never")})
    await at.until("leased", job)
    await operate(at, "rogue", "revoke")
    assert rogue.wait() == 4
    assert "worker.dismissed" in rogue.stderr
    assert "revoked" in rogue.stderr.splitlines()[-1]
    assert at.ready["fleet_secret"] not in rogue.stderr
    await at.request("POST", f"/v1/jobs/{job}/cancel")


@pytest.mark.slow
async def test_a_worker_whose_token_is_taken_away_registers_again(
    site: tuple[Shell, Up], sh: Shell, tmp_path: Path
) -> None:
    """It drops what it had, and waits until its old self is silent."""
    _, at = site
    file = tmp_path / "go"
    worker = hire(sh, at, "renewed")
    job = await at.submit("hold", {"file": str(file)})
    await at.until("leased", job)
    await operate(at, "renewed", "rotate")
    await until(lambda: said(worker, "worker.waiting"))
    file.touch()
    assert (await at.until("ended", job))["output"] == {"by": "renewed", "epoch": 2}


@pytest.mark.parametrize(
    ("words", "environment", "code", "expected"),
    [
        ((), {"MILLPOND_FLEET_SECRET": "mp_worker_wrong"}, 4, "key"),
        ((), {"MILLPOND_FLEET_SECRET": ""}, 5, "The fleet secret is missing."),
        (("--route", "nowhere"), {}, 5, "nowhere"),
    ],
    ids=["a wrong secret", "no secret", "an unknown route"],
)
def test_what_cannot_work_is_reported_in_one_line(
    site: tuple[Shell, Up], sh: Shell, words: tuple[str, ...], environment: dict[str, str], code: int, expected: str
) -> None:
    worker = hire(sh, site[1], "misfit", *words, **environment)
    assert worker.wait() == code
    assert expected in worker.stderr.splitlines()[-1]
    assert "Traceback" not in worker.stderr


@pytest.mark.slow
async def test_work_goes_on_while_the_server_is_away(server: DatabaseServer, tmp_path: Path) -> None:
    """A job that ends meanwhile is reported when it is back; nothing runs twice."""
    file = tmp_path / "go"
    async with server.database() as dsn:
        with shell(tmp_path, dsn) as sh:
            first = await up(sh, APP, **CALM)
            worker = hire(sh, first, "patient", DATABASE_URL="")
            job = await first.submit("hold", {"file": str(file)})
            await first.until("leased", job)
            first.command.terminate()
            assert first.command.wait() == 0
            file.touch()
            await until(lambda: said(worker, "server.unavailable"))
            port = first.url.rpartition(":")[2]
            again = sh.start("up", APP, "--port", port, "--ready-file", first.ready_file, **CALM)
            await serving(again, first.ready_file)
            back = Up(again, first.ready_file, first.ready)
            assert (await back.until("ended", job))["output"] == {"by": "patient", "epoch": 1}
            later = await back.until("ended", await back.submit("echo"))
            assert later["output"]["by"] == "patient"


async def test_the_command_line_runs_the_same_worker(site: tuple[Shell, Up], sh: Shell) -> None:
    _, at = site
    job = await at.submit("echo", {"number": 3})
    secret = {"MILLPOND_FLEET_SECRET": at.ready["fleet_secret"], "WORKER": "typed"}
    worker = sh.start("worker", APP, "--url", at.url, "--route", "gpu", "--drain", **secret)
    assert worker.wait() == 0
    assert (await at.until("ended", job))["output"] == {"number": 3, "by": "typed", "epoch": 1}
