"""run-command: real programs, well and sick."""

from __future__ import annotations

import asyncio
import json
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from products.tests.actions.deployments import COMMANDS, ENDED, Deployment, User

from millpond.errors import SettingsError
from millpond_products.actions import commands, lines, run_command
from millpond_products.actions.lines import LENGTH_MAX, OutputBudget, Pipe, Splitter
from millpond_products.actions.routes import handlers
from millpond_products.settings import ProductSettings
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTES = 128
"""A gigabyte takes the same way, and longer."""


async def python(user: User, code: str, *arguments: str, **more: Any) -> dict[str, Any]:
    return await user.done("run-command", command="python", arguments=[code, *arguments], **more)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.02)


def is_alive(process: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_act_11_both_outputs_become_lines_and_the_status_is_reported(user: User) -> None:
    job = await python(user, "import sys; print('one'); print('two'); print('bad', file=sys.stderr)")
    assert job["state"] == "success"
    assert (job["output"]["exitStatus"], job["output"]["signal"], job["output"]["droppedLines"]) == (0, None, 0)
    listed = [(line["level"], line["text"]) for line in await user.lines(job["id"])]
    assert [text for level, text in listed if level == "info"] == ["one", "two"]
    assert [text for level, text in listed if level == "error"] == ["bad"]


async def test_act_11_lines_appear_while_the_program_runs(user: User, tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = (
        "import os,sys,time\nprint('first', flush=True)\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('second')"
    )
    job_id = await user.submit("run-command", command="python", arguments=[code, str(go)])
    async with asyncio.timeout(PATIENCE), user.watching(job_id) as described:
        texts: list[str] = []
        async for message in described:
            texts.append(message.data.get("text", message.event))
            if texts == ["first"]:
                assert (await user.job(job_id))["state"] == "running"
                go.touch()
    assert texts == ["first", "second", "status"]


async def test_act_11_a_failing_program_fails_with_its_status_and_last_lines(user: User) -> None:
    job = await python(user, "import sys\nfor n in range(30): print('line', n, file=sys.stderr)\nsys.exit(3)")
    assert (job["state"], job["output"]) == ("failed", None)
    assert (job["error"]["code"], job["error"]["exitStatus"]) == ("permanent", 3)
    assert job["error"]["message"] == "The command ended with status 3."
    assert job["error"]["lastLines"] == [f"line {n}" for n in range(20, 30)]


async def test_act_11_a_program_that_a_signal_ends_says_so(user: User) -> None:
    job = await python(user, "import os; os.kill(os.getpid(), 11)")
    assert (job["state"], job["error"]["signal"], job["error"]["exitStatus"]) == ("failed", "SIGSEGV", None)


async def test_a_command_that_is_not_allowed_is_refused_with_those_that_are(deployment: Deployment, user: User) -> None:
    body = {"action": "run-command", "input": {"command": "rm", "arguments": ["-rf", "/"]}}
    problem = await user.refused("POST", "/api/jobs", body, status=422)
    assert problem["field"] == "input.command"
    assert all(name in problem["hint"] for name in COMMANDS)
    # By another way it comes to the worker, which refuses too.
    made = await deployment.engine.submit("actions.run-command", {"command": "rm"}, tenant="acme", account=user.name)
    job = await user.until(made.id, "failed")
    assert job["error"]["field"] == "input.command"
    assert await user.lines(made.id) == []


def test_where_none_is_allowed_the_refusal_says_how_to_allow_one() -> None:
    with pytest.raises(Exception, match="an operator can set MILLPOND_COMMANDS"):
        commands.find(commands.read(""), "echo")


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"a": "echo"}', '{"a": []}', '{"a": [""]}', '{"two words": ["echo"]}', '{"a": ["e\\u0000"]}']
)
async def test_a_list_that_cannot_be_read_is_reported_when_a_process_starts(deployment: Deployment, text: str) -> None:
    with pytest.raises(SettingsError, match="MILLPOND_COMMANDS: "):
        ProductSettings.from_env({"MILLPOND_COMMANDS": text})
    with pytest.raises(SettingsError) as refused:
        handlers(deployment.engine, ProductSettings(commands=text))
    assert refused.value.field == "commands"


@pytest.mark.parametrize(
    "word", ["; touch HERE", "$(touch HERE)", "`touch HERE`", "a\nb", "* ~ $HOME", "--help", "ü—😀"]
)
async def test_arguments_reach_the_program_as_they_are(user: User, word: str) -> None:
    job = await python(user, "import json,sys; print(json.dumps(sys.argv[1:]))", word, "", "last")
    assert json.loads((await user.texts(job["id"]))[0]) == [word, "", "last"]


async def test_an_argument_with_a_nul_is_refused(user: User) -> None:
    body = {"action": "run-command", "input": {"command": "echo", "arguments": ["fine", "a\0b"]}}
    problem = await user.refused("POST", "/api/jobs", body, status=422)
    assert problem["field"] == "input.arguments[1]"


async def test_a_program_sees_nothing_of_our_environment(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLPOND_API_KEY", "mp_secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    job = await python(
        user, "import json,os; print(json.dumps([dict(os.environ), os.getcwd(), os.getpgrp() == os.getpid()]))"
    )
    environment, folder, leads = json.loads((await user.texts(job["id"]))[0])
    assert set(environment) - {"LC_CTYPE"} == {"PATH", "LANG", "HOME", "TMPDIR"}
    assert (environment["HOME"], leads) == (folder, True)
    assert not Path(folder).exists()


async def test_a_program_reads_what_it_is_given_and_else_nothing(user: User) -> None:
    job = await python(user, "import sys; print(len(sys.stdin.read()))", stdin="é" * 50_000)
    assert await user.texts(job["id"]) == ["50000"]
    job = await python(user, "import sys; print(repr(sys.stdin.read()))")
    assert await user.texts(job["id"]) == ["''"]


async def test_a_program_that_cannot_be_started_says_so(user: User) -> None:
    job = await user.done("run-command", command="absent")
    assert (job["state"], job["error"]["message"]) == (
        "failed",
        "The program '/nowhere/at/all' cannot be started: No such file or directory.",
    )


async def test_output_without_a_line_end_is_reported_all_the_same(user: User, tmp_path: Path) -> None:
    """In pieces where it is long, and after a moment where it is short."""
    go = tmp_path / "go"
    code = (
        f"import os,sys,time\nsys.stdout.write('x' * {LENGTH_MAX * 2} + 'short'); sys.stdout.flush()\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)"
    )
    job_id = await user.submit("run-command", command="python", arguments=[code, str(go)])
    async with asyncio.timeout(PATIENCE):
        while len(found := await user.texts(job_id)) < 3:
            await asyncio.sleep(0.05)
    go.touch()
    assert [len(text) for text in found] == [LENGTH_MAX, LENGTH_MAX, 5]
    assert (await user.until(job_id, "success"))["output"]["droppedBytes"] == 0


async def test_much_output_fills_neither_the_memory_nor_the_database(user: User) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "import sys\nfor _ in range(int(sys.argv[1])): sys.stdout.buffer.write((b'y' * 1023 + b'\\n') * 1024)"
    job = await python(user, code, str(MEGABYTES))
    assert job["state"] == "success"
    kept = await user.lines(job["id"])
    assert sum(len(line["text"]) + 1 for line in kept[:-1]) + job["output"]["droppedBytes"] == MEGABYTES * 1024**2
    assert len(kept) == lines.BYTES_MAX // 1024 + 1
    assert kept[-1]["level"] == "warning"
    assert job["output"]["droppedLines"] == MEGABYTES * 1024 - (len(kept) - 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # kilobytes


async def test_what_a_program_wrote_last_is_reported_though_it_has_ended_long_before(user: User) -> None:
    """It writes faster than the log does, and what is in its pipe when it ends takes a while."""
    job = await python(user, "for n in range(9_900): print(n)")
    assert await user.texts(job["id"]) == [str(n) for n in range(9_900)]
    assert job["output"]["droppedLines"] == 0


async def test_the_end_of_what_was_not_kept_is_still_reported_of_a_failure(user: User) -> None:
    job = await python(
        user, "import sys\nsys.stdout.write('y\\n' * 200_000)\nprint('the reason', file=sys.stdout)\nsys.exit(1)"
    )
    assert job["error"]["lastLines"][-1] == "the reason"
    assert job["error"]["droppedLines"] > 150_000


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_output_is_over_when_the_program_is(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was started to end the program holds on to it, whatever a loop lets that inherit."""
    monkeypatch.setattr(run_command, "LINGER", 3600.0)

    async def ended() -> bytes:
        async with asyncio.timeout(PATIENCE), run_command._started(["echo", "hi"], None, tmp_path) as started:
            process, pipes, guard = started
            outputs: Any = [Output(pipe) for pipe in pipes]
            await run_command._until_over(process, guard, outputs)
            return outputs[0].all

    assert run(ended()) == b"hi\n"


class Output:
    """An output that is only read."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.all = b""

    async def run(self) -> None:
        self.all = await self._pipe.read()


GRANDCHILD = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
print(os.getpid(), child.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("how", ["cancelled", "late", "ended"])
async def test_nothing_of_a_program_is_left_behind(user: User, how: str) -> None:
    """Not even what it started, and what takes no notice of being asked."""
    given: dict[str, Any] = {"command": "python", "arguments": [GRANDCHILD, "0" if how == "ended" else "600"]}
    for seconds in (1, 5, 25) if how == "late" else (600,):  # on a busy machine, Python takes its time to begin
        job_id = await user.submit("run-command", **given, timeoutSeconds=seconds)
        if described := await begun(user, job_id):
            break
    processes = [int(word) for word in described[0].split()]
    if how == "cancelled":
        assert all(map(is_alive, processes))
        await user.send("POST", f"/api/jobs/{job_id}/cancel")
    job = await user.until(job_id, "cancelled", "failed", "success")
    await until(lambda: not any(map(is_alive, processes)))
    assert job["state"] == {"cancelled": "cancelled", "late": "failed", "ended": "success"}[how]
    if how == "late":
        assert job["error"]["message"] == f"The command ran longer than {seconds} s."


async def begun(user: User, job_id: str) -> list[str]:
    """The first lines of a command; none, if it ended before it said anything."""
    async with asyncio.timeout(PATIENCE):
        while not (described := await user.texts(job_id)):
            if (await user.job(job_id))["state"] in ENDED:
                return await user.texts(job_id)
            await asyncio.sleep(0.02)
    return described


async def test_a_command_that_a_dead_worker_began_is_not_begun_again(idle: Deployment) -> None:
    user = await idle.user()
    job_id = await user.submit("run-command", command="echo", arguments=["twice"])
    lease = await idle.claimed("run-command")
    await idle.engine.proceed(lease, {"begun": lease.epoch}, {"begun": lease.epoch})
    await idle.died(lease)
    assert (await user.job(job_id))["state"] == "running"
    await idle.work()
    job = await user.job(job_id)
    assert job["error"]["message"].startswith("The command was started by a worker that disappeared.")
    assert await user.lines(job_id) == []


# Lines


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a\r", b"\nb\r\n\n"], ["a", "b", ""]),
        ([b"10%\r20%\r"], ["10%", "20%"]),
        ([b"\xc3", b"\xa9\n"], ["é"]),
        ([b"\xff\xfe\n"], ["\ufffd\ufffd"]),
        ([b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x00\x08x\n"], ["red \ufffd\ufffdx"]),
        ([b"tab\tkept\n"], ["tab\tkept"]),
        ([b"no end"], ["no end"]),
        ([b"\xc3"], ["\ufffd"]),
        ([], []),
    ],
)
def test_bytes_become_lines(chunks: list[bytes], expected: list[str]) -> None:
    splitter = Splitter()
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert [*found, *splitter.feed(b"", is_last=True), *splitter.flush()] == expected


def test_a_long_line_is_cut_and_nothing_of_it_is_lost() -> None:
    text = "äb" * 30_000
    splitter, found = Splitter(), list[str]()
    raw = f"{text}\nend".encode()
    for start in range(0, len(raw), 777):
        found += splitter.feed(raw[start : start + 777])
    found += splitter.flush()
    assert "".join(found) == f"{text}end"
    assert max(map(len, found)) <= LENGTH_MAX


def test_what_is_not_kept_is_counted() -> None:
    budget = OutputBudget()
    assert len(budget.take(["x"] * (lines.LINES_MAX + 5))) == lines.LINES_MAX
    budget.drop(b"a\nb\nc")
    assert (budget.dropped_lines, budget.dropped_bytes) == (7, 15)
