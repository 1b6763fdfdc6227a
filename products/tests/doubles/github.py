"""GitHub, as far as its REST API is used; the shapes are those of its documents, cut to what a client may read.

A run of a workflow goes on each time that it is looked at, by its script: so nothing here waits. What else it does it
is told: whether it knows `return_run_details`, whether the answer to a dispatch arrives, and what it refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.doubles.comfyui import Served, served

TOKEN = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
WELL = ("queued", "in_progress", "in_progress", "completed/success")
ENDLESS = ("queued", "in_progress")


@dataclass(slots=True)
class Refusal:
    """What is answered instead of what was asked for."""

    status: int
    message: str = "It is not a good time."
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Workflow:
    """A file in .github/workflows."""

    id: int
    file: str
    inputs: tuple[str, ...] = ()
    run_name: str | None = None
    """The input that its runs are named after, where it has a `run-name`."""
    script: tuple[str, ...] = WELL
    """What its runs are at each time that they are looked at; the last lasts."""
    jobs: tuple[str, ...] = ("build",)
    is_dispatched: bool = True


@dataclass(slots=True)
class Repository:
    """A repository with its workflows."""

    full_name: str
    default_branch: str = "main"
    branches: tuple[str, ...] = ("main",)
    workflows: tuple[Workflow, ...] = ()

    def workflow(self, named: str) -> Workflow | None:
        return next((each for each in self.workflows if named in (each.file, str(each.id))), None)


class GitHub:
    """The API."""

    def __init__(self) -> None:
        self.url = ""
        self.reset()
        repository = "/repos/{owner}/{repo}"
        self._app = Starlette(
            routes=[
                Route(repository, self._repository),
                Route(f"{repository}/actions/workflows/{{workflow}}/dispatches", self._dispatch, methods=["POST"]),
                Route(f"{repository}/actions/workflows/{{workflow}}/runs", self._list_runs),
                Route(f"{repository}/actions/runs/{{id:int}}", self._run),
                Route(f"{repository}/actions/runs/{{id:int}}/jobs", self._jobs),
                Route(f"{repository}/actions/runs/{{id:int}}/cancel", self._cancel, methods=["POST"]),
            ]
        )

    def reset(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.runs: dict[int, dict[str, Any]] = {}
        self.looks: dict[int, int] = {}
        """How often each run was looked at."""
        self.details: Literal["given", "ignored", "refused"] = "given"
        """What becomes of `return_run_details`; servers of one's own may be older."""
        self.losses: deque[bool] = deque()
        """Whether the answers to the next dispatches arrive."""
        self.rivals = 0
        """How many others dispatch the same, just before each dispatch."""
        self.reluctance = 0.0
        """Seconds until a cancel is taken; one whose caller has gone by then is not."""
        self.refusals: deque[Refusal] = deque()
        """What the next calls are answered."""
        self.asked: list[tuple[str, str]] = []
        self.heads: list[dict[str, str]] = []
        self.bodies: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        self.asked.append((request.method, request.url.path))
        self.heads.append(dict(request.headers))
        refusal = self.refusals.popleft() if self.refusals else None
        if request.headers.get("authorization") not in (None, f"Bearer {TOKEN}"):
            refusal = Refusal(401, "Bad credentials")
        if refusal is not None:
            await refused(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def dispatched(self) -> int:
        """How many dispatches were asked for."""
        return sum(method == "POST" and path.endswith("/dispatches") for method, path in self.asked)

    # What it is asked

    def _found(self, request: Request) -> Repository | None:
        return self.repositories.get(f"{request.path_params['owner']}/{request.path_params['repo']}")

    async def _repository(self, request: Request) -> Response:
        found = self._found(request)
        if found is None:
            return absent()
        owner, _, name = found.full_name.partition("/")
        return JSONResponse(
            {
                "id": 1296269,
                "name": name,
                "full_name": found.full_name,
                "owner": {"login": owner, "type": "Organization"},
                "private": False,
                "html_url": f"{self.url}/{found.full_name}",
                "default_branch": found.default_branch,
            }
        )

    async def _dispatch(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        found = self._found(request)
        workflow = found and found.workflow(request.path_params["workflow"])
        if request.headers.get("authorization") is None or found is None or workflow is None:
            return absent()
        if refusal := self._unfit(found, workflow, body):
            return refused(refusal)
        for _ in range(self.rivals):
            self.add_run(found, workflow, body["ref"])
        run = self.add_run(found, workflow, body["ref"], body.get("inputs", {}))
        if self.losses and self.losses.popleft():
            return _Broken()
        if self.details == "given" and body.get("return_run_details"):
            fields = {"workflow_run_id": run["id"], "run_url": run["url"], "html_url": run["html_url"]}
            return JSONResponse(fields)
        return Response(status_code=204)

    def _unfit(self, found: Repository, workflow: Workflow, body: dict[str, Any]) -> Refusal | None:
        if not workflow.is_dispatched:
            return Refusal(422, "Workflow does not have 'workflow_dispatch' trigger")
        if body.get("ref") not in found.branches:
            return Refusal(422, f"No ref found for: {body.get('ref')}")
        strange = [name for name in body.get("inputs", {}) if name not in workflow.inputs]
        if strange:
            return Refusal(422, f"Unexpected inputs provided: {json.dumps(strange)}")
        if self.details == "refused" and "return_run_details" in body:
            return Refusal(422, '"return_run_details" is not a permitted key.')
        return None

    def add_run(
        self, found: Repository, workflow: Workflow, branch: str, inputs: dict[str, str] | None = None
    ) -> dict[str, Any]:
        id = 30_433_642 + len(self.runs)
        title = (inputs or {}).get(workflow.run_name or "") or workflow.file
        run = {
            "id": id,
            "name": workflow.file,
            "display_title": title,
            "path": f".github/workflows/{workflow.file}",
            "workflow_id": workflow.id,
            "event": "workflow_dispatch",
            "head_branch": branch,
            "status": "queued",
            "conclusion": None,
            "created_at": _now(),
            "url": f"{self.url}/repos/{found.full_name}/actions/runs/{id}",
            "html_url": f"{self.url}/{found.full_name}/actions/runs/{id}",
            "script": list(workflow.script),
            "job_names": list(workflow.jobs),
        }
        self.runs[id] = run
        return run

    async def _list_runs(self, request: Request) -> Response:
        found = self._found(request)
        workflow = found and found.workflow(request.path_params["workflow"])
        if workflow is None:
            return absent()
        query = request.query_params
        since = query.get("created", "").removeprefix(">=")
        runs = [
            described(run)
            for run in reversed(self.runs.values())
            if run["workflow_id"] == workflow.id
            and query.get("event") in (None, run["event"])
            and query.get("branch") in (None, run["head_branch"])
            and run["created_at"] >= since
        ]
        return JSONResponse({"total_count": len(runs), "workflow_runs": runs[: int(query.get("per_page", "30"))]})

    async def _run(self, request: Request) -> Response:
        """Each look moves it on."""
        run = self.runs.get(request.path_params["id"])
        if run is None:
            return absent()
        look = self.looks[run["id"]] = self.looks.get(run["id"], 0) + 1
        if run["status"] != "completed":
            self._move(run, run["script"][min(look, len(run["script"])) - 1])
        return JSONResponse(described(run))

    def _move(self, run: dict[str, Any], at: str) -> None:
        status, _, conclusion = at.partition("/")
        run |= {"status": status, "conclusion": conclusion or None}

    async def _jobs(self, request: Request) -> Response:
        run = self.runs.get(request.path_params["id"])
        if run is None:
            return absent()
        jobs = [
            {
                "id": run["id"] * 10 + n,
                "run_id": run["id"],
                "name": name,
                "status": run["status"],
                "conclusion": run["conclusion"],
                "html_url": f"{run['html_url']}/job/{run['id'] * 10 + n}",
                "steps": [],
            }
            for n, name in enumerate(run["job_names"])
            if run["status"] != "queued"
        ]
        return JSONResponse({"total_count": len(jobs), "jobs": jobs})

    async def _cancel(self, request: Request) -> Response:
        run = self.runs.get(request.path_params["id"])
        if run is None:
            return absent()
        await request.body()
        await asyncio.sleep(self.reluctance)
        if self.reluctance and await request.is_disconnected():
            return absent()
        if run["status"] == "completed":
            return refused(Refusal(409, "Cannot cancel a workflow run that is completed."))
        self._move(run, "completed/cancelled")
        return JSONResponse({}, 202)


class _Broken(Response):
    """An answer that breaks off in the middle."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - as all of them
        headers = [(b"content-length", b"1000"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"workflow_run', "more_body": True})
        raise ConnectionResetError


def described(run: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if name not in ("script", "job_names")}


def absent() -> Response:
    return refused(Refusal(404, "Not Found"))


def refused(refusal: Refusal) -> Response:
    body = {"message": refusal.message, "documentation_url": "https://docs.github.com/rest", "status": refusal.status}
    return JSONResponse(body, refusal.status, headers=refusal.headers)


def _now() -> str:
    return datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


@contextlib.contextmanager
def served_github() -> Iterator[Served]:
    double = GitHub()
    with served(double) as running:
        double.url = running.url
        yield running
