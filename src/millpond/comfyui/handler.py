"""The handler of a job that runs on ComfyUI: its files in, its graph run, the file of one node out."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from millpond import values
from millpond.comfyui import faults, graph
from millpond.comfyui.cache import Uploads
from millpond.comfyui.line import too_large
from millpond.comfyui.server import Prompt, Ran
from millpond.errors import InvalidError, NotFoundError, PermanentError, TransientError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from millpond.comfyui.graph import Asset, File, Task
    from millpond.comfyui.line import Job

ASSET_MAX: Final = 2 * 1024**3
_SENT, _RAN = 0.05, 0.95
"""How far the job is when its files are handed in, and when its graph has run."""
_SHA256: Final = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_HEAD: Final = 32

_PICTURES: Final = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_FILMS: Final = (b"\x1aE\xdf\xa3", b"OggS", b"FLV", b"\0\0\1\xba", b"\0\0\1\xb3")
_CLAIMS: Final = {"image": "a picture", "video": "a video"}


class Endpoint(Protocol):
    """A ComfyUI, wherever it is."""

    url: str

    async def upload(self, path: Path, name: str, job: Job) -> str: ...
    async def run(self, prompt: Prompt, job: Job) -> Ran: ...
    async def download(self, file: File, path: Path, job: Job) -> bool: ...
    async def forget(self, prompt_id: str) -> None: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class Handler:
    """Runs jobs of any kind whose input is a :class:`~millpond.comfyui.graph.Task`."""

    endpoint: Endpoint
    asset_max: int = ASSET_MAX
    """The bytes that one file may have."""
    uploads: Uploads = field(default_factory=Uploads)

    async def handle(self, job: Job, given: Any) -> dict[str, Any]:
        """The result of a job: the file that was made, by which node, in which prompt, in how many seconds."""
        began = time.monotonic()
        task = graph.read(given)
        _check_placeholders(task)
        prompt_id = f"{job.id}-{job.epoch}"
        with tempfile.TemporaryDirectory(prefix="millpond-comfyui-") as folder:
            ran, file, path = await self._make(job, task, prompt_id, Path(folder))
            await _named(job, task, file)
            saved = await job.upload(path, f"output.{file.extension}" if file.extension else "output")
        return {
            "file": {"id": saved.id, "name": saved.name, "content_type": saved.content_type, "size": saved.size},
            "node": task.output_node_id,
            "prompt_id": ran.prompt_id,
            "seconds": round(time.monotonic() - began, 3),
        }

    async def _make(self, job: Job, task: Task, prompt_id: str, folder: Path) -> tuple[Ran, File, Path]:
        """Run the graph and fetch its file. A file that ComfyUI took from its cache may be gone: then once more."""
        for attempt in (prompt_id, f"{prompt_id}-again"):
            try:
                ran = await self._run(job, task, attempt, folder)
                file = graph.pick(ran.outputs, task.output_node_id)
                path = folder / "output"
                if await self.endpoint.download(file, path, job):
                    return ran, file, path
            finally:
                await self.endpoint.forget(attempt)
        raise TransientError(
            f"The file {file.filename!r} of node {task.output_node_id} is gone.",
            reason="output",
            node=task.output_node_id,
        )

    async def _run(self, job: Job, task: Task, prompt_id: str, folder: Path) -> Ran:
        """Hand in what is needed and run. ComfyUI may have lost a file that it had: then it is sent again, once."""
        share = _Share(job, _SENT, _RAN)
        names = await self._send(job, task, folder)
        try:
            return await self.endpoint.run(self._prompt(task, names, prompt_id), share)
        except PermanentError as error:
            if not faults.is_about(error, set(names.values())):
                raise
            await job.log("ComfyUI has lost a file; it is sent again.", level="warning")
        self.uploads.forget(self.endpoint.url, set(names.values()))
        names = await self._send(job, task, folder)
        return await self.endpoint.run(self._prompt(task, names, prompt_id), share)

    @staticmethod
    def _prompt(task: Task, names: dict[str, str], prompt_id: str) -> Prompt:
        filled = graph.own(graph.fill(task.workflow, names), task.output_node_id, prompt_id)
        return Prompt(prompt_id, filled, task.output_node_id)

    # The files that it needs

    async def _send(self, job: Job, task: Task, folder: Path) -> dict[str, str]:
        """By placeholder, what ComfyUI calls each file."""
        names = dict[str, str]()
        for number, asset in enumerate(task.assets):
            names[asset.placeholder] = await self._send_one(job, asset, folder / f"asset-{number}")
            await job.progress(_SENT * (number + 1) / len(task.assets))
        return names

    async def _send_one(self, job: Job, asset: Asset, path: Path) -> str:
        known = self.uploads.get(self.endpoint.url, asset.content_hash)
        if known is not None:
            return known
        try:
            await _download(job, asset, path)
            digest = await asyncio.to_thread(self._examine, asset, path)
            # Named by what is in it: the same file is never kept twice, and no two files want the same name.
            name = f"millpond-{digest[:32]}" + (f".{asset.extension}" if asset.extension else "")
            kept = await self.endpoint.upload(path, name, job)
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        self.uploads.put(self.endpoint.url, asset.content_hash or digest, kept)
        return kept

    def _examine(self, asset: Asset, path: Path) -> str:
        """Check that a file is what it claims to be; tells its hash."""
        size = path.stat().st_size
        if size > self.asset_max:
            raise too_large(asset.filename, size, self.asset_max)
        with path.open("rb") as file:
            head = file.read(_HEAD)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        stated = _SHA256.fullmatch((asset.content_hash or "").lower())
        if stated and stated[1] != digest:
            raise _unfit(asset, "is not the file that was meant: its content has another hash")
        claim = (mimetypes.guess_type(f"x.{asset.extension}")[0] or "").partition("/")[0]
        if claim in _CLAIMS and not _is_visual(head):
            raise _unfit(asset, "is empty" if not head else f"is not {_CLAIMS[claim]}, as its name claims")
        return digest


async def _download(job: Job, asset: Asset, path: Path) -> None:
    try:
        await job.download(asset.name, path)
    except (NotFoundError, InvalidError) as error:
        raise _unfit(asset, f"cannot be had: {values.printable(error.message, 300)}") from error


def _is_visual(head: bytes) -> bool:
    """Whether it begins as a picture or a video does; many nodes take the one for the other."""
    is_riff = head[:4] == b"RIFF" and head[8:12] in {b"WEBP", b"AVI "}
    is_boxed = head[4:8] in {b"ftyp", b"moov", b"mdat", b"wide", b"free", b"JXL "}
    return is_riff or is_boxed or head.startswith((*_PICTURES, *_FILMS))


def _unfit(asset: Asset, what: str) -> PermanentError:
    return PermanentError(
        f"The file {values.printable(asset.filename, 100)!r} for {values.printable(asset.placeholder, 100)!r} {what}.",
        field="assets",
        reason="asset",
        asset=asset.name,
    )


def _check_placeholders(task: Task) -> None:
    missing = graph.absent(task)
    if missing:
        listed = ", ".join(repr(values.printable(placeholder, 100)) for placeholder in missing[:5])
        raise PermanentError(f"In the workflow there is no {listed}.", field="assets", reason="input")


async def _named(job: Job, task: Task, file: File) -> None:
    if task.extension and file.extension != task.extension.lower().removeprefix("."):
        await job.log(f"The result is a .{file.extension} file, not .{task.extension}.", level="warning")


class _Share:
    """A job whose progress from 0 to 1 is a part of the whole."""

    def __init__(self, job: Job, start: float, end: float) -> None:
        self._job = job
        self._start, self._length = start, end - start

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def epoch(self) -> int:
        return self._job.epoch

    @property
    def attempt(self) -> int:
        return self._job.attempt

    def checkpoint(self) -> Awaitable[None]:
        return self._job.checkpoint()

    def progress(self, value: float) -> Awaitable[None]:
        return self._job.progress(self._start + self._length * value)

    def log(self, text: str, *, level: str = "info") -> Awaitable[None]:
        return self._job.log(text, level=level)

    def download(self, name: str, path: Path) -> Awaitable[Any]:
        return self._job.download(name, path)

    def upload(self, path: Path, name: str | None = None) -> Awaitable[Any]:
        return self._job.upload(path, name)
