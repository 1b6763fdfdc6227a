"""Commands as scripts use them: real processes, their words on standard output, their outcome in the exit status."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.acceptance.processes import Command, Shell, shell, until
from tests.cli.ups import Up, up, write_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.databases import DatabaseServer

OUTCOMES = """
from millpond import PermanentError, BlockedError

@app.kind("good", price=2)
async def good(job: Job, text: str = "", number: int = 0) -> dict:
    await job.progress(0.5)
    await job.log("half way")
    return {"text": text, "number": number}

@app.kind("talking", price=2)
async def talking(job: Job) -> dict:
    await job.log("listen")
    for word in ("Once ", "upon ", "a \\x1b[31mtime"):
        await job.emit(word)
    return {"words": 4}

@app.kind("bad", price=2)
async def bad(job: Job) -> None:
    raise PermanentError("It cannot be done.")

@app.kind("blocked", price=2)
async def blocked(job: Job) -> None:
    raise BlockedError("Not this.")

@app.kind("slow", price=2)
async def slow(job: Job) -> None:
    while True:
        await asyncio.sleep(0.05)
        await job.checkpoint()

@app.kind("mortal", price=2, expires_in="1s")
async def mortal(job: Job) -> None:
    await asyncio.sleep(3600)

@app.kind("asking", price=2, expires_in="1h")
async def asking(job: Job) -> dict:
    if job.answer is None:
        job.park()
    return {"answer": job.answer}

@app.kind("frame")
async def frame(job: Job, n: int) -> int:
    return n

@app.kind("scene", price=3)
async def scene(job: Job, n: int, frames: int = 0) -> int:
    await job.gather(*(job.child("frame", {"n": frame}) for frame in range(frames)))
    return n

@app.kind("film", price=2, budget=20)
async def film(job: Job, frames: int) -> dict:
    await job.gather(job.child("scene", {"n": 1, "frames": frames}), job.child("scene", {"n": 2}))
    title = await job.ask("Which title?", schema={"type": "string"}, who="operator", name="title")
    place = await job.ask("Where?", name="place")
    return {"title": title, "place": place}
"""


@pytest.fixture(scope="module")
async def shop(
    anyio_backend: str, server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Shell, Up]]:
    async with server.database() as dsn:
        with shell(tmp_path_factory.mktemp("shop"), dsn) as sh:
            yield sh, await up(sh, write_app(sh.folder, OUTCOMES))


@pytest.fixture
def sh(shop: tuple[Shell, Up]) -> Shell:
    """A shell where the product runs."""
    return shop[0]


@pytest.fixture
def product(shop: tuple[Shell, Up]) -> Up:
    return shop[1]


@pytest.fixture
def alone(tmp_path: Path, dsn: str) -> Iterator[Shell]:
    """A shell with a database, where nothing runs."""
    with shell(tmp_path, dsn) as made:
        yield made


def data(command: Command) -> Any:
    return msgspec.json.decode(command.stdout)


# Run


async def test_run_prints_the_output_and_talks_beside_it(sh: Shell, product: Up) -> None:
    ran = sh.run("run", "good", "--input", "text=five words", "--input", "number=5")
    assert (ran.process.returncode, data(ran)) == (0, {"text": "five words", "number": 5})
    assert "half way" in ran.stderr
    assert "succeeded; 2 of 2 credits" in ran.stderr


async def test_tags_are_set_and_looked_for(sh: Shell, product: Up) -> None:
    tagged = data(sh.run("run", "good", "--wait", "--tag", "team=ads", "--tag", "note=a=b: c", "--json"))
    assert tagged["tags"] == {"team": "ads", "note": "a=b: c"}
    plain = data(sh.run("run", "good", "--wait", "--json"))
    found = data(sh.run("jobs", "list", "--tag", "team=ads", "--tag", "note=a=b: c", "--json"))
    assert [job["id"] for job in found["data"]] == [tagged["id"]]
    assert plain["id"] in [job["id"] for job in data(sh.run("jobs", "list", "--json"))["data"]]
    seen = data(sh.run("bulk", "retry", "--tag", "team=ads", "--dry-run", "--json"))
    assert [line["id"] for line in seen["sample"]] == [tagged["id"]]
    for command in (("run", "good"), ("jobs", "list")):
        wrong = sh.run(*command, "--tag", "team")
        assert wrong.process.returncode != 0
        assert "--tag" in wrong.stderr
        assert "'team' is not a key and a value. Write team=ads." in wrong.stderr


@pytest.mark.parametrize("mode", ["--watch", "--wait"])
@pytest.mark.parametrize(
    ("kind", "status", "outcome"), [("good", 0, "succeeded"), ("bad", 10, "failed"), ("blocked", 10, "blocked")]
)
async def test_the_exit_status_reports_how_the_job_ended(
    sh: Shell, product: Up, mode: str, kind: str, status: int, outcome: str
) -> None:
    ran = sh.run("run", kind, mode, "--json")
    assert (ran.process.returncode, data(ran)["outcome"]) == (status, outcome)
    assert sh.run("jobs", "wait", data(ran)["id"]).process.returncode == status
    watched = sh.run("jobs", "watch", data(ran)["id"], "--json")
    events = [msgspec.json.decode(line) for line in watched.stdout.splitlines()]
    assert watched.process.returncode == status
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == outcome


async def test_a_job_that_expires_and_one_that_is_canceled_have_their_own_status(sh: Shell, product: Up) -> None:
    assert sh.run("run", "mortal").process.returncode == 12
    job_id = await product.submit("slow")
    waiting = sh.start("jobs", "wait", job_id)
    watching = sh.start("jobs", "watch", job_id)
    await product.until("leased", job_id)
    canceled = sh.run("jobs", "cancel", job_id, "--yes", "--json")
    assert data(canceled)["is_accepted"]
    assert (waiting.wait(), watching.wait()) == (11, 11)


async def test_patience_has_an_end_and_the_job_goes_on(sh: Shell, product: Up) -> None:
    for mode in ("--watch", "--wait"):
        ran = sh.run("run", "slow", mode, "--timeout", "0.3s", "--json")
        assert ran.process.returncode == 7
        assert "continues" in ran.stderr
        await product.until("leased", data(ran)["id"])


async def test_an_interrupt_leaves_with_its_own_status(sh: Shell, product: Up) -> None:
    running = sh.start("run", "slow")

    async def is_watching() -> bool:
        return "started" in running.stderr

    await until(is_watching)
    running.process.send_signal(signal.SIGINT)
    assert running.wait() == 130
    assert "Traceback" not in running.stderr


async def test_the_input_comes_from_words_files_and_standard_input(sh: Shell, product: Up) -> None:
    (sh.folder / "input.json").write_text('{"text": "from a file", "number": 1}')
    ran = sh.run("run", "good", "-i", "@input.json", "-i", "number=2", "--wait")
    assert data(ran) == {"text": "from a file", "number": 2}
    ran = sh.run("run", "good", "-i", "-")
    assert ran.process.returncode == 2
    assert "standard input is not a JSON object" in ran.stderr


async def test_a_key_of_idempotency_runs_one_job(sh: Shell, product: Up) -> None:
    ids = {data(sh.run("run", "good", "--idempotency-key", "one", "--json"))["id"] for _ in range(2)}
    assert len(ids) == 1


async def test_logs_are_followed_to_the_end(sh: Shell, product: Up) -> None:
    job_id = await product.submit("good")
    followed = sh.run("jobs", "logs", job_id, "--follow", "--json")
    (line,) = [msgspec.json.decode(line) for line in followed.stdout.splitlines()]
    assert line["text"] == "half way"


async def test_text_is_printed_as_it_comes(sh: Shell, product: Up) -> None:
    ran = sh.run("run", "talking")
    assert (ran.process.returncode, data(ran)) == (0, {"words": 4})
    assert "  listen\nOnce upon a \ufffd[31mtime\nsucceeded" in ran.stderr  # not a command to the terminal
    job_id = await product.submit("talking")
    read = sh.run("jobs", "text", job_id)
    assert (read.process.returncode, read.stdout) == (0, "Once upon a \x1b[31mtime")
    assert f"{job_id} succeeded" in read.stderr
    read = sh.run("jobs", "text", job_id, "--json")
    *chunks, job = [msgspec.json.decode(line) for line in read.stdout.splitlines()]
    assert "".join(chunk["text"] for chunk in chunks) == "Once upon a \x1b[31mtime"
    assert (chunks[0]["number"], job["id"], job["outcome"]) == (1, job_id, "succeeded")
    watched = sh.run("jobs", "watch", job_id, "--json")
    assert "chunk" not in watched.stdout


async def test_the_text_of_a_job_is_read_where_only_a_database_is(sh: Shell, product: Up) -> None:
    """There are no streams: the text is polled."""
    job_id = await product.submit("talking")
    await product.until("ended", job_id)
    read = sh.run("jobs", "text", job_id, "--database-url", str(sh.dsn))
    assert (read.process.returncode, read.stdout) == (0, "Once upon a \x1b[31mtime"), read.stderr


async def test_a_parked_job_gets_its_answer_and_an_ended_one_runs_again(sh: Shell, product: Up) -> None:
    job_id = await product.submit("asking")
    await product.until("parked", job_id)
    assert sh.run("jobs", "answer", job_id, '{"approved": true}').process.returncode == 0
    job = await product.until("ended", job_id)
    assert job["output"] == {"answer": {"approved": True}}
    refused = sh.run("jobs", "retry", job_id)
    assert "The job has succeeded." in refused.stderr
    again = data(sh.run("jobs", "retry", job_id, "--even-if-succeeded", "--json"))
    assert again["id"] != job_id
    bulk = data(sh.run("bulk", "retry", "--job", job_id, "--even-if-succeeded", "--yes", "--watch", "--json"))
    assert (bulk["done"], bulk["arguments"]) == (1, {"even_if_succeeded": True})


async def test_a_composed_job_is_shown_with_its_tree_and_gets_its_answers(sh: Shell, product: Up) -> None:
    job_id = await product.submit("film", {"frames": 203})  # more than a page
    await until(lambda: asked(product, job_id))
    page = data(sh.run("jobs", "children", job_id, "--limit", "1", "--json"))
    rest = data(sh.run("jobs", "children", job_id, "--cursor", page["next_cursor"], "--json"))
    scenes = [job["id"] for job in page["data"] + rest["data"]]
    assert (page["counts"]["succeeded"], page["parents"], rest["next_cursor"]) == (2, scenes[:1], None)
    shown = sh.run("jobs", "children", job_id).stdout
    assert "2 of 2 have ended: 2 succeeded" in shown
    assert "Of 20 credits, 6 are spent, 0 reserved, 14 left" in shown
    lines = [msgspec.json.decode(line) for line in sh.run("jobs", "tree", job_id, "--json").stdout.splitlines()]
    assert [(line["depth"], line["kind"]) for line in lines] == [
        (0, "film"),
        (1, "scene"),
        *[(2, "frame")] * 203,
        (1, "scene"),
    ]
    assert [line["id"] for line in lines if line["depth"] == 1] == scenes
    tree = sh.run("jobs", "tree", job_id).stdout.splitlines()
    assert tree[0] == f"{job_id}  film  parked (waits for an answer)  2 credits"
    assert tree[1] == f"  {scenes[0]}  scene  succeeded  3 credits"
    assert tree[2].endswith("  frame  succeeded")
    (question,) = data(sh.run("jobs", "questions", job_id, "--json"))["data"]
    assert (question["name"], question["who"], question["schema"]) == ("title", "operator", {"type": "string"})
    assert "Which title?" in sh.run("jobs", "questions", job_id).stdout
    wrong = sh.run("jobs", "answer", job_id, "5")
    assert (wrong.process.returncode, "answer" in wrong.stderr) == (5, True)
    absent = sh.run("jobs", "answer", job_id, "Rain", "--question", "place")
    assert absent.process.returncode == 3
    assert sh.run("jobs", "answer", job_id, "Rain", "--question", "title").process.returncode == 0
    await until(lambda: asked(product, job_id, 2))
    assert sh.run("jobs", "answer", job_id, '"Rome"').process.returncode == 0
    assert (await product.until("ended", job_id))["output"] == {"title": "Rain", "place": "Rome"}
    late = sh.run("jobs", "answer", job_id, "Paris", "--question", "place")
    assert (late.process.returncode, "another answer" in late.stderr) == (5, True)


async def asked(product: Up, job_id: str, count: int = 1) -> bool:
    """Whether the job has asked so many questions, and waits."""
    found = await product.request("GET", f"/v1/jobs/{job_id}/questions", key="admin_key")
    return len(found.json()["data"]) == count and (await product.job(job_id))["phase"] == "parked"


# Where a command looks


async def test_scripts_make_keys_grant_and_ask_with_a_data_directory_alone(tmp_path: Path) -> None:
    """No server runs: the same API answers in the command's own process."""
    with shell(tmp_path, None) as sh:
        where = ("--data-dir", "data", "--json")
        owner = ("--tenant", "acme", "--account", "mary")
        made = data(sh.run("keys", "create", *owner, "--scope", "client", *where))
        assert made["key"].startswith("mp_client_")
        assert data(sh.run("credits", "grant", *owner, "--amount", "7", *where))["available"] == 7
        balance = data(sh.run("credits", "get", *owner, *where))
        assert (balance["available"], balance["held"]) == (7, 0)
        verified = sh.run("verify", *where)
        assert (verified.process.returncode, data(verified)) == (0, {"ok": True, "violations": []})


async def test_a_server_is_named_by_options_or_by_the_environment(system: tuple[Shell, Up], sh: Shell) -> None:
    _, server = system
    key = server.ready["client_key"]
    asked = sh.run("credits", "get", "--url", server.url, "--key", key, "--json")
    assert data(asked)["account"] == "dev"
    asked = sh.run("credits", "get", "--json", MILLPOND_URL=server.url, MILLPOND_API_KEY=key)
    assert data(asked)["account"] == "dev"


async def test_a_client_key_is_refused_what_is_for_operators(system: tuple[Shell, Up], sh: Shell) -> None:
    _, server = system
    for key in (server.ready["client_key"], "mp_admin_nonsense"):
        asked = sh.run("keys", "list", "--url", server.url, "--key", key, "--json")
        assert asked.process.returncode == 4
        assert data(asked)["code"] in {"forbidden", "unauthorized"}
        assert key not in asked.stdout + asked.stderr


def test_a_server_and_a_database_cannot_both_be_meant(sh: Shell) -> None:
    asked = sh.run("jobs", "list", "--url", "http://127.0.0.1:1", "--key", "x", "--data-dir", "data")
    assert asked.process.returncode == 2


def test_a_server_that_is_not_there_is_reported_in_one_line(sh: Shell) -> None:
    asked = sh.run("jobs", "list", "--url", "http://127.0.0.1:1", "--key", "x")
    assert asked.process.returncode == 8
    assert len(asked.stderr.splitlines()) == 1


def test_where_there_is_nothing_nothing_is_made(tmp_path: Path) -> None:
    with shell(tmp_path, None) as sh:
        asked = sh.run("jobs", "list")
        assert asked.process.returncode == 8
        assert "millpond up" in asked.stderr
        assert not (tmp_path / ".millpond").exists()


async def test_the_app_of_the_settings_is_known_to_a_command_without_a_server(alone: Shell) -> None:
    write_app(alone.folder, OUTCOMES)
    owner = ("--tenant", "acme", "--account", "mary")
    alone.run("credits", "grant", *owner, "--amount", "9")
    ran = alone.run("run", "good", "--detach", *owner, "--json", MILLPOND_APP="app.py")
    assert data(ran)["available"] == 7
    ran = alone.run("run", "good", "--detach", *owner)
    assert ran.process.returncode == 5


# Settings


def test_config_shows_no_secret(sh: Shell) -> None:
    for url in (
        "postgresql://user:topsecret@db.internal/product?sslmode=require",
        "postgresql://db.internal/product?user=u&password=topsecret",
    ):
        shown = sh.run("config", "list", "--json", DATABASE_URL=url, MILLPOND_API_KEY="mp_client_topsecret")
        assert "db.internal" in data(shown)["database_url"]
        assert "topsecret" not in shown.stdout + shown.stderr


def test_config_list_reports_all_problems_at_once(sh: Shell) -> None:
    asked = sh.run("config", "list", "--json", MILLPOND_SLOTS="none", MILLPOND_PORTT="1")
    assert asked.process.returncode == 5
    assert "MILLPOND_SLOTS" in data(asked)["detail"]
    assert "Did you mean MILLPOND_PORT?" in data(asked)["detail"]


async def test_doctor_names_what_is_ill(alone: Shell) -> None:
    asked = alone.run("doctor", "--json", MILLPOND_URL="http://127.0.0.1:1", MILLPOND_API_KEY="x")
    assert asked.process.returncode == 1
    assert [finding["name"] for finding in data(asked)["findings"] if not finding["is_well"]] == ["api"]
    alone.dsn = "postgresql://nobody@/nothing?host=%2Fnowhere"
    asked = alone.run("doctor", "--json")
    assert [finding["name"] for finding in data(asked)["findings"] if not finding["is_well"]] == ["database"]
