"""The two clients are one: the same verbs, written once; and what each must bear on its own."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

import millpond
from millpond import AsyncBatchHandle, AsyncClient, AsyncJobHandle, BatchHandle, Client, JobHandle
from millpond.client.verbs import Verbs
from tests.doubles.native_api import KEY, NativeApi, Server, cut_after_it_is_done
from tests.waiting import PATIENCE

# What a bare installation does not bring.
EXTRA = (
    "asyncpg",
    "cronsim",
    "jsonschema_rs",
    "rich",
    "starlette",
    "structlog",
    "typer",
    "uuid_utils",
    "uvicorn",
    "uvloop",
)


def names(made: type) -> set[str]:
    return {name for name in dir(made) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("awaited", "blocking"), [(AsyncClient, Client), (AsyncJobHandle, JobHandle), (AsyncBatchHandle, BatchHandle)]
)
def test_both_have_the_same_verbs_with_the_same_arguments(awaited: type, blocking: type) -> None:
    assert names(awaited) == names(blocking) - {"verbs"}
    for name in names(awaited):
        theirs, ours = inspect.getattr_static(awaited, name), inspect.getattr_static(blocking, name)
        if callable(theirs):
            assert inspect.signature(theirs).parameters.keys() == inspect.signature(ours).parameters.keys()
            assert inspect.getdoc(theirs) == inspect.getdoc(ours)
            assert inspect.getdoc(theirs), f"{name} has no docstring"


def test_a_verb_is_written_once() -> None:
    for name in names(AsyncClient):
        verb = inspect.getattr_static(Client, name)
        if name not in {"url", "job", "batch_of"}:
            assert verb.__wrapped__ is inspect.getattr_static(Verbs, name)


def test_threads_share_a_blocking_client(api: NativeApi, double: Server) -> None:
    start = threading.Barrier(16)

    def work(number: int) -> tuple[str, int]:
        start.wait()
        job = client.submit("ad", {"n": number})
        api.jobs[job.id].happen("succeeded", output={"n": number})
        return job.id, job.result()["n"]

    with Client(double.url, KEY) as client, ThreadPoolExecutor(16) as pool:
        done = list(pool.map(work, range(16)))
    assert [number for _, number in done] == list(range(16))
    assert len({job_id for job_id, _ in done}) == 16


async def test_tasks_share_an_awaited_client(api: NativeApi, double: Server) -> None:
    async with AsyncClient(double.url, KEY) as client:
        jobs = await asyncio.gather(*(client.submit("ad", {"n": number}) for number in range(50)))
    assert [api.jobs[job.id].input["n"] for job in jobs] == list(range(50))


async def test_a_blocking_client_works_where_a_loop_runs(api: NativeApi, double: Server) -> None:
    """As in a notebook."""
    with Client(double.url, KEY) as client:
        job = client.submit("ad")
        reader = client.events(job.id)
        assert next(reader).type == "submitted"
        api.jobs[job.id].happen("succeeded")
        assert [event.type for event in reader] == ["succeeded"]


def test_leaving_a_race_early_leaves_no_lane_behind(api: NativeApi, double: Server) -> None:
    with Client(double.url, KEY) as client:
        jobs = [client.submit("ad") for _ in range(3)]
        api.jobs[jobs[0].id].happen("succeeded")
        race = client.as_completed(jobs)
        assert next(race).id == jobs[0].id
        race.close()  # type: ignore[attr-defined]
        lanes = [thread for thread in threading.enumerate() if thread.name == "millpond-client"]
        for job in jobs[1:]:
            api.jobs[job.id].happen("succeeded")
        for lane in lanes:
            lane.join(PATIENCE)
        assert not any(lane.is_alive() for lane in lanes)


async def test_an_error_in_one_lane_of_a_race_reaches_the_caller(client: Any, api: NativeApi) -> None:
    job = await client.submit("ad")
    with pytest.raises(millpond.errors.NotFoundError):
        async for _ in client.as_completed([job.id, "job_x"], timeout=PATIENCE):
            pass


async def test_an_app_in_this_process_needs_no_key_and_is_read_in_pages(api: NativeApi) -> None:
    async with AsyncClient(transport=httpx2.ASGITransport(api)) as client:
        job = await client.submit("ad")
        api.jobs[job.id].happen("succeeded")
        assert [event.type async for event in job.events()] == ["submitted", "succeeded"]
        assert api.asked_for("GET", "/stream") == []


async def test_idle_connections_are_used_again(client: Any, api: NativeApi) -> None:
    for _ in range(5):
        await client.wallet()
    assert len({request.client for request in api.asked}) == 1


async def test_a_lost_answer_to_a_submit_is_still_one_job(client: Any, api: NativeApi) -> None:
    api.faults.extend([cut_after_it_is_done] * 3)
    await client.submit("ad")
    assert len(api.jobs) == 1


# Without the server


def test_every_public_name_is_there() -> None:
    for name in set(millpond.__all__) - {"__version__"}:
        assert getattr(millpond, name).__name__ == name
    assert millpond.__version__
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = millpond.Nonsense  # type: ignore[attr-defined]


def run_bare(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program where nothing of the server can be imported."""
    bar = f"import sys\nfor name in {EXTRA!r}: sys.modules[name] = None\n"
    return subprocess.run([sys.executable, "-c", bar + program], capture_output=True, text=True, check=False)


def test_the_client_needs_nothing_of_the_server(double: Server) -> None:
    program = f"import millpond\nprint(millpond.Client({double.url!r}, {KEY!r}).submit('ad').state, millpond.Backoff())"
    done = run_bare(program)
    assert done.stdout.startswith("queued Backoff("), done.stderr


def test_what_needs_the_server_says_what_to_install() -> None:
    done = run_bare("import millpond\nmillpond.Engine")
    assert done.stderr.splitlines()[-1].startswith("ImportError: millpond.Engine requires ")
    assert done.stderr.splitlines()[-1].endswith("run pip install 'millpond[server]'.")


def test_the_command_line_says_what_to_install() -> None:
    done = run_bare("sys.argv = ['millpond', 'version']\nfrom millpond.__main__ import main\nmain()")
    assert done.returncode == 1
    assert done.stderr == "millpond: the command line needs typer: run pip install 'millpond[server]'.\n"
