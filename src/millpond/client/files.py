"""Files: transferred directly to and from storage, at URLs signed by the server."""

from __future__ import annotations

import hashlib
import mimetypes
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import httpx2

from millpond import wire
from millpond.client.errors import from_reply
from millpond.client.ports import ClientResponse
from millpond.client.requests import Deadline, FailedRequest, Requests, segment
from millpond.errors import ArtifactMissingError, InvalidError, MillpondError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millpond.client.handles import Handle

TIMEOUT: Final = 3600.0
_IDLE: Final = 60.0
_PIECE: Final = 1024 * 1024
_UNKNOWN: Final = "application/octet-stream"
_OK: Final = frozenset({200, 206})
_BUSY: Final = 409
"""A bucket's response while another upload to the same path is in progress, such as an earlier try."""
_STORED: Final = 412


class Files(Requests):
    """Uploads, downloads and file records."""

    async def upload(
        self,
        file: Path | str | bytes,
        *,
        name: str | None = None,
        content_type: str | None = None,
        account: str | None = None,
        tenant: str | None = None,
        timeout: float = TIMEOUT,
    ) -> wire.Artifact:
        """Upload a file or bytes. Use the id of the returned artifact in the input of a job.

        ``name`` defaults to the name of the file, and ``content_type`` to the type for that name. ``timeout`` is in
        seconds.
        """
        source = _Source(file)
        called = name or source.name
        body = wire.MakeArtifact(
            name=called,
            content_type=content_type or mimetypes.guess_type(called)[0] or _UNKNOWN,
            size=source.size,
            sha256=source.sha256,
            account=account,
        )
        params = {"tenant": tenant}
        made = await self.request("POST", "/v1/artifacts", body=body, params=params, type=wire.NewArtifact)
        await self._put(made.upload, source, Deadline(timeout))
        stored = await self.artifact(made.id, tenant=tenant)
        if stored.stored_at is None:
            raise ArtifactMissingError(f"{made.id} was uploaded, but is not in storage.", artifact_id=made.id)
        return stored

    async def artifact(self, artifact_id: str, *, tenant: str | None = None) -> wire.Artifact:
        """The record of a file, with a new download URL."""
        path = f"/v1/artifacts/{segment(artifact_id)}"
        return await self.request("GET", path, params={"tenant": tenant}, type=wire.Artifact)

    async def artifacts(self, job: Handle | str) -> list[wire.Artifact]:
        """The files of a job: its input files and the files of the last attempt."""
        path = f"/v1/jobs/{segment(job if isinstance(job, str) else job.id)}/artifacts"
        return (await self.request("GET", path, type=wire.Artifacts)).data

    async def download(
        self,
        artifact: wire.Artifact | str,
        to: Path | str | None = None,
        *,
        tenant: str | None = None,
        timeout: float = TIMEOUT,
    ) -> bytes:
        """The content of a file. With ``to``, it is written atomically to that file instead."""
        known = artifact if isinstance(artifact, wire.Artifact) else await self.artifact(artifact, tenant=tenant)
        if known.download is None:
            raise ArtifactMissingError(f"{known.id} is not in storage.", artifact_id=known.id)
        if to is None:
            return (await self._exchange(known.download, Deadline(timeout))).body
        with _Sink(Path(to)) as sink:
            await self._pour(known.download, sink, Deadline(timeout))
        return b""

    # Inside

    async def _put(self, signed: wire.Signed, source: _Source, deadline: Deadline) -> None:
        """Upload; a file that is stored already is the one that an earlier try has sent."""
        headers = {"Content-Length": str(source.size)}
        try:
            await self._exchange(signed, deadline, headers=headers, source=source)
        except MillpondError as error:
            if error.status != _STORED:
                raise

    async def _exchange(
        self,
        signed: wire.Signed,
        deadline: Deadline,
        *,
        headers: Mapping[str, str] | None = None,
        source: _Source | None = None,
    ) -> ClientResponse:
        """The response of storage; temporary failures are retried with the whole file."""
        for failures in count(1):
            seconds = max(deadline.left(), 0.001)
            content = None if source is None else source.content(self._port)
            request = self._signed(signed, headers=headers, content=content)
            try:
                outcome = self._judge(await self._port.send(request, seconds))
            except httpx2.HTTPError as error:
                outcome = FailedRequest(_unreachable(signed, error), is_passing=True, is_harmless=True)
            if isinstance(outcome, ClientResponse):
                return outcome
            pause = self._pause(outcome, failures)
            is_passing = outcome.is_passing or outcome.error.status == _BUSY
            if not is_passing or pause >= deadline.left():
                raise outcome.error
            await self._port.sleep(pause)
        raise AssertionError  # the count has no end

    async def _pour(self, signed: wire.Signed, sink: _Sink, deadline: Deadline) -> None:
        try:
            async with self._port.open(self._signed(signed)) as stream:
                if stream.status not in _OK:
                    body = b"".join([chunk async for chunk in stream.chunks])
                    raise from_reply(stream.status, stream.headers, body)
                async for chunk in stream.chunks:
                    sink.write(chunk)
                    if deadline.is_over:
                        raise UnavailableError("The download exceeded its timeout.")
        except httpx2.HTTPError as error:
            raise _unreachable(signed, error) from error

    def _signed(
        self, signed: wire.Signed, *, headers: Mapping[str, str] | None = None, content: Any = None
    ) -> httpx2.Request:
        """A request to storage, without the key."""
        limits = httpx2.Timeout(_IDLE, connect=10.0)
        sent = {**signed.headers, **(headers or {})}
        request = self._port.build(signed.method, signed.url, headers=sent, timeout=limits, content=content)
        for own in ("Authorization", "Accept"):
            request.headers.pop(own, None)
        return request


def _unreachable(signed: wire.Signed, error: httpx2.HTTPError) -> UnavailableError:
    place = httpx2.URL(signed.url)
    failure = UnavailableError(
        f"Storage at {place.scheme}://{place.netloc.decode()} failed: {str(error) or type(error).__name__}.",
        hint="Check that the file server or bucket can be reached from this machine.",
    )
    failure.__cause__ = error
    return failure


class _Source:
    """The content of an upload: bytes, or a file that is read in chunks for every attempt."""

    def __init__(self, file: Path | str | bytes) -> None:
        self._data = file if isinstance(file, bytes) else None
        self._path = None if isinstance(file, bytes) else Path(file)
        self.name = "file" if self._path is None else self._path.name
        try:
            self.size = len(self._data or b"") if self._path is None else self._path.stat().st_size
            self.sha256 = self._hash()
        except OSError as error:
            raise InvalidError(f"Cannot read {self._path}: {error.strerror}.", field="file") from error

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()

    def pieces(self) -> Iterator[bytes]:
        if self._path is None:
            yield self._data or b""
            return
        with self._path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    def content(self, port: Any) -> Any:
        return self._data if self._path is None else port.body(self.pieces())


class _Sink:
    """A file being downloaded: it has a temporary name until it is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.part")

    def __enter__(self) -> Self:
        try:
            self._file = self._part.open("wb")
        except OSError as error:
            raise InvalidError(f"Cannot write {self._path}: {error.strerror}.", field="to") from error
        return self

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)

    def __exit__(self, kind: object, *_: object) -> None:
        self._file.close()
        if kind is None:
            self._part.replace(self._path)
        else:
            self._part.unlink(missing_ok=True)
