"""The handler of ComfyUI jobs: uploads the input files, runs the graph, saves the file of one node."""

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

from millpond import ids, logs, values
from millpond.errors import CanceledError, HandlerError, InvalidError, NotFoundError, PermanentError, TransientError
from millpond.integrations.comfyui import faults, graph
from millpond.integrations.comfyui.cache import Uploads
from millpond.integrations.comfyui.connection import shown, too_large
from millpond.integrations.comfyui.disclosure import Disclosure, notes
from millpond.integrations.comfyui.server import Prompt, PromptResult
from millpond.integrations.comfyui.truncation import is_truncated

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from millpond.integrations.comfyui.connection import ComfyJob
    from millpond.integrations.comfyui.graph import Asset, OutputFile, Task

ASSET_MAX: Final = 2 * 1024**3
_SENT, _RAN = 0.05, 0.95
"""The progress of the job when its files are uploaded, and when its graph has run."""
_SHA256: Final = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_HEAD: Final = 32

_PICTURES: Final = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_FILMS: Final = (b"\x1aE\xdf\xa3", b"OggS", b"FLV", b"\0\0\1\xba", b"\0\0\1\xb3")
_CLAIMS: Final = {"image": "a picture", "video": "a video"}


class ComfyEndpoint(Protocol):
    """A ComfyUI: self-hosted, or Comfy Cloud."""

    url: str

    async def upload(self, path: Path, name: str, job: ComfyJob) -> str: ...
    async def run(self, prompt: Prompt, job: ComfyJob) -> PromptResult: ...
    async def download(self, file: OutputFile, path: Path, job: ComfyJob) -> bool: ...
    async def forget(self, prompt_id: str) -> None: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class Handler:
    """Runs jobs of any kind whose input is a :class:`~millpond.integrations.comfyui.graph.Task`."""

    endpoint: ComfyEndpoint
    asset_max: int = ASSET_MAX
    """The maximum size of a file in bytes."""
    uploads: Uploads = field(default_factory=Uploads)

    async def handle(self, job: ComfyJob, given: Any) -> dict[str, Any]:
        """Run a job; returns the produced file, its node, the prompt and the seconds taken.

        An error is raised as its user may see it; the log has the rest.
        """
        disclosure = Disclosure(self.endpoint.url)
        try:
            return await self._handle(job, given, disclosure)
        except Exception as error:
            public = disclosure.apply(error)
            if isinstance(public, HandlerError) and not isinstance(public, CanceledError):
                self._log(job, public)
            if public is error:
                raise
            raise public from error

    def _log(self, job: ComfyJob, error: HandlerError) -> None:
        logs.emit(
            "comfyui.failed",
            job_id=ids.parse("job", job.id),
            comfyui=shown(self.endpoint.url),
            error=error.message,
            details=notes(error),
        )

    async def _handle(self, job: ComfyJob, given: Any, disclosure: Disclosure) -> dict[str, Any]:
        began = time.monotonic()
        task = graph.read(given)
        _check_placeholders(task)
        prompt_id = f"{job.id}-{job.epoch}"
        with tempfile.TemporaryDirectory(prefix="millpond-comfyui-") as folder:
            ran, file, path = await self._make(job, task, prompt_id, Path(folder), disclosure)
            await _named(job, task, file)
            saved = await job.upload(path, f"output.{file.extension}" if file.extension else "output")
        return {
            "file": {"id": saved.id, "name": saved.name, "content_type": saved.content_type, "size": saved.size},
            "node": task.output_node_id,
            "prompt_id": ran.prompt_id,
            "seconds": round(time.monotonic() - began, 3),
        }

    async def _make(
        self, job: ComfyJob, task: Task, prompt_id: str, folder: Path, disclosure: Disclosure
    ) -> tuple[PromptResult, OutputFile, Path]:
        """Run the graph and download its file. A file from ComfyUI's cache may be gone: then run it once more."""
        for attempt in (prompt_id, f"{prompt_id}-again"):
            try:
                ran = await self._run(job, task, attempt, folder, disclosure)
                file = graph.pick(ran.outputs, task.output_node_id)
                path = folder / "output"
                if await self.endpoint.download(file, path, job):
                    return ran, file, path
            finally:
                await self.endpoint.forget(attempt)
        raise TransientError(
            f"The file {file.filename!r} of node {task.output_node_id} no longer exists.",
            reason="output",
            node=task.output_node_id,
        )

    async def _run(
        self, job: ComfyJob, task: Task, prompt_id: str, folder: Path, disclosure: Disclosure
    ) -> PromptResult:
        """Upload the files and run the graph. If ComfyUI has lost a file, the files are uploaded again, once."""
        share = _Share(job, _SENT, _RAN)
        names = await self._send(job, task, folder, disclosure)
        try:
            return await self.endpoint.run(self._prompt(task, names, prompt_id), share)
        except PermanentError as error:
            if not faults.is_about(error, set(names.values())):
                raise
            await job.log("ComfyUI lost a file; uploading it again.", level="warning")
        self.uploads.forget(self.endpoint.url, set(names.values()))
        names = await self._send(job, task, folder, disclosure)
        return await self.endpoint.run(self._prompt(task, names, prompt_id), share)

    @staticmethod
    def _prompt(task: Task, names: dict[str, str], prompt_id: str) -> Prompt:
        filled = graph.own(graph.fill(task.workflow, names), task.output_node_id, prompt_id)
        return Prompt(prompt_id, filled, task.output_node_id)

    # Input files

    async def _send(self, job: ComfyJob, task: Task, folder: Path, disclosure: Disclosure) -> dict[str, str]:
        """Upload the files; returns their names in ComfyUI by placeholder."""
        names = dict[str, str]()
        for number, asset in enumerate(task.assets):
            names[asset.placeholder] = await self._send_one(job, asset, folder / f"asset-{number}", disclosure)
            disclosure.name(names[asset.placeholder], asset.filename)
            await job.progress(_SENT * (number + 1) / len(task.assets))
        return names

    async def _send_one(self, job: ComfyJob, asset: Asset, path: Path, disclosure: Disclosure) -> str:
        known = self.uploads.get(self.endpoint.url, asset.content_hash)
        if known is not None:
            return known
        try:
            await _download(job, asset, path)
            digest = await asyncio.to_thread(self._examine, asset, path)
            # Named by its hash: the same file is never stored twice, and different files have different names.
            name = f"millpond-{digest[:32]}" + (f".{asset.extension}" if asset.extension else "")
            disclosure.name(name, asset.filename)
            kept = await self.endpoint.upload(path, name, job)
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        self.uploads.put(self.endpoint.url, asset.content_hash or digest, kept)
        return kept

    def _examine(self, asset: Asset, path: Path) -> str:
        """Check that a file is what it claims to be; returns its hash."""
        size = path.stat().st_size
        if size > self.asset_max:
            raise too_large(asset.filename, size, self.asset_max)
        with path.open("rb") as file:
            head = file.read(_HEAD)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        stated = _SHA256.fullmatch((asset.content_hash or "").lower())
        if stated and stated[1] != digest:
            raise _unfit(asset, "does not match the given content hash")
        claim = (mimetypes.guess_type(f"x.{asset.extension}")[0] or "").partition("/")[0]
        if claim in _CLAIMS and not _is_visual(head):
            raise _unfit(
                asset, "is empty" if not head else f"is not {_CLAIMS[claim]}, although its name has that extension"
            )
        if is_truncated(path):
            raise _unfit(asset, "is truncated: its end is missing")
        return digest


async def _download(job: ComfyJob, asset: Asset, path: Path) -> None:
    try:
        await job.download(asset.name, path)
    except (NotFoundError, InvalidError) as error:
        raise _unfit(asset, f"cannot be downloaded: {values.printable(error.message, 300)}") from error


def _is_visual(head: bytes) -> bool:
    """Whether it begins like an image or a video; many nodes accept either one as the other."""
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
        raise PermanentError(f"The workflow does not contain the placeholder {listed}.", field="assets", reason="input")


async def _named(job: ComfyJob, task: Task, file: OutputFile) -> None:
    if task.extension and file.extension != task.extension.lower().removeprefix("."):
        await job.log(f"The result is a .{file.extension} file instead of .{task.extension}.", level="warning")


class _Share:
    """A job whose progress from 0 to 1 is mapped to a part of the progress of another."""

    def __init__(self, job: ComfyJob, start: float, end: float) -> None:
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

    def check_cancel(self) -> Awaitable[None]:
        return self._job.check_cancel()

    def progress(self, value: float) -> Awaitable[None]:
        return self._job.progress(self._start + self._length * value)

    def log(self, text: str, *, level: str = "info") -> Awaitable[None]:
        return self._job.log(text, level=level)

    def download(self, name: str, path: Path) -> Awaitable[Any]:
        return self._job.download(name, path)

    def upload(self, path: Path, name: str | None = None) -> Awaitable[Any]:
        return self._job.upload(path, name)
