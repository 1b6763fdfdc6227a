"""``millpond autoscale`` as operators run it: a process, its lines, its signals, its exit status."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond.cli import main
from tests.aws.system import ROUTE, SystemUnderTest
from tests.children import spawned

if TYPE_CHECKING:
    from pathlib import Path

PAIR = ["--route", ROUTE, "--group", "gpus"]


def start(system: SystemUnderTest, *words: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("MILLPOND_", "DATABASE_"))}
    fields = {
        "AWS_ENDPOINT_URL": system.amazon.url,
        "MILLPOND_URL": system.site.url,
        "MILLPOND_API_KEY": system.site.admin_key,
    }
    return spawned(
        *[sys.executable, "-m", "millpond", "autoscale", *words],
        env=environment | fields,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(system: SystemUnderTest, *words: str) -> tuple[int | None, str, str]:
    async with start(system, *words) as process:
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_efx_26_one_look_sets_the_capacity_and_reports_why(system: SystemUnderTest) -> None:
    system.amazon.make_group("gpus", max=4)
    await system.submit(6)
    status, out, err = await run(system, *PAIR, "--once", "--json", "--target-wait", "0s", "--max", "3")
    assert status == 0, err
    decoded = msgspec.json.decode(out)
    assert {
        "route": ROUTE,
        "group": "gpus",
        "ready": 6,
        "desired": 3,
        "current": 1,
        "capacity": 3,
    }.items() <= decoded.items()
    assert system.amazon.capacity() == 3
    assert msgspec.json.decode(err)["event"] == "autoscale.decided"


async def test_routes_may_come_from_a_file_and_a_dry_run_only_reports(system: SystemUnderTest, tmp_path: Path) -> None:
    system.amazon.make_group("gpus")
    await system.submit(2)
    file = tmp_path / "routes.toml"
    file.write_text(f'[[routes]]\nroute = "{ROUTE}"\ngroup = "gpus"\ntarget_wait = 0\ncooldown = "10m"\n')
    status, out, err = await run(system, "--file", str(file), "--once", "--dry-run")
    assert (status, err) == (0, "")
    assert out == f"{ROUTE} in gpus: 2 ready, 0 leased: 2 desired of 1; would set capacity 2\n"
    assert system.amazon.capacity() == 1


async def test_one_look_that_fails_leaves_with_a_status_that_says_so(system: SystemUnderTest) -> None:
    status, out, err = await run(system, "--route", ROUTE, "--group", "nowhere", "--once", "--json")
    assert (status, msgspec.json.decode(out)["code"]) == (3, "not_found")
    assert "'nowhere'" in err


async def test_it_goes_on_through_an_outage_of_aws_until_it_is_asked_to_stop(system: SystemUnderTest) -> None:
    system.amazon.make_group("gpus")
    await system.submit(2)
    system.amazon.is_down = True
    words = ["--interval", "100ms", "--json", "--target-wait", "0"]
    async with start(system, *PAIR, *words) as process, asyncio.timeout(60):
        assert process.stdout is not None
        assert process.stderr is not None
        failed = msgspec.json.decode(await process.stderr.readline())
        system.amazon.is_down = False
        decoded = msgspec.json.decode(await process.stdout.readline())
        assert (failed["event"], failed["act"]) == ("autoscale.failed", "look")
        assert (decoded["capacity"], system.amazon.capacity()) == (2, 2)
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0


FILES = {
    "no-toml": "routes = ",
    "empty": "",
    "other": "[[routes]]\nroute='a'\ngroup='b'\n[more]\n",
    "unknown": "[[routes]]\nroute='a'\ngroup='b'\nmaxx=3\n",
    "no-group": "[[routes]]\nroute='a'\n",
    "text": "[[routes]]\nroute='a'\ngroup='b'\nmax='many'\n",
    "same-group": "[[routes]]\nroute='a'\ngroup='b'\n[[routes]]\nroute='c'\ngroup='b'\n",
    "order": "[[routes]]\nroute='a'\ngroup='b'\nmin=3\nmax=2\n",
}


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        ([], 2, "Routes and their groups are missing"),
        ([*PAIR, "--file", "no-toml"], 2, "Routes and their groups are missing"),
        (["--route", "a", "--route", "b", "--group", "c"], 2, "2 routes but 1 groups"),
        ([*PAIR, "--route", "b", "--group", "gpus"], 2, "same group"),
        ([*PAIR, "--interval", "0s"], 5, "interval"),
        ([*PAIR, "--cooldown", "soon"], 5, "cooldown"),
        ([*PAIR, "--min", "3", "--max", "2"], 5, "from 0 to max"),
        (["--file", "missing"], 2, "cannot be read"),
        (["--file", "no-toml"], 2, "cannot be read"),
        (["--file", "empty"], 2, "must contain [[routes]]"),
        (["--file", "other"], 2, "nothing else"),
        (["--file", "unknown"], 2, "Unknown fields of a route: maxx"),
        (["--file", "no-group"], 2, "group"),
        (["--file", "text"], 2, "max"),
        (["--file", "same-group"], 2, "same group"),
        (["--file", "order"], 5, "from 0 to max"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else None,
)
def test_what_it_is_given_must_make_sense(
    words: list[str],
    status: int,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(SystemExit) as left:
        main(["autoscale", *words, "--url", "http://127.0.0.1:9", "--key", "x"])
    heard: Any = capsys.readouterr()
    assert (left.value.code, heard.out) == (status, "")
    assert expected in heard.err
