"""Receivers in trouble: half of those to be notified are down, slow, broken or mean, and the courier is killed.

    python -m tests.chaos.webhooks --receivers 200 --events 20000

The healthy ones are report alone and then together with the sick ones, twice in turn, so that it shows whether the sick
ones keep the healthy ones waiting. They are report as often each time: what the sick ones are report comes on top. What
comes first, while everything is cold, is not measured. Then the courier is killed with -9 and started again. In the end
every healthy one must have got everything, at least once, in the order of each job, signed with its own secret; and the
courier must have stayed small.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from millpond import Engine, webhooks
from millpond.cli.database import opened
from millpond.engine.jobs.jobs import SubmitRequest
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End
from millpond.engine.verify import verify
from millpond.engine.webhooks.vault import Vault
from millpond.errors import WebhookInvalidError
from millpond.ids import text
from millpond.outbound import Outbound
from millpond.services.notifier import Notifier
from millpond.settings import Settings
from millpond.store.queries import NamedQuery
from millpond.webhooks import Hook
from tests.chaos.announcements import app
from tests.children import start
from tests.doubles.receivers import SICK, Received

KIND = "announce"
EVENTS_A_JOB = 3  # submitted, started, succeeded
OWN_EVERY = 5  # one job of so many has a URL of its own as well
PATIENCE = 300.0
PARTS = ("cold", "alone", "together", "alone again", "together again", "killed")
MEGABYTES_MAX = 256
TICK = 0.1
LEASE = timedelta(minutes=10)
APP = Path(__file__).with_name("announcements.py")

HAPPENED = NamedQuery(
    "chaos.happened",
    "many",
    "select job_id, tenant, seq, type from millpond.events where type = any(array"
    f"{list(webhooks.LIFECYCLE_EVENTS)}) order by job_id, seq",
)


def _has_sick(part: str) -> bool:
    return part.startswith(("together", "killed"))


@dataclass(frozen=True, slots=True)
class Plan:
    """How large it is."""

    receivers: int
    events: int
    kills: int = 3
    rate: float = 60.0
    """Events a second for the healthy ones, in every part alike; the sick ones have as many on top."""
    timeout: float = 3.0

    @property
    def healthy(self) -> int:
        return self.receivers // 2

    @property
    def jobs(self) -> int:
        """For each receiver and part: the healthy ones are notified in all parts, the sick ones in some."""
        parts = self.healthy * len(PARTS) + (self.receivers - self.healthy) * sum(map(_has_sick, PARTS))
        return math.ceil(self.events / (parts * EVENTS_A_JOB))


@dataclass(slots=True)
class Report:
    """What came of it."""

    took: float = 0.0
    events: int = 0
    received: int = 0
    again: int = 0
    kills: int = 0
    megabytes: float = 0.0
    waits: dict[str, list[float]] = field(default_factory=dict)
    """How long the healthy ones waited for each webhook, in each part."""
    complaints: list[str] = field(default_factory=list)

    def wait(self, part: str, share: float) -> float:
        ordered = sorted(self.waits[part])
        return ordered[int((len(ordered) - 1) * share)]


@dataclass(slots=True)
class Scene:
    """A database, a courier and the receivers: each a process of its own."""

    plan: Plan
    folder: Path
    dsn: str
    key: str
    ports: tuple[int, int] = (0, 0)
    couriers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    receivers: subprocess.Popen[bytes] | None = None
    seen: list[Received] = field(default_factory=list)
    peak: float = 0.0

    def start(self) -> None:
        self.receivers = subprocess.Popen(
            [sys.executable, "-m", "tests.doubles.receivers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        report = self.receivers.stdout.readline() if self.receivers.stdout else b""
        open_port, closed_port = map(int, report.split())
        self.ports = open_port, closed_port
        self.start_courier()
        until = time.monotonic() + 60
        while not (self.folder / "ready.json").exists():  # so that nobody is measured who is still to come
            if self.couriers[-1].poll() is not None or time.monotonic() > until:
                raise RuntimeError((self.folder / "courier.log").read_text())
            time.sleep(0.05)

    def start_courier(self) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLPOND_")}
        words = ["-m", "millpond", "serve", str(APP), "--role", "services", "--database-url", self.dsn]
        words += ["--ready-file", str(self.folder / "ready.json")]
        with (self.folder / "courier.log").open("ab") as log:
            self.couriers.append(
                start(
                    [sys.executable, *words],
                    env=inherited
                    | {
                        "MILLPOND_ENCRYPTION_KEY": self.key,
                        "MILLPOND_OUTBOUND_ALLOW": "loopback",
                        "MILLPOND_WEBHOOK_TIMEOUT": f"{self.plan.timeout}s",
                        "MILLPOND_LOG_FORMAT": "json",
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def strike(self) -> None:
        self.weigh()
        self.couriers[-1].kill()
        self.couriers[-1].wait()
        self.start_courier()

    def weigh(self) -> None:
        """The most memory that a courier has had."""
        status = Path(f"/proc/{self.couriers[-1].pid}/status")
        with contextlib.suppress(OSError):
            for line in status.read_text("utf-8").splitlines():
                if line.startswith("VmHWM"):
                    self.peak = max(self.peak, int(line.split()[1]) / 1024)

    def look(self) -> None:
        """Read what has come in since the last look."""
        url = f"http://127.0.0.1:{self.ports[0]}/received/all?since={len(self.seen)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            for line in answer.read().splitlines():
                row = json.loads(line)
                self.seen.append(Received(row["name"], row["at"], row["headers"], base64.b64decode(row["body"])))

    def url(self, mode: str, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[mode == 'down']}/{mode}/{name}"

    def stop(self) -> None:
        for process in [*self.couriers[-1:], *([self.receivers] if self.receivers else [])]:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (self.receivers.stdin, self.receivers.stdout) if self.receivers else ():
            if pipe is not None:
                pipe.close()


@dataclass(slots=True)
class Cast:
    """Who is notified: a tenant each, with one endpoint; and the secrets."""

    healthy: list[str] = field(default_factory=list)
    sick: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    """By the name of the receiver, or by the job whose own URL it is."""
    parts: dict[str, str] = field(default_factory=dict)
    """In which part each job was submitted."""


async def run(plan: Plan, folder: Path) -> Report:
    """All of it, from an empty folder to the last check."""
    report = Report()
    key = base64.b64encode(os.urandom(32)).decode()
    began = time.monotonic()
    with opened(Settings(data_dir=folder / "data")) as dsn:
        scene = Scene(plan, folder, dsn, key)
        engine = await Engine.open(dsn, app, outbound=Outbound("loopback"), vault=Vault.from_text(key))
        stop = asyncio.Event()
        notifying = asyncio.create_task(Notifier(engine).run(stop))
        try:
            scene.start()
            await _play(engine, scene, report)
            report.complaints += [str(violation) for violation in await verify(engine.db)]
        finally:
            scene.stop()
            stop.set()
            await notifying
            await engine.close()
    report.took = time.monotonic() - began
    return report


async def _play(engine: Engine, scene: Scene, report: Report) -> None:
    plan = scene.plan
    cast = await _cast(engine, scene)
    everybody = [name for pair in zip(cast.healthy, cast.sick, strict=True) for name in pair]
    for part in PARTS:
        names = everybody if _has_sick(part) else cast.healthy
        await _announce(engine, scene, cast, part, names, plan.kills if part == "killed" else 0)
        await _arrived(engine, scene, cast)
    scene.weigh()
    report.kills = plan.kills
    report.megabytes = scene.peak
    await _check(engine, scene, cast, report)


async def _cast(engine: Engine, scene: Scene) -> Cast:
    cast = Cast()
    for number in range(scene.plan.receivers):
        is_healthy = number % 2 == 0
        name = f"{'well' if is_healthy else 'sick'}-{number}"
        mode = "healthy" if is_healthy else SICK[number // 2 % len(SICK)]
        _, secret = await engine.endpoints.make(name, url=scene.url(mode, name), events=("*",))
        cast.secrets[name] = secret
        (cast.healthy if is_healthy else cast.sick).append(name)
    return cast


async def _announce(engine: Engine, scene: Scene, cast: Cast, part: str, names: Sequence[str], kills: int) -> None:
    """Submit, start and end jobs at an even pace."""
    jobs = [(name, number) for number in range(scene.plan.jobs) for name in names]
    a_tick = max(round(scene.plan.rate / EVENTS_A_JOB * TICK), 1) * (2 if _has_sick(part) else 1)
    lanes = Lanes([KIND])
    chunks = [jobs[start : start + a_tick] for start in range(0, len(jobs), a_tick)]
    strikes = {len(chunks) * (number + 1) // (kills + 1) for number in range(kills)}
    due = time.monotonic()
    for place, chunk in enumerate(chunks):
        if place in strikes:
            await asyncio.to_thread(scene.strike)
        for answer, secret in await _submit(engine, scene, chunk):
            cast.parts[answer.id] = part
            if secret is not None:
                cast.secrets[answer.id] = secret
        leases = await engine.claim(lanes, len(chunk), worker="chaos", duration=LEASE)
        await asyncio.gather(*(engine.finish(End(lease, "succeeded")) for lease in leases))
        due += TICK
        await asyncio.sleep(max(due - time.monotonic(), 0))


async def _submit(engine: Engine, scene: Scene, chunk: Sequence[tuple[str, int]]) -> Iterator[tuple[Any, str | None]]:
    requests: list[SubmitRequest] = []
    secrets: list[str | None] = []
    for name, number in chunk:
        request: SubmitRequest = {"kind": KIND, "input": {"number": number}, "tenant": name, "account": name}
        secret = None
        if number % OWN_EVERY == 0 and name.startswith("well"):
            secret = webhooks.new_secret()
            request["hook"] = Hook(url=scene.url("healthy", f"own-{name}"), secret=secret)
        requests.append(request)
        secrets.append(secret)
    answers = await engine.submit_many(requests)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return zip(answers, secrets, strict=True)


async def _expected(engine: Engine, cast: Cast) -> dict[tuple[str, str], list[str]]:
    """What each healthy one is to be sent of each job, from what has happened."""
    wanted: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in await engine.db.run(HAPPENED):
        if row["tenant"].startswith("well"):
            job = text("job", row["job_id"])
            wanted[row["tenant"], job].append(f"job.{row['type']}")
            if job in cast.secrets and row["type"] in webhooks.ENDS:
                wanted[f"own-{row['tenant']}", job].append(f"job.{row['type']}")
    return wanted


async def _arrived(engine: Engine, scene: Scene, cast: Cast) -> None:
    """Wait until the healthy ones have everything; what is still missing then is found by the check."""
    wanted = sum(map(len, (await _expected(engine, cast)).values()))
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        await asyncio.to_thread(scene.look)
        scene.weigh()
        if scene.couriers[-1].poll() is not None:
            raise RuntimeError((scene.folder / "courier.log").read_text())
        if len({(each.name, each.id) for each in scene.seen}) >= wanted:
            return
        await asyncio.sleep(0.2)


async def _check(engine: Engine, scene: Scene, cast: Cast, report: Report) -> None:
    wanted = await _expected(engine, cast)
    came: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    complain = report.complaints.append
    waits: dict[str, list[float]] = defaultdict(list)
    for each in scene.seen:
        body = each.json
        job = body["data"]["id"]
        secret = cast.secrets[job if each.name.startswith("own-") else each.name]
        try:
            webhooks.verify(each.body, each.headers, secret, now=datetime.fromtimestamp(each.at, UTC))
        except WebhookInvalidError as error:
            complain(f"{each.name} got {each.id} with a bad signature: {error}")
        events = came[each.name, job]
        if (each.id, body["type"]) in events:
            report.again += 1
        else:
            waits[cast.parts[job]].append(each.at - msgspec.convert(body["timestamp"], datetime).timestamp())
        events.append((each.id, body["type"]))
    for (name, job), types in wanted.items():
        _compare(name, job, types, came.pop((name, job), []), complain)
    for name, job in came:
        complain(f"{name} was notified of {job}, and it was not to be")
    report.waits = dict(waits)
    report.received = len(scene.seen)
    report.events = len(await engine.db.run(HAPPENED))
    if scene.peak > MEGABYTES_MAX:
        complain(f"the courier had {scene.peak:.0f} MB")


def _compare(name: str, job: str, types: list[str], events: list[tuple[str, str]], complain: Any) -> None:
    """Everything, in order, at least once. What comes once more comes before anything later does."""
    heard = [event for _, event in events]
    order = [types.index(event) if event in types else -1 for event in heard]
    if set(types) - set(heard):
        complain(f"{name} was not notified of {sorted(set(types) - set(heard))} of {job}")
    elif order != sorted(order) or -1 in order:
        complain(f"{name} was notified of {job} out of order: {heard}")
    identities: dict[str, set[str]] = defaultdict(set)
    for identity, event in events:
        identities[event].add(identity)
    if any(len(known) > 1 for known in identities.values()):
        complain(f"{name} was notified of {job} under several ids: {dict(identities)}")


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--receivers", type=int, default=200)
    words.add_argument("--events", type=int, default=20_000)
    words.add_argument("--kills", type=int, default=5)
    words.add_argument("--rate", type=float, default=60.0, help="events a second for the healthy ones")
    words.add_argument("--timeout", type=float, default=5.0, help="seconds that a receiver has")
    words.add_argument("--keep", action="store_true", help="keep the folder with database and logs")
    given = words.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="millpond-chaos-"))
    plan = Plan(given.receivers, given.events, given.kills, given.rate, given.timeout)
    report = asyncio.run(run(plan, folder))
    modes = Counter(SICK[number % len(SICK)] for number in range(plan.receivers - plan.healthy))
    print(f"{report.events} events, {plan.healthy} healthy receivers and {dict(modes)} in {report.took:.0f} s;")  # noqa: T201
    kills = f"the courier was killed {report.kills} times"
    print(f"{report.received} webhooks taken, {report.again} of them once more; {kills}")  # noqa: T201
    print(f"and had {report.megabytes:.0f} MB at most.")  # noqa: T201
    for part in PARTS:
        p50, p99 = report.wait(part, 0.5) * 1000, report.wait(part, 0.99) * 1000
        print(f"{part:>14}: a healthy one waits {p50:.0f} ms (p50), {p99:.0f} ms (p99)")  # noqa: T201
    for complaint in report.complaints[:50]:
        print(complaint)  # noqa: T201
    if given.keep or report.complaints:
        print(f"Kept: {folder}")  # noqa: T201
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print("FAILED" if report.complaints else "exact: all of the healthy got everything, in order, signed; verify ok")  # noqa: T201
    sys.exit(bool(report.complaints))


if __name__ == "__main__":
    main()
