"""A GitHub of one's own: it serves repositories over git, and its API makes branches and pull requests of them.

What the API makes is made by git, in the very repositories that are served; so what it says can be looked at there.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import Any

from products.tests.doubles.git import GitServer, git
from products.tests.doubles.github import TOKEN, GitHub, Refusal, _Broken, absent, refused
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

API = "/api/v3"


class Forge(GitHub):
    """Below /api/v3 it is the API, everywhere else the server of repositories."""

    def __init__(self, folder: Path) -> None:
        self.git = GitServer(folder)
        super().__init__()
        repository = "/repos/{owner}/{repo}"
        self._app = Starlette(
            routes=[
                Route(f"{repository}/pulls", self._list_pulls),
                Route(f"{repository}/pulls", self._open_pull, methods=["POST"]),
                Route(f"{repository}/git/ref/{{ref:path}}", self._ref),
                Route(f"{repository}/git/refs", self._make_ref, methods=["POST"]),
                Route(f"{repository}/git/trees", self._make_tree, methods=["POST"]),
                Route(f"{repository}/git/commits", self._make_commit, methods=["POST"]),
            ]
        )

    def reset(self) -> None:
        super().reset()
        self.pulls: list[dict[str, Any]] = []
        self.closed: set[str] = set()
        """Repositories that the token may read only."""
        self.torn: deque[str] = deque()
        """Ends of paths to which something is posted and taken, while the answer gets lost; each once."""
        self.gate = threading.Event()
        self.gate.set()
        """Shut, no pull request is answered."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path: str = scope.get("path", "")
        if not path.startswith(API):
            await self.git(scope, receive, send)
            return
        scope = {**scope, "path": path.removeprefix(API), "raw_path": path.removeprefix(API).encode()}
        if scope["method"] == "POST" and self.torn and path.endswith(self.torn[0]):
            self.torn.popleft()
            with contextlib.suppress(ConnectionError):
                await super().__call__(scope, receive, _nowhere)
            await _Broken()(scope, receive, send)
            return
        await super().__call__(scope, receive, send)

    def at(self, request: Request) -> Path | None:
        """The repository that is meant; one that may not be written is not shown to who would."""
        name = f"{request.path_params['owner']}/{request.path_params['repo']}"
        is_shut = request.method == "POST" and name in self.closed
        path = self.git.folder / f"{name}.git"
        is_seen = request.headers.get("authorization") == f"Bearer {TOKEN}" and path.is_dir() and not is_shut
        return path if is_seen else None

    # Branches

    async def _ref(self, request: Request) -> Response:
        path = self.at(request)
        found = path and _parsed(path, f"refs/{request.path_params['ref']}")
        return JSONResponse(_pointer(request.path_params["ref"], found)) if found else absent()

    async def _make_tree(self, request: Request) -> Response:
        path, body = self.at(request), await request.json()
        if path is None:
            return absent()
        with tempfile.TemporaryDirectory() as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
            git(path, "read-tree", body["base_tree"], more=index)
            for entry in body["tree"]:
                blob = git(path, "hash-object", "-w", "--stdin", given=entry["content"].encode()).decode().strip()
                git(path, "update-index", "--add", "--cacheinfo", f"{entry['mode']},{blob},{entry['path']}", more=index)
            return JSONResponse({"sha": git(path, "write-tree", more=index).decode().strip()}, 201)

    async def _make_commit(self, request: Request) -> Response:
        path, body = self.at(request), await request.json()
        if path is None:
            return absent()
        who = {
            f"GIT_{role.upper()}_{what.upper()}": text
            for role in ("author", "committer")
            for what, text in body[role].items()
        }
        parents = [word for parent in body["parents"] for word in ("-p", parent)]
        made = git(path, "commit-tree", body["tree"], *parents, given=body["message"].encode(), more=who)
        return JSONResponse({"sha": made.decode().strip()}, 201)

    async def _make_ref(self, request: Request) -> Response:
        path, body = self.at(request), await request.json()
        if path is None:
            return absent()
        if _parsed(path, body["ref"]):
            return refused(Refusal(422, "Reference already exists"))
        git(path, "update-ref", body["ref"], body["sha"])
        return JSONResponse(_pointer(body["ref"].removeprefix("refs/"), body["sha"]), 201)

    # Pull requests

    async def _list_pulls(self, request: Request) -> Response:
        if self.at(request) is None:
            return absent()
        repository = f"{request.path_params['owner']}/{request.path_params['repo']}"
        query = request.query_params
        head, base, state = query.get("head", "").partition(":")[2], query.get("base"), query.get("state", "open")
        found = [
            pull
            for pull in self.pulls
            if pull["repository"] == repository
            and head in ("", pull["head"]["ref"])
            and base in (None, pull["base"]["ref"])
            and state in ("all", pull["state"])
        ]
        return JSONResponse(found[::-1][: int(query.get("per_page", "30"))])

    async def _open_pull(self, request: Request) -> Response:
        path, body = self.at(request), await request.json()
        await run_in_threadpool(self.gate.wait)
        if path is None:
            return absent()
        repository = f"{request.path_params['owner']}/{request.path_params['repo']}"
        unfit = [side for side in ("head", "base") if not _parsed(path, f"refs/heads/{body[side]}")]
        if unfit or any((p["head"]["ref"], p["repository"]) == (body["head"], repository) for p in self.pulls):
            return refused(Refusal(422, "Validation Failed"))
        number = len(self.pulls) + 1
        pull = {
            "number": number,
            "state": "open",
            "title": body["title"],
            "body": body["body"],
            "html_url": f"{self.url}/{repository}/pull/{number}",
            "head": {"ref": body["head"], "repo": {"full_name": repository}},
            "base": {"ref": body["base"]},
            "repository": repository,
        }
        self.pulls.append(pull)
        return JSONResponse(pull, 201)


async def _nowhere(_: Any) -> None:
    return None


def _parsed(path: Path, ref: str) -> str:
    return git(path, "for-each-ref", "--format=%(objectname)", ref).decode().strip()


def _pointer(ref: str, sha: str) -> dict[str, Any]:
    return {"ref": f"refs/{ref}", "object": {"type": "commit", "sha": sha}}
