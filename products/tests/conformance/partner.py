"""The partner contract. What its kinds do for real is done once, and looked at by several checks."""

from __future__ import annotations

import asyncio
import io
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import av
import httpx2
import standardwebhooks
from PIL import Image
from products.tests.conformance.actions import refused
from products.tests.conformance.effects import number_of
from products.tests.conformance.system import TENANT, body_of, fresh, until
from products.tests.conformance.table import checks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from products.tests.conformance.system import Server, SystemUnderTest

STAGES = {
    "project_ingest_github": ["cloning", "analyzing", "generating_sdk_patch", "opening_pr", "finalizing"],
    "project_ingest_website": ["fetching", "parsing", "merging_context"],
    "appstore_ingest": ["fetching", "parsing", "merging_context"],
    "content_generate": ["planning", "generating_visuals", "assembling", "rendering"],
    "influencer_create": ["generating", "rendering_references"],
}
PATHS = {
    "project_ingest_github": "ingest/github",
    "project_ingest_website": "ingest/website",
    "appstore_ingest": "ingest/appstore",
    "content_generate": "content",
    "influencer_create": "influencers",
}
FIRM = {"opening_pr", "merging_context"}
ENDS = ("completed", "failed", "canceled")
CODES = {
    "VALIDATION",
    "NOT_FOUND",
    "CONFLICT",
    "IDEMPOTENCY_CONFLICT",
    "RATE_LIMITED",
    "INSUFFICIENT_CREDITS",
    "PLATFORM_ERROR",
    "TIMEOUT",
    "CANCELED",
    "INTERNAL",
}
UUID_TEXT = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
JOB = r"job_[0-7][0-9A-HJKMNP-TV-Z]{25}"


@dataclass(slots=True)
class Seen:
    """A job as a partner saw it: how it was taken in, what was told while it ran, how it ended."""

    accepted: httpx2.Response
    running: list[httpx2.Response] = field(default_factory=list)
    end: httpx2.Response | None = None

    @property
    def job(self) -> dict[str, Any]:
        return self.accepted.json()

    @property
    def final(self) -> dict[str, Any]:
        assert self.end is not None
        return self.end.json()


@dataclass(slots=True)
class Partner:
    """Somebody with a key and a project."""

    server: Server
    key: str
    project: str = ""

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """As one who comes again when that is asked for."""
        while (answer := await self.send_once(method, path, body, **headers)).status_code == 429:
            await asyncio.sleep(int(answer.headers["retry-after"]))
        return answer

    async def send_once(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        given = {"Authorization": f"Bearer {self.key}"} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        url = f"{self.server.url}{path if path.startswith('/partner') else f'/partner/v1/{path}'}"
        return await self.server.http.request(method, url, json=body, headers=given)

    async def start(self, kind: str, body: Any, **headers: str) -> httpx2.Response:
        return await self.send("POST", f"projects/{self.project}/{PATHS.get(kind, kind)}", body, **headers)

    async def watch(self, accepted: httpx2.Response, patience: float = 110) -> Seen:
        """Poll as a partner would, until it has ended."""
        seen = Seen(accepted)
        location = body_of(accepted, 202)["locationUrl"]

        async def look() -> bool:
            answer = await self.send("GET", location)
            assert answer.status_code == 200, answer.text
            if answer.json()["status"] in ENDS:
                seen.end = answer
                return True
            seen.running.append(answer)
            return False

        await until(look, patience)
        return seen

    async def done(self, kind: str, body: Any) -> Seen:
        return await self.watch(await self.start(kind, body))

    async def context(self) -> dict[str, Any]:
        return body_of(await self.send("GET", f"projects/{self.project}"))["context"]


async def partner(server: Server, amount: int = 200) -> Partner:
    account = fresh("partner")
    made = Partner(server, await server.key("client", TENANT, account))
    if amount:
        await server.grant(TENANT, account, amount)
    made.project = body_of(await made.send("POST", "projects", {"name": "Lumen"}), 201)["projectId"]
    return made


@dataclass(slots=True)
class Work:
    """One job of each kind, done for real for one project."""

    partner: Partner
    seen: dict[str, Seen]


async def work(system: SystemUnderTest) -> Work:
    return await system.once("partner", lambda: _work(system))


async def _work(system: SystemUnderTest) -> Work:
    """The sources first: content and influencers are made from what they have told."""
    name = f"octo/{fresh('lamp')}"
    files: dict[Any, Any] = {
        "README.md": "# Lumen\n\nA lamp that follows the sun.\n",
        "pyproject.toml": '[project]\nname = "lumen"\nversion = "1.0"\ndescription = "A lamp."\n',
        "lumen.py": "def shine():\n    return 42\n",
    }
    system.forge.git.repository(name, files)
    made = await partner(system.steady)
    bodies: dict[str, Any] = {
        "project_ingest_github": {"repoUrl": f"{system.github_server.url}/{name}"},
        "project_ingest_website": {"url": f"{system.shop.url}/good"},
        "appstore_ingest": {"appId": "310633997"},
        "content_generate": {"images": 1, "seed": 7, "brief": "Evening light"},
        "influencer_create": {"references": 1, "seed": 7},
    }
    kinds = list(bodies)
    seen = await asyncio.gather(*(made.done(kind, bodies[kind]) for kind in kinds[:3]))
    seen += await asyncio.gather(*(made.done(kind, bodies[kind]) for kind in kinds[3:]))
    return Work(made, dict(zip(kinds, seen, strict=True)))


@checks("PAR-1")
async def every_start_is_answered_alike(system: SystemUnderTest) -> None:
    done = await work(system)
    for kind, seen in done.seen.items():
        job = seen.job
        assert seen.accepted.status_code == 202
        assert {"jobId", "kind", "status", "stage", "locationUrl", "startedAt", "projectId"} <= set(job)
        assert (job["kind"], job["status"], job["stage"]) == (kind, "running", "queued")
        assert seen.accepted.headers["location"] == job["locationUrl"]
        assert job["locationUrl"].endswith(f"/v1/jobs/{job['jobId']}")
        assert re.fullmatch(JOB, job["jobId"])
        assert re.fullmatch(f"prj_{UUID_TEXT}", job["projectId"])
    assert re.fullmatch(f"cnt_{UUID_TEXT}", done.seen["content_generate"].job["containerId"])
    assert re.fullmatch(f"inf_{UUID_TEXT}", done.seen["influencer_create"].job["influencerId"])
    ids = [seen.job["jobId"] for seen in done.seen.values()]
    assert max(ids[:3]) < min(ids[3:]), "they sort by time"


@checks("PAR-2")
async def a_job_that_runs(system: SystemUnderTest) -> None:
    seen = (await work(system)).seen["content_generate"]
    assert seen.running, "nobody looked while it ran"
    for answer in seen.running:
        job = answer.json()
        assert {"jobId", "kind", "status", "progress", "stage", "startedAt", "projectId", "containerId"} <= set(job)
        assert not {"finishedAt", "result", "error"} & set(job)
        assert {name: job[name] for name in ("jobId", "kind", "startedAt", "containerId")} == {
            name: seen.job[name] for name in ("jobId", "kind", "startedAt", "containerId")
        }


@checks("PAR-3")
async def a_job_that_has_ended(system: SystemUnderTest) -> AsyncGenerator[None]:
    """Byte for byte the same after the process was killed, and after attempts to change it."""
    mortal = await partner(system.mortal)
    well = await mortal.done("project_ingest_website", {"url": f"{system.shop.url}/good"})
    ill = await mortal.done("project_ingest_website", {"url": f"{system.shop.url}/absent"})
    assert ("result" in well.final, "error" in ill.final, ill.final["status"]) == (True, True, "failed")
    yield
    for seen in (well, ill):
        assert seen.end is not None
        location = seen.job["locationUrl"]
        await mortal.send("POST", f"{location}/cancel")
        again = await mortal.send("GET", location)
        assert (again.content, again.headers["etag"]) == (seen.end.content, seen.end.headers["etag"])
        assert set(again.headers["cache-control"].replace(" ", "").split(",")) >= {"private", "immutable"}
        kept = await mortal.send("GET", location, If_None_Match=again.headers["etag"])
        assert (kept.status_code, kept.content) == (304, b"")
    content = (await work(system)).seen["content_generate"]
    assert content.final["status"] == "completed", content.final
    assert content.final["result"]["containerId"] == content.job["containerId"]
    assert content.final["result"]["assets"]
    assert content.final["finishedAt"] >= content.final["startedAt"]


@checks("PAR-4")
async def three_ends(system: SystemUnderTest) -> None:
    done = await work(system)
    seen = done.seen["project_ingest_website"]
    assert seen.end is not None
    number = UUID(bytes=number_of(seen.job["jobId"]))
    for state, outcome in (("running", None), ("failed", "failed"), ("canceled", "canceled")):
        statement = "update millpond.jobs set state = $2, outcome = $3::text where id = $1"
        await refused(system.steady, statement, number, state, outcome)
    assert (await done.partner.send("GET", seen.job["locationUrl"])).content == seen.end.content
    transitions = await system.steady.sql(
        "select distinct from_state, to_state from millpond.lifecycle_transitions where lifecycle = 'partner'"
        " and from_state is distinct from to_state and from_state <> ''"
    )
    drawn = {(source, target) for source, target in transitions if source in ("running", *ENDS)}
    assert drawn == {("running", end) for end in ENDS}


@checks("PAR-5")
async def progress_never_moves_back(system: SystemUnderTest) -> None:
    """Under a worker that lies, and begins again; and in what is done for real."""
    idle = await system.idle()
    liar = await partner(idle)
    seen = await liar.done("project_ingest_website", {"url": f"{system.shop.url}/good?lies"})
    assert seen.final["status"] == "completed", seen.final
    states = [event["type"] for event in await idle.events(seen.job["jobId"].lower())]
    assert "requeued" in states, "it was to begin again"
    for each in (seen, *(await work(system)).seen.values()):
        values = [answer.json()["progress"] for answer in each.running]
        assert all(isinstance(value, float | int) and 0 <= value <= 1 for value in values)
        assert values == sorted(values)
    assert max(answer.json()["progress"] for answer in seen.running) >= 0.5


@checks("PAR-6")
async def stages_come_in_order(system: SystemUnderTest) -> None:
    liar = await partner(await system.idle())
    lied = await liar.done("appstore_ingest", {"appId": "com.example.lies"})
    done = await work(system)
    for kind, seen in (("appstore_ingest", lied), *done.seen.items()):
        order = ["queued", *STAGES[kind]]
        stages = [answer.json()["stage"] for answer in (seen.accepted, *seen.running)]
        assert stages[0] == "queued"
        assert [order.index(stage) for stage in stages] == sorted(order.index(stage) for stage in stages)


@checks("PAR-7")
async def five_kinds_do_their_work(system: SystemUnderTest) -> AsyncGenerator[None]:
    yield
    done = await work(system)
    for kind, seen in done.seen.items():
        assert seen.final["status"] == "completed", seen.final
        events = await system.steady.events(seen.job["jobId"].lower())
        stages = dict.fromkeys(event["data"]["stage"] for event in events if event["type"] == "stage")
        assert list(stages) == STAGES[kind]
    context = await done.partner.context()
    assert {"github", "website", "appstore", "summary"} <= set(context)
    assert "Lumen" in json.dumps(context["website"])
    assert "Lumen: Light for your Desk" in json.dumps(context["appstore"])
    result = done.seen["project_ingest_github"].final["result"]
    (pull,) = [one for one in system.forge.pulls if one["html_url"] in json.dumps(result)]
    assert pull["base"]["ref"] == "main"
    for kind in ("content_generate", "influencer_create"):
        await _look_at_assets(done.partner, kind, done.seen[kind].final["result"]["assets"])
    name = f"octo/{fresh('lamp')}"
    system.forge.git.repository(name, {"README.md": "# Lumen\n"})
    without = await partner(system.mortal)
    described = await without.done("project_ingest_github", {"repoUrl": f"{system.github_server.url}/{name}"})
    assert described.final["status"] == "completed", described.final
    (patch,) = [asset for asset in described.final["result"]["assets"] if asset["type"] == "patch"]
    assert b"+++" in await _get(without, patch["url"]), "without a token the patch is a file"


async def _get(made: Partner, url: str) -> bytes:
    answer = await made.send("GET", url)
    assert answer.status_code == 302, answer.text
    return (await made.server.http.get(answer.headers["location"])).content


async def _look_at_assets(made: Partner, kind: str, assets: list[dict[str, Any]]) -> None:
    types = [asset["type"] for asset in assets]
    assert "image" in types
    assert kind != "content_generate" or "video" in types
    for asset in assets:
        data = await _get(made, asset["url"])
        assert len(data) == asset["bytes"]
        if asset["type"] == "image":
            with Image.open(io.BytesIO(data)) as picture:
                picture.load()
                assert picture.width >= 64
        elif asset["type"] == "video":
            with av.open(io.BytesIO(data), "r") as film:
                assert next(film.decode(video=0)).width >= 64


@checks("PAR-8")
async def clones_and_leases(system: SystemUnderTest) -> None:
    done = await work(system)
    made = done.partner
    source = done.seen["content_generate"].job["containerId"]
    clone = body_of(await made.start("content/clone", {"sourceContainerId": source, "images": 1}), 202)
    assert (clone["kind"], clone["stage"], clone["status"]) == ("content_generate", "queued", "running")
    assert clone["containerId"] != source
    await made.send("POST", f"{clone['locationUrl']}/cancel")
    accounts = f"projects/{made.project}/social-accounts"
    asked = await made.start("tiktok-leases", {"handle": "lumen.light"})
    lease = body_of(asked, 202)
    assert (lease["status"], "kind" in lease, "jobId" in lease) == ("pending", False, False)
    assert asked.headers["location"] == lease["locationUrl"]
    assert body_of(await made.send("GET", accounts))["data"] == []
    path = f"/partner/v1/admin/tiktok-leases/{lease['leaseId']}/fulfil?tenant={TENANT}"
    body = {"handle": "lumen.light"}
    assert (await made.server.send("POST", path, body, key=made.key)).status_code == 403, "an admin does that"
    body_of(await made.server.send("POST", path, body))
    assert body_of(await made.send("GET", lease["locationUrl"]))["status"] == "fulfilled"
    (account,) = body_of(await made.send("GET", accounts))["data"]
    assert account["handle"].lstrip("@") == "lumen.light"
    kinds = (await system.steady.order("GET", "/v1/kinds"))["data"]
    assert not [kind for kind in kinds if "tiktok" in kind["name"]]


@checks("PAR-9")
async def cancels(system: SystemUnderTest) -> None:
    """At each stage of each kind, under a worker that waits in it until it is told to go on."""
    made = await partner(await system.idle())
    bodies: dict[str, Any] = {
        "project_ingest_github": {"repoUrl": f"{system.github_server.url}/octo/waits"},
        "project_ingest_website": {"url": f"{system.shop.url}/waits"},
        "appstore_ingest": {"appId": "com.example.waits"},
        "content_generate": {"brief": "It waits."},
        "influencer_create": {"brief": "It waits."},
    }
    await asyncio.gather(*(_cancel_everywhere(system, made, kind, body) for kind, body in bodies.items()))
    finished = await made.done("appstore_ingest", {"appId": "com.example.quick"})
    late = await made.send("POST", f"{finished.job['locationUrl']}/cancel")
    assert (late.status_code, late.json()["accepted"], late.json()["reason"]) == (200, False, "ALREADY_COMPLETED")
    done = await work(system)
    ill = await done.partner.done("project_ingest_website", {"url": f"{system.shop.url}/absent"})
    late = await done.partner.send("POST", f"{ill.job['locationUrl']}/cancel")
    assert (late.status_code, late.json()["reason"]) == (200, "ALREADY_FAILED")


async def _cancel_everywhere(system: SystemUnderTest, made: Partner, kind: str, body: dict[str, Any]) -> None:
    for stage in STAGES[kind]:
        accepted = body_of(await made.start(kind, body), 202)
        location = accepted["locationUrl"]
        gates = [system.folder / f"{accepted['jobId'].lower()}-{name}" for name in STAGES[kind]]
        for gate in gates[: STAGES[kind].index(stage)]:
            gate.touch()

        async def is_there(location: str = location, stage: str = stage) -> bool:
            return body_of(await made.send("GET", location))["stage"] == stage

        await until(is_there)
        answer = await made.send("POST", f"{location}/cancel")
        if stage in FIRM:
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (409, "CONFLICT")
            assert error["details"]["subcode"] == "JOB_CANCEL_UNAVAILABLE"
            for gate in gates:
                gate.touch()
        else:
            assert (answer.status_code, answer.json()) == (202, {"jobId": accepted["jobId"], "accepted": True})

        async def has_ended(location: str = location) -> str | None:
            status = body_of(await made.send("GET", location))["status"]
            return status if status in ENDS else None

        assert await until(has_ended) == ("completed" if stage in FIRM else "canceled")
        if stage not in FIRM:
            again = await made.send("POST", f"{location}/cancel")
            assert (again.status_code, again.json()["reason"]) == (200, "ALREADY_CANCELED")


@checks("PAR-10")
async def errors(system: SystemUnderTest) -> None:
    made, poor = await partner(system.steady), await partner(system.steady, amount=0)
    gone, absent = await asyncio.gather(
        made.done("project_ingest_website", {"url": f"{system.shop.url}/absent"}),
        made.done("appstore_ingest", {"appId": "999"}),
    )
    error = gone.final["error"]
    assert (gone.final["status"], set(error)) == ("failed", {"code", "message", "details"})
    assert error["code"] == "PLATFORM_ERROR"
    assert set(error["details"]) >= {"platform", "platformCode", "platformMessage", "retryAfterMs"}
    assert (error["details"]["platform"], error["details"]["platformCode"]) == ("website", "404")
    assert absent.final["error"]["code"] == "NOT_FOUND"
    answers = [
        await made.start("project_ingest_website", {"url": "http://169.254.169.254/"}),
        await made.start("project_ingest_github", {"repoUrl": "file:///etc/passwd"}),
        await made.send("GET", "jobs/job_01HX9Y6K7EJ4T2ABCDEF012345"),
        await poor.start("content_generate", {}),
    ]
    assert [answer.status_code for answer in answers] == [400, 400, 404, 402]
    for answer, code in zip(answers, ("VALIDATION", "VALIDATION", "NOT_FOUND", "INSUFFICIENT_CREDITS"), strict=True):
        envelope = answer.json()["error"]
        assert set(envelope) == {"code", "message", "details", "requestId"}
        assert envelope["code"] == code
    document = json.dumps(body_of(await made.send("GET", "/partner/openapi.json"), 200))
    assert all(f'"{code}"' in document for code in CODES), "the set is documented"


@checks("PAR-11")
async def a_key_makes_one_job(system: SystemUnderTest) -> None:
    made, key = await partner(system.steady), str(uuid4())
    path = f"{made.server.url}/partner/v1/projects/{made.project}/ingest/website"
    url = json.dumps(f"{system.shop.url}/good")

    async def post(body: str, key: str) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {made.key}", "Content-Type": "application/json", "Idempotency-Key": key}
        return await made.server.http.post(path, content=body, headers=headers)

    answers = await asyncio.gather(*(post(f'{{"url": {url}}}', key) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1, "byte for byte"
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    spaced = await post(f'{{\n  "url" : {url.replace("/", chr(92) + "/")} }}', key)
    assert (spaced.content, spaced.headers["idempotency-replayed"]) == (answers[0].content, "true"), "an equal value"
    other = await post(json.dumps({"url": f"{system.shop.url}/plain"}), key)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert (await post(f'{{"url": {url}}}', "not-a-uuid")).status_code == 400
    count = await system.steady.sql(
        "select count(*) from millpond.jobs where input::text like $1", f"%{made.project[4:]}%"
    )
    assert count == [(1,)]
    bodies: dict[str, Any] = {
        "project_ingest_github": {"repoUrl": f"{system.github_server.url}/octo/any"},
        "appstore_ingest": {"appId": "310633997"},
        "content_generate": {"seed": 1},
        "influencer_create": {"seed": 1},
    }
    for kind, body in bodies.items():
        key = str(uuid4())
        first, second = [await made.start(kind, body, Idempotency_Key=key) for _ in range(2)]
        assert (first.status_code, first.content) == (202, second.content)
        await made.send("POST", f"{first.json()['locationUrl']}/cancel")


@checks("PAR-12")
async def polling(system: SystemUnderTest) -> None:
    made = await partner(await system.idle())
    job = body_of(await made.start("appstore_ingest", {"appId": "com.example.waits"}), 202)
    location = job["locationUrl"]
    answer = await made.send("GET", location)
    assert int(answer.headers["retry-after"]) >= 1, "when to ask again"
    answers = await asyncio.gather(*(made.send_once("GET", location) for _ in range(200)))
    refusals = [answer for answer in answers if answer.status_code == 429]
    assert refusals, "ten a second, and those of ten seconds at once"
    for answer in refusals[:3]:
        assert answer.json()["error"]["code"] == "RATE_LIMITED"
        assert int(answer.headers["retry-after"]) >= 1
        assert [name for name in answer.headers if name.lower().startswith("ratelimit")]
    waiting = asyncio.create_task(made.send("GET", f"{location}?wait=30"))
    for stage in STAGES["appstore_ingest"]:
        (system.folder / f"{job['jobId'].lower()}-{stage}").touch()
    assert body_of(await waiting, 200)["status"] == "completed", "a 429 does not touch the job"


@checks("PAR-13")
async def webhook_endpoints(system: SystemUnderTest) -> None:
    made, name = await partner(system.steady), fresh("endpoint")
    given = {"url": system.receiver.url(name), "events": ["job.completed", "job.failed"]}
    endpoint = body_of(await made.send("POST", "webhook-endpoints", given), 201)
    path, secret = f"webhook-endpoints/{endpoint['endpointId']}", endpoint["secret"]
    assert [one["endpointId"] for one in body_of(await made.send("GET", "webhook-endpoints"))["data"]] == [
        endpoint["endpointId"]
    ]
    body_of(await made.send("POST", f"{path}/test", {}), 202)
    well = await made.done("project_ingest_website", {"url": f"{system.shop.url}/good"})
    ill = await made.done("project_ingest_website", {"url": f"{system.shop.url}/absent"})
    await until(lambda: asyncio.sleep(0, len(system.receiver.at(name)) >= 3))
    bodies = [one.body for one in system.receiver.at(name)]
    for seen in (well, ill):
        assert seen.end is not None
        assert seen.end.content in bodies, "the very object that GET returns"
    for one in system.receiver.at(name):
        standardwebhooks.Webhook(secret).verify(one.body.decode(), one.headers)
    rotated = body_of(await made.send("POST", f"{path}/rotate-secret", {}), 201)["secret"]
    assert rotated != secret
    assert body_of(await made.send("POST", f"{path}/disable"))["status"] == "disabled"
    inside = await made.send("POST", "webhook-endpoints", {"url": "http://10.0.0.1/"})
    assert inside.status_code == 400
    assert (await made.send("DELETE", path)).status_code == 204
    assert body_of(await made.send("GET", "webhook-endpoints"))["data"] == []


@checks("PAR-14")
async def projects(system: SystemUnderTest) -> None:
    made, other = await partner(system.steady), await partner(system.steady)
    before = body_of(await made.send("GET", f"projects/{made.project}"))
    assert (before["projectId"], before["name"]) == (made.project, "Lumen")
    assert not {"website", "github", "appstore"} & set(before["context"])
    await made.done("project_ingest_website", {"url": f"{system.shop.url}/plain"})
    context = await made.context()
    assert "Oak Stool" in json.dumps(context["website"])
    assert (await other.send("GET", f"projects/{made.project}")).status_code == 404
