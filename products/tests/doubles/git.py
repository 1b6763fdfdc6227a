"""A server of git repositories: git's own http-backend behind HTTP; and repositories of every quality for it.

What a bad server does can be switched on by path: see :class:`GitServer`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

_CLEAN = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
    "PATH": os.environ["PATH"],
    "LC_ALL": "C",
}


def git(folder: Path, *words: str, given: bytes | None = None, more: dict[str, str] | None = None) -> bytes:
    """Run git in a folder, with none of this machine's settings."""
    env = _CLEAN | (more or {})
    done = subprocess.run(["git", *words], cwd=folder, input=given, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


class GitServer:
    """Serves the bare repositories of a folder over git's smart protocol; what it was asked is kept.

    Paths that begin with ``/bad/`` misbehave: ``inside`` redirects to an address inside, ``moved`` to a repository
    that is here, ``status-NNN`` answers that status, ``hangs`` never answers, ``dribbles`` sends a byte now and then,
    ``endless`` sends more than anybody wants, ``html`` is a page, ``secret`` wants a password.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []

    def repository(self, name: str, files: dict[str | bytes, bytes | str] | None = None, branch: str = "main") -> Path:
        """A bare repository with one commit that has these files, or with none."""
        path = self.folder / f"{name}.git"
        path.mkdir(parents=True)
        git(path, "init", "--bare", "--quiet", f"--initial-branch={branch}")
        if files is not None:
            self.commit(path, files, branch)
        return path

    @staticmethod
    def commit(path: Path, files: dict[str | bytes, bytes | str], branch: str = "main") -> None:
        """By fast-import: no folder is needed, and any name can be had."""
        stream = [f"commit refs/heads/{branch}\ncommitter Ada <ada@example.com> 1767323045 +0000\n".encode()]
        stream.append(b"data 5\nBegin\n")
        for name, content in files.items():
            body = content.encode() if isinstance(content, str) else content
            stream.append(b"M 100644 inline %b\ndata %d\n%b\n" % (_quoted(name), len(body), body))
        git(path, "fast-import", "--quiet", "--force", given=b"".join(stream))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        self.asked.append(request.url.path)
        await (await self._answer(request))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        _, first, *rest = path.split("/")
        if first == "bad":
            return await self._misbehave(request, rest[0], "/".join(rest[1:]))
        return await self._served(request, path)

    async def _misbehave(self, request: Request, how: str, rest: str) -> Response:
        query = f"?{request.url.query}"
        media_type = "application/x-git-upload-pack-advertisement"
        if how == "hangs":
            await asyncio.sleep(3_600)
        if how.startswith("status-"):
            return Response("Sorry.", int(how.removeprefix("status-")))
        answers: dict[str, Callable[[], Response]] = {
            "inside": lambda: RedirectResponse(f"http://169.254.169.254/{rest}{query}"),
            "moved": lambda: RedirectResponse(f"/{rest}{query}", 301),
            "dribbles": lambda: StreamingResponse(_drops(), media_type=media_type),
            "endless": lambda: StreamingResponse(_flood(), media_type=media_type),
            "secret": lambda: Response(status_code=401, headers={"www-authenticate": "Basic realm=x"}),
            "html": lambda: Response("<title>A page</title>", media_type="text/html"),
        }
        return answers[how]()

    async def _served(self, request: Request, path: str) -> Response:
        """As the CGI says: variables in, headers and a body out."""
        response = {
            **_CLEAN,
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": request.url.query,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
        }
        body = await request.body()
        done = await asyncio.to_thread(
            subprocess.run, ["git", "http-backend"], input=body, env=response, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(headers.pop("Status", "200").split()[0])
        return Response(content, status, headers=headers)


def _quoted(name: str | bytes) -> bytes:
    raw = name.encode() if isinstance(name, str) else name
    return b'"%b"' % b"".join(
        b"\\%03o" % byte if byte < 33 or byte > 126 or byte in b'"\\' else bytes([byte]) for byte in raw
    )


async def _drops() -> AsyncIterator[bytes]:
    while True:
        yield b"0"
        await asyncio.sleep(0.05)


async def _flood() -> AsyncIterator[bytes]:
    yield b"001e# service=git-upload-pack\n0000"
    while True:
        yield b"fff0" + b"x" * (0xFFF0 - 4)
        await asyncio.sleep(0.001)  # so that it is noticed when nobody listens any more
