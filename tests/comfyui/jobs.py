"""A job over real files, without a server: what the handler needs of one."""

from __future__ import annotations

import asyncio
import mimetypes
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millpond.errors import CanceledError, NotFoundError
from millpond.work import Artifact


@dataclass(slots=True)
class FileJob:
    """Its files are those of one folder, and what it makes goes into another."""

    folder: Path
    id: str = "job_00000000000000000000000001"
    epoch: int = 1
    attempt: int = 1
    steps: list[float] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    downloads: list[str] = field(default_factory=list)
    is_canceled: bool = False

    async def checkpoint(self) -> None:
        await asyncio.sleep(0)
        if self.is_canceled:
            raise CanceledError

    async def check_cancel(self) -> None:
        await self.checkpoint()

    async def progress(self, value: float) -> None:
        self.steps.append(value)
        await self.checkpoint()

    async def log(self, text: str, *, level: str = "info") -> None:
        self.logs.append(f"{level}: {text}")

    async def download(self, name: str, path: Path) -> Path:
        self.downloads.append(name)
        source = self.folder / "in" / name
        if not source.is_file():
            raise NotFoundError(f"The job has no file {name!r}.")
        shutil.copyfile(source, path)
        return path

    async def upload(self, path: Path, name: str | None = None) -> Artifact:
        name = name or path.name
        target = self.folder / "out" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Artifact(id="art_1", name=name, content_type=kind, size=target.stat().st_size)

    @property
    def made(self) -> Path:
        found = list((self.folder / "out").iterdir())
        assert len(found) == 1
        return found[0]


def with_file(folder: Path, name: str, content: bytes) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_bytes(content)


def task(workflow: Any, *, node: str = "3", asset: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    """The input of a job with one file."""
    given = {"placeholder": "{{input}}", "name": "art_in", "filename": "in.png", "is_primary_input": True}
    return {"workflow": workflow, "output_node_id": node, "assets": [given | (asset or {})], **rest}
