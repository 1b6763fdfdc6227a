"""The channel between a worker and a process of its pool: frames of MessagePack over a socket.

Only the worker connects to the database or the server. The process asks it for everything else that a job's code does.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID  # noqa: TC003 - msgspec reads the annotations

import msgspec

from millpond.work import Artifact, Lease  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

Verb = Literal["extend", "note", "emit", "proceed", "recall", "record", "spawn", "results", "save", "read", "close"]

_LENGTH: Final = 4


class Frame(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A message. Values of any type are in it as JSON, which preserves of them what the database does."""


# From the worker


class ResourceReference(msgspec.Struct, frozen=True, array_like=True):
    """A resource, by the name of the function that creates it."""

    name: str
    create: str
    needs: tuple[str, ...]
    is_eager: bool


class SetUp(Frame, frozen=True):
    """What to import, and from which files, and what to create before the first job."""

    version: str
    """The version of Millpond: an upgrade may have replaced it on disk since the worker started."""
    path: list[str]
    files: dict[str, str]
    handlers: list[str]
    resources: list[ResourceReference]


class StartJob(Frame, frozen=True):
    """A job to run, with the declaration of its kind."""

    lease: Lease
    handler: str
    resources: tuple[str, ...]
    input_type: str | None
    """The name of the type; empty if the handler's parameters are the fields; None if the input is passed as it is."""
    takes_whole_input: bool
    stages: tuple[str, ...]
    gate: str | None
    size_max: int
    silence_every: float | None
    """In seconds: how often to report for how long the code has been silent."""


class CancelJob(Frame, frozen=True):
    """The job is canceled: its next checkpoint raises that."""


class InterruptJob(Frame, frozen=True):
    """Interrupt the code of the job, and exit. If that takes too long, the process is killed."""


class CallReply(Frame, frozen=True):
    """The result of a call, or its error as JSON."""

    number: int
    value: bytes = b""
    error: bytes | None = None


class EndProcess(Frame, frozen=True):
    """Close the resources and exit."""


# From the process


class ProcessReady(Frame, frozen=True):
    """The process takes jobs, or why it cannot."""

    error: str | None = None


class JobTaken(Frame, frozen=True):
    """The job was received."""


class JobBegan(Frame, frozen=True):
    """The handler is called now: its resources are there."""


class JobCall(Frame, frozen=True):
    """Something that the code of the job asks of the worker."""

    number: int
    job_id: UUID
    epoch: int
    """The attempt: code that has left something running may still call when the next job runs."""
    verb: Verb
    body: bytes
    """As JSON."""
    data: bytes = b""


class JobSilence(Frame, frozen=True):
    """For how long the code of the job has reported nothing."""

    seconds: float


class JobWarned(Frame, frozen=True):
    """The code of the job, or a library, has logged a warning that no logging handler takes."""

    library: str
    text: str
    is_in_job: bool


class ResourcesLoaded(Frame, frozen=True):
    """The resources that the process has created."""

    names: list[str]


class JobResult(Frame, frozen=True):
    """How the code of the job has ended: with an output, with an error, or to wait."""

    output: str | None = None
    captured: int | None = None
    artifacts: tuple[Artifact, ...] = ()
    raised: bytes | None = None
    """The error, as JSON."""
    is_parked: bool = False
    memo: str | None = None
    step: str | None = None


ToProcess = SetUp | StartJob | CancelJob | InterruptJob | CallReply | EndProcess
ToWorker = ProcessReady | JobTaken | JobBegan | JobCall | JobSilence | JobWarned | ResourcesLoaded | JobResult


class Channel:
    """One end of the channel. ``type`` is the union of the frames that arrive at this end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, type: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = msgspec.msgpack.Decoder(type)
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, frame: Frame) -> None:
        """Send a frame; it is discarded if the other end is gone."""
        if not self._writer.is_closing():
            data = self._encoder.encode(frame)
            self._writer.write(len(data).to_bytes(_LENGTH, "big") + data)

    async def frames(self) -> AsyncGenerator[Any]:
        """The frames that arrive, until the other end is gone."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                length = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
                yield self._decoder.decode(await self._reader.readexactly(length))

    async def flush(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.drain()

    def close(self) -> None:
        self._writer.close()
