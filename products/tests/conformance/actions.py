"""The actions contract. A worker that ignores what it is told is played by hand, on the mortal server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import httpx2
from products.tests.conformance.effects import number_of
from products.tests.conformance.system import TENANT, body_of, fresh, until
from products.tests.conformance.table import checks
from products.tests.doubles.github import Repository, Workflow

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from pathlib import Path

    from products.tests.conformance.system import Server, SystemUnderTest

STATES = {"pending", "running", "success", "failed", "cancelled"}
ARROWS = {
    ("pending", "running"),
    ("pending", "cancelled"),
    ("running", "success"),
    ("running", "failed"),
    ("running", "cancelled"),
}
ENDS = {"success", "failed", "cancelled"}
FIELDS = {"id", "action", "state", "input", "output", "error", "createdAt", "startedAt", "completedAt"}


@dataclass(slots=True)
class Operator:
    """Somebody who has actions done."""

    server: Server
    key: str

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"{self.server.url}/actions/api/jobs{path}"
        given = {"Authorization": f"Bearer {self.key}"} | named
        return await self.server.http.request(method, url, json=body, headers=given)

    async def do(self, action: str, given: dict[str, Any] | None = None, **headers: str) -> str:
        """The id of a job that was taken in."""
        return body_of(await self.send("POST", "", {"action": action, "input": given or {}}, **headers), 202)["id"]

    async def read(self, job_id: str) -> dict[str, Any]:
        return body_of(await self.send("GET", f"/{job_id}"), 200)

    async def when(self, job_id: str, *states: str) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            job = await self.read(job_id)
            return job if job["state"] in states else None

        return await until(look)

    async def ended(self, job_id: str) -> dict[str, Any]:
        return await self.when(job_id, *ENDS)

    async def lines(self, job_id: str) -> list[tuple[int, str]]:
        """The log: each line with its number."""
        found = body_of(await self.send("GET", f"/{job_id}/logs?limit=200"), 200)["data"]
        return [(line["seq"], line["text"]) for line in found]

    async def stream(self, job_id: str, seen: str | None = None) -> AsyncIterator[Frame]:
        headers = {"Authorization": f"Bearer {self.key}", "Accept": "text/event-stream"}
        headers |= {} if seen is None else {"Last-Event-ID": seen}
        url = f"{self.server.url}/actions/api/jobs/{job_id}/stream"
        async with self.server.http.stream("GET", url, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            frame = Frame()
            async for line in answer.aiter_lines():
                name, _, value = line.partition(":")
                if not line:
                    if frame.has_something:
                        yield frame
                    frame = Frame()
                elif not name:
                    frame.comment = value.strip() or "-"
                else:
                    setattr(frame, name, value.strip())


@dataclass(slots=True)
class Frame:
    """One event of a stream, or a comment."""

    id: str = ""
    event: str = ""
    data: str = ""
    retry: str = ""
    comment: str = ""

    @property
    def has_something(self) -> bool:
        return bool(self.event or self.comment)

    @property
    def payload(self) -> Any:
        return json.loads(self.data)


@dataclass(slots=True)
class Seen:
    """What a reader of a stream saw."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    ends: list[dict[str, Any]] = field(default_factory=list)
    comments: int = 0

    @property
    def last(self) -> str | None:
        return str(self.lines[-1][0]) if self.lines else None

    async def follow(self, frames: AsyncIterator[Frame], enough: Callable[[], bool] = lambda: False) -> None:
        async for frame in frames:
            self.comments += bool(frame.comment)
            if frame.event == "log":
                self.lines.append((int(frame.id), frame.payload["text"]))
            elif frame.event:
                assert frame.event == "status", frame
                self.ends.append(frame.payload)
            if enough():
                return


async def operator(server: Server) -> Operator:
    return Operator(server, await server.key("client", TENANT, fresh("operator")))


def talk(gate: Path | str = "", *, lines: int = 3, status: int = 0) -> dict[str, Any]:
    """A command that says some lines, waits for a file if it is told one, says one more, and leaves."""
    return {"command": "talk", "arguments": [str(lines), str(gate), str(status)]}


@checks("ACT-1")
async def five_states(system: SystemUnderTest) -> None:
    user = await operator(system.steady)
    well, ill = await user.do("run-command", talk()), await user.do("run-command", talk(status=3))
    stopped = await user.do("run-command", talk(system.folder / "never"))
    await user.when(stopped, "running")
    await user.send("POST", f"/{stopped}/cancel")
    for job_id, end in ((well, "success"), (ill, "failed"), (stopped, "cancelled")):
        assert (await user.ended(job_id))["state"] == end
        assert await system.steady.states(job_id) == ["pending", "running", end]
    transitions = "select distinct from_state, to_state from millpond.lifecycle_transitions where lifecycle = 'actions'"
    drawn = {(source, target) for source, target in await system.steady.sql(transitions) if source in STATES - {target}}
    assert drawn == ARROWS
    states = await system.steady.sql("select state from millpond.lifecycle_states where lifecycle = 'actions'")
    assert {state for (state,) in states} == STATES


@checks("ACT-2")
async def a_job_is_taken_in(system: SystemUnderTest) -> None:
    user = await operator(system.steady)
    answer = await user.send("POST", "", {"action": "run-command", "input": talk()})
    assert (answer.status_code, set(answer.json())) == (202, {"id", "state", "createdAt"})
    assert answer.json()["state"] == "pending"
    job = await user.ended(answer.json()["id"])
    assert set(job) == FIELDS
    assert (job["action"], job["input"]["command"], job["createdAt"]) == (
        "run-command",
        "talk",
        answer.json()["createdAt"],
    )
    unknown = await user.send("POST", "", {"action": "make-coffee"})
    assert unknown.status_code == 422
    assert all(name in unknown.text for name in ("run-command", "http-request", "trigger-github-workflow"))


@checks("ACT-3")
async def times(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    user, gate = await operator(system.steady), system.folder / fresh("gate")
    job_id = await user.do("run-command", talk(gate))
    running = await user.when(job_id, "running")
    assert (running["startedAt"] is not None, running["completedAt"]) == (True, None)
    gate.touch()
    done = await user.ended(job_id)
    assert done["createdAt"] <= done["startedAt"] <= done["completedAt"]
    assert done["startedAt"] == running["startedAt"]
    at = {
        event["state"]: event["at"] for event in reversed(await system.steady.events(job_id)) if event["type"] != "log"
    }
    assert (at["running"], at["success"]) == (done["startedAt"], done["completedAt"])
    await user.send("POST", f"/{job_id}/retry")
    assert await user.read(job_id) == done
    user = await operator(system.mortal)
    pending = await user.do("by-hand")
    assert (await user.read(pending))["startedAt"] is None
    await user.send("POST", f"/{pending}/cancel")
    gone = await user.ended(pending)
    assert (gone["state"], gone["startedAt"]) == ("cancelled", None)
    assert gone["completedAt"] >= gone["createdAt"]


@checks("ACT-4")
async def ends_are_ends(system: SystemUnderTest) -> AsyncGenerator[None]:
    """A request, hand-written SQL, and a worker that comes too late."""
    yield
    user = await operator(system.steady)
    job_id = await user.do("run-command", talk())
    done = await user.ended(job_id)
    assert (await user.send("POST", f"/{job_id}/cancel")).status_code == 409
    for state in STATES - {"success"}:
        transitioned = await system.steady.send(
            "POST", f"/v1/jobs/{job_id}/transition?tenant={TENANT}", {"state": state}
        )
        assert transitioned.status_code == 409
        await refused(
            system.steady,
            "update millpond.jobs set state = $2, outcome = case $2 when 'failed' then 'failed' when 'cancelled' then"
            " 'canceled' end, phase = case when $2 in ('failed', 'cancelled') then 'ended' else 'ready' end"
            " where id = $1",
            UUID(bytes=number_of(job_id)),
            state,
        )
    await refused(system.steady, "update millpond.jobs set output = '{}' where id = $1", UUID(bytes=number_of(job_id)))
    assert await user.read(job_id) == done
    user = await operator(system.mortal)
    job_id = await user.do("by-hand", {"n": 4})
    remote_worker = await by_hand(system, job_id)
    body_of(await remote_worker.call("complete", output={"well": True}), 200)
    ended = await user.ended(job_id)
    late = await remote_worker.call("fail", error={"message": "late"})
    assert (late.status_code, await user.read(job_id)) == (409, ended)


async def refused(server: Server, statement: str, *arguments: Any) -> None:
    """The database itself does not do it."""
    try:
        await server.sql(statement, *arguments)
    except Exception as error:  # noqa: BLE001 - whatever the driver calls it
        assert any(word in str(error) for word in ("denied", "append-only", "constraint", "ended")), error  # noqa: PT017
    else:
        raise AssertionError(f"the database did it: {statement}")


@checks("ACT-5")
async def logs_are_append_only(system: SystemUnderTest) -> None:
    user = await operator(system.steady)
    job_id = await user.do("run-command", talk(lines=4))
    await user.ended(job_id)
    lines = await user.lines(job_id)
    number = UUID(bytes=number_of(job_id))
    count = await system.steady.sql("select count(*) from millpond.events where job_id = $1 and type = 'log'", number)
    assert count == [(len(lines),)]
    assert len(lines) >= 5
    await refused(system.steady, "update millpond.events set data = '{}' where job_id = $1 and type = 'log'", number)
    await refused(system.steady, "delete from millpond.events where job_id = $1 and type = 'log'", number)
    assert await user.lines(job_id) == lines


@checks("ACT-6")
async def a_stream_with_exact_resume(system: SystemUnderTest) -> AsyncGenerator[None]:
    """The process dies in the middle of the stream, and with it the command; another begins, under the same job."""
    user, quiet, gate = await operator(system.mortal), await operator(system.steady), system.folder / fresh("gate")
    job_id = await user.do("run-command", talk(gate, lines=20))
    seen = Seen()
    await seen.follow(user.stream(job_id), lambda: len(seen.lines) >= 7)
    await seen.follow(user.stream(job_id, seen.last), lambda: len(seen.lines) >= 12)
    silent = Seen()
    open_gate = system.folder / fresh("gate")
    waiting = await quiet.do("run-command", talk(open_gate))
    listening = asyncio.create_task(silent.follow(quiet.stream(waiting)))
    yield
    gate.touch()
    user.server = system.mortal
    await seen.follow(user.stream(job_id, seen.last))
    assert seen.lines == await user.lines(job_id), "no line lost, none twice"
    assert [end["state"] for end in seen.ends] == [(await user.ended(job_id))["state"]]
    assert set(seen.ends[0]) == {"state", "output"}
    await until(lambda: asyncio.sleep(0, silent.comments))
    open_gate.touch()
    await listening
    assert (silent.lines, len(silent.ends)) == (await quiet.lines(waiting), 1)


@checks("ACT-7")
async def the_stream_of_a_finished_job(system: SystemUnderTest) -> None:
    user = await operator(system.steady)
    job_id = await user.do("run-command", talk(lines=5))
    job = await user.ended(job_id)
    seen = Seen()
    async with asyncio.timeout(PATIENCE):
        await seen.follow(user.stream(job_id))
    assert seen.lines == await user.lines(job_id)
    assert seen.ends == [{"state": "success", "output": job["output"]}]


@dataclass(slots=True)
class RemoteWorker:
    """A worker of the fleet that holds one job, and does with it what the check wants."""

    server: Server
    token: str
    lease: dict[str, Any]

    async def call(self, verb: str, **body: Any) -> httpx2.Response:
        return await self.server.send("POST", f"/v1/worker/{verb}", self.lease | body, key=self.token)


async def by_hand(system: SystemUnderTest, job_id: str) -> RemoteWorker:
    """The worker that has this job; each has a queue of its own by its priority alone, so others are given back."""
    server, name = system.mortal, fresh("hand")

    async def register() -> str | None:
        secret = server.up.ready["fleet_secret"]
        body = {"worker": name, "routes": ["actions.by-hand"]}
        answer = await server.send("POST", "/v1/worker/register", body, key=secret)
        return None if answer.status_code == 429 else body_of(answer)["token"]

    token = await until(register)
    (found,) = [one["id"] for one in (await server.order("GET", "/v1/workers"))["data"] if one["worker"] == name]
    await server.order("POST", f"/v1/workers/{found}/approve")
    remote_worker = RemoteWorker(server, token, {})

    async def take() -> bool:
        jobs = body_of(await server.send("POST", "/v1/worker/poll", {"want": 1}, key=token))["jobs"]
        for job in jobs:
            remote_worker.lease = {"job_id": job["job_id"], "lease_token": job["lease_token"]}
            if job["job_id"] == job_id:
                return True
            await remote_worker.call("requeue", reason="another's")
        return False

    await until(take)
    return remote_worker


@checks("ACT-8")
async def cancels(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    user = await operator(system.steady)
    running = await user.do("run-command", talk(system.folder / "never"))
    await user.when(running, "running")
    await user.send("POST", f"/{running}/cancel")
    stopped = await user.ended(running)
    assert (stopped["state"], stopped["completedAt"] is not None) == ("cancelled", True)
    user = await operator(system.mortal)
    pending = await user.do("by-hand")
    flipped = body_of(await user.send("POST", f"/{pending}/cancel"))
    assert (flipped["state"], flipped["completedAt"] is not None) == ("cancelled", True)
    assert await system.mortal.states(pending) == ["pending", "cancelled"]
    ignored = await user.do("by-hand", {"n": 8})
    remote_worker = await by_hand(system, ignored)
    await user.send("POST", f"/{ignored}/cancel")
    assert (await user.read(ignored))["state"] == "running"
    cut = await user.ended(ignored)
    assert (cut["state"], cut["completedAt"] is not None) == ("cancelled", True)
    late = await remote_worker.call("complete", output={"late": True})
    assert (late.status_code, await user.read(ignored)) == (409, cut)


@checks("ACT-9")
async def a_retry_is_a_new_job(system: SystemUnderTest) -> None:
    user = await operator(system.steady)
    first = await user.do("run-command", talk(status=3))
    before = await user.ended(first)
    answer = await user.send("POST", f"/{first}/retry")
    again = body_of(answer, 202)
    assert (again["retryOf"], again["id"] != first) == (first, True)
    done = await user.ended(again["id"])
    assert (done["state"], done["input"]) == ("failed", before["input"])
    assert await user.read(first) == before


@checks("ACT-10")
async def a_key_makes_one_job(system: SystemUnderTest) -> None:
    user, key = await operator(system.steady), str(uuid4())
    answers = await asyncio.gather(
        *(user.send("POST", "", {"action": "run-command", "input": talk()}, Idempotency_Key=key) for _ in range(50))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    other = await user.send("POST", "", {"action": "run-command", "input": talk(lines=9)}, Idempotency_Key=key)
    assert other.status_code == 409
    jobs = body_of(await user.send("GET", "?limit=200"))["data"]
    assert [job["id"] for job in jobs] == [answers[0].json()["id"]]


@checks("ACT-11")
async def the_actions_that_come_with_it(system: SystemUnderTest) -> None:
    user, gate = await operator(system.steady), system.folder / fresh("gate")
    said = await user.do("run-command", talk(gate))

    async def are_there() -> bool:
        return {"line 0", "line 2", "to stderr"} <= {text for _, text in await user.lines(said)}

    await until(are_there)
    assert (await user.read(said))["state"] == "running", "lines come while it runs"
    gate.touch()
    assert (await user.ended(said))["state"] == "success"
    assert "the end" in {text for _, text in await user.lines(said)}
    unlisted = await user.send(
        "POST", "", {"action": "run-command", "input": {"command": "rm", "arguments": ["-rf", "/"]}}
    )
    assert unlisted.status_code == 422
    asked = await user.ended(await user.do("http-request", {"url": f"{system.shop.url}/plain"}))
    assert asked["state"] == "success"
    assert "Oak Stool" in json.dumps(asked["output"])
    inside = {"action": "http-request", "input": {"url": "http://169.254.169.254/"}}
    assert (await user.send("POST", "", inside)).status_code == 422
    name = f"octo/{fresh('flow')}"
    system.github.repositories[name] = Repository(name, workflows=(Workflow(7, "ci.yml", inputs=("who",)),))
    given = {"repository": name, "workflow": "ci.yml", "ref": "main", "inputs": {"who": "Ada"}}
    run = await user.ended(await user.do("trigger-github-workflow", given))
    assert run["state"] == "success", run
    assert ("POST", f"/repos/{name}/actions/workflows/ci.yml/dispatches") in system.github.asked
    system.github.repositories[name].workflows[0].script = ("queued", "completed/failure")
    assert (await user.ended(await user.do("trigger-github-workflow", given)))["state"] == "failed"
