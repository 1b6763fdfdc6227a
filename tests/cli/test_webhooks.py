"""``millpond webhooks`` as developers use it: real processes, a real server, a receiver on this machine."""

from __future__ import annotations

import asyncio
import io
import signal
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond import webhooks
from millpond.cli import main
from tests.acceptance.processes import BRISK, Command, Shell, shell, until
from tests.cli.ups import Up, serving, up
from tests.doubles import receivers as doubles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.databases import DatabaseServer
    from tests.doubles.receivers import Receivers

BODY = b'{"type":"job.succeeded","timestamp":"2026-01-05T09:30:00Z","data":{"id":"job_1"}}'


@pytest.fixture
async def receivers() -> AsyncIterator[Receivers]:
    async with doubles.receivers() as running:
        yield running


class Here:
    """Commands in this process and the folder of a running ``millpond up``; the receivers go on meanwhile."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def run(self, *words: str, status: int = 0) -> Any:
        """What a command says in JSON."""
        found = await asyncio.to_thread(self._status, *words)
        out, err = self._capsys.readouterr()
        assert found == status, err
        return msgspec.json.decode(out)

    @staticmethod
    def _status(*words: str) -> Any:
        try:
            main(("webhooks", *words, "--json"))
        except SystemExit as left:
            return left.code


@pytest.fixture
def here(system: tuple[Shell, Up], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    sh, _ = system
    monkeypatch.chdir(sh.folder)
    monkeypatch.setenv("DATABASE_URL", sh.dsn or "")
    return Here(capsys)


async def listening(sh: Shell, *words: str) -> Command:
    command = sh.start("webhooks", "listen", *words)

    async def is_there() -> bool:
        assert command.is_running, command.stderr
        return "Press Ctrl-C to stop." in command.stderr

    await until(is_there)
    return command


async def stop(command: Command) -> None:
    command.process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(command.wait) == 0, command.stderr


def lines(command: Command) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in command.stdout.splitlines()]


async def listeners(system: Up) -> list[str]:
    """The ids of the endpoints that commands have made for themselves."""
    found = (await system.request("GET", "/v1/endpoints?tenant=dev", key="admin_key")).json()["data"]
    return [each["id"] for each in found if each["description"] == "millpond webhooks listen"]


async def deliveries(system: Up, endpoint: str) -> list[tuple[str, int]]:
    answer = await system.request("GET", f"/v1/deliveries?tenant=dev&endpoint={endpoint}", key="admin_key")
    return [(each["state"], each["tries"]) for each in answer.json()["data"]]


async def test_listen_forwards_what_happens_signed_and_cleans_up(
    system: tuple[Shell, Up], receivers: Receivers
) -> None:
    sh, running = system
    secret = webhooks.new_secret()
    url = receivers.url("healthy", "local")
    command = await listening(sh, "--forward-to", url, "--event", "*", "--secret", secret, "--json")
    job_id = await running.submit("hello", {"name": "Ada"})

    async def is_notified() -> bool:
        return any((line["event"], line["job_id"]) == ("job.succeeded", job_id) for line in lines(command))

    await until(is_notified)
    received = [webhooks.verify(each.body, each.headers, secret) for each in receivers.of("local")]
    events = [event["type"] for event in received if event["data"]["id"] == job_id]
    assert (events[0], events[-1]) == ("job.submitted", "job.succeeded")
    assert [(line["event"], line["status"]) for line in lines(command) if line["job_id"] == job_id] == [
        (event, 200) for event in events
    ]
    (endpoint,) = await listeners(running)
    assert (await deliveries(running, endpoint)).count(("delivered", 1)) >= len(events)
    await stop(command)
    assert await listeners(running) == []


async def test_listen_says_what_went_wrong_in_a_line(system: tuple[Shell, Up], receivers: Receivers) -> None:
    sh, running = system
    sick, deaf = await asyncio.gather(
        listening(sh, "--forward-to", receivers.url("error", status=503)),
        listening(sh, "--forward-to", receivers.url("down").removeprefix("http://"), "--kind", "hello"),
    )
    job_id = await running.submit("hello", {"name": "Ada"})

    async def are_notified() -> bool:
        return bool(sick.stdout and deaf.stdout)

    await until(are_notified)
    assert " job.succeeded " in sick.stdout
    assert f"{job_id} " in sick.stdout
    assert " 503  " in sick.stdout
    assert "connect" in deaf.stdout.lower()
    for endpoint in await listeners(running):
        assert await deliveries(running, endpoint) == [("pending", 1)]
    await asyncio.gather(stop(sick), stop(deaf))


@pytest.mark.slow
async def test_listen_outlives_a_restart_of_the_server(
    server: DatabaseServer, tmp_path: Path, receivers: Receivers
) -> None:
    async with server.database() as dsn:
        with shell(tmp_path, dsn) as sh:
            first = await up(sh)
            key = first.ready["admin_key"]
            url = ("--url", first.url, "--key", key, "--tenant", "dev")
            command = await listening(sh, "--forward-to", receivers.url("healthy", "local"), *url)
            first.command.kill()
            await asyncio.to_thread(first.command.wait)

            async def is_noticed() -> bool:
                return "Retrying." in command.stderr

            await until(is_noticed)
            ready = tmp_path / "second.json"
            again = sh.start("up", "--port", first.url.rpartition(":")[2], "--ready-file", ready, **BRISK)
            await serving(again, ready)
            await first.submit("hello", {"name": "Ada"})

            async def is_notified() -> bool:
                return bool(receivers.of("local"))

            await until(is_notified)
            assert "The server is reachable again." in command.stderr
            await stop(command)


async def test_an_endpoint_is_made_tried_changed_and_removed(here: Here, receivers: Receivers) -> None:
    made = await here.run("endpoints", "create", receivers.url("healthy", "mine"), "--kind", "hello")
    assert webhooks.check_secret(made["secret"])
    (sent,) = (await here.run("trigger", "job.failed", "--endpoint", made["id"]))["data"]

    async def is_there() -> bool:
        return len(receivers.of("mine")) == 1

    await until(is_there)
    (first,) = receivers.of("mine")
    assert (first.id, first.json["type"]) == (sent["id"], "job.failed")
    assert webhooks.verify(first.body, first.headers, made["secret"])

    async def is_logged() -> bool:  # after the receiver has answered
        delivery = await here.run("deliveries", "get", sent["id"])
        return [each["status"] for each in delivery["log"]] == [200]

    await until(is_logged)
    rotated = await here.run("rotate", made["id"], "--overlap", "1h")
    await here.run("resend", sent["id"])

    async def is_there_again() -> bool:
        return len(receivers.of("mine")) == 2

    await until(is_there_again)
    second = receivers.of("mine")[1]
    assert (second.id, second.body) == (first.id, first.body)
    for secret in (made["secret"], rotated["secret"]):
        assert webhooks.verify(second.body, second.headers, secret)
    assert await here.run("resend", "--since", "1h", "--endpoint", made["id"]) == {"count": 0}
    changed = await here.run("endpoints", "change", made["id"], "--event", "job.failed", "--description", "for a test")
    assert (changed["events"], changed["description"]) == (["job.failed"], "for a test")
    assert (await here.run("endpoints", "stats", made["id"]))["delivered"] == 1
    assert (await here.run("endpoints", "disable", made["id"]))["disabled_at"]
    await here.run("trigger", "job.failed", "--endpoint", made["id"], status=5)
    assert await here.run("endpoints", "delete", made["id"], "--yes") == {"deleted": made["id"]}
    await here.run("endpoints", "get", made["id"], status=3)


# Verify, which needs no server


def headers(secret: str, *, age: int = 0) -> list[str]:
    made = webhooks.headers("msg_1", int(time.time()) - age, BODY, [secret])
    return [word for name, value in made.items() for word in ("-H", f"{name}: {value}")]


def verified(*words: str) -> Any:
    with pytest.raises(SystemExit) as left:
        main(("webhooks", "verify", *words))
    return left.value.code


@pytest.fixture
def body(tmp_path: Path) -> str:
    path = tmp_path / "body.json"
    path.write_bytes(BODY)
    return str(path)


def test_verify_shows_what_is_signed_well(
    body: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = webhooks.new_secret()
    assert verified(body, *headers(secret), "--secret", secret) == 0
    out, err = capsys.readouterr()
    assert (msgspec.json.decode(out), err) == (msgspec.json.decode(BODY), "The signature is valid.\n")
    assert verified(body, *headers(secret, age=600), "--secret", secret, "--tolerance", "1h") == 0
    monkeypatch.setenv("WEBHOOK_SECRET", secret)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(BODY)))
    assert verified(*headers(secret), "--json") == 0


def test_verify_reports_what_is_wrong(body: str, capsys: pytest.CaptureFixture[str]) -> None:
    secret, other = webhooks.new_secret(), webhooks.new_secret()
    for words, described in [
        ([*headers(secret), "--secret", other], "No signature matches"),
        ([*headers(secret, age=600), "--secret", secret], "outside the allowed window"),
        (["--secret", secret], "webhook-id"),
    ]:
        assert verified(body, *words, "--json") == 1
        out, err = capsys.readouterr()
        assert described in err
        assert msgspec.json.decode(out)["code"] == "webhook_invalid"
        assert secret not in out + err
        assert other not in out + err
    assert verified(body, "-H", "no colon", "--secret", secret) == 2
    assert verified("nowhere.json", "--secret", secret) == 2
