"""Batches: many jobs under one handle, written once for both clients."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import msgspec

from millpond import wire
from millpond.client.admin import Admin
from millpond.client.errors import WaitTimeoutError
from millpond.client.handles import KnownBatch
from millpond.client.requests import Deadline, encode, given, length, new_key, plain, segment
from millpond.errors import InputError, InvalidError, MillpondError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping

B = TypeVar("B", bound=KnownBatch)

BYTES_MAX: Final = 8 * 1024 * 1024
"""How many bytes of jobs one request has at most."""
_FIELDS: Final = frozenset(wire.BatchJob.__struct_fields__)
_PLACE: Final = re.compile(r"jobs\[(\d+)\]")
_PAUSE: Final = 0.1
_PAUSE_MAX: Final = 2.0


class BatchVerbs(Admin, Generic[B]):
    """The client's methods for batches. ``B`` is the type of its batch handles."""

    _batch_handle: Callable[..., B]

    async def batch(
        self,
        requests: Iterable[Mapping[str, Any]],
        *,
        name: str | None = None,
        tags: Mapping[str, str] | None = None,
        webhook: wire.BatchWebhook | Mapping[str, Any] | str | None = None,
        account: str | None = None,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> B:
        """Submit up to 100,000 independent jobs as a batch, a thousand at a time.

        A request holds the ``kind``, ``input``, ``priority``, ``run_at``, ``expires_in`` and ``tags`` of a job; the
        jobs inherit the ``tags`` of the batch. ``webhook`` is a URL that receives the end of the batch, optionally with
        ``secret``. The jobs of each thousand are accepted together or not at all. If one is refused, the error names
        it, and its details have the ``batch_id`` and how many jobs were ``submitted``: continue with :meth:`add_jobs`,
        or cancel the batch. The same call with the same idempotency key continues too.
        """
        jobs = [_encoded(position, request) for position, request in enumerate(requests)]
        if not jobs:
            raise InvalidError("The batch has no jobs.", field="requests")
        if len(jobs) > wire.BATCH_MAX:
            raise InvalidError(
                f"There are {len(jobs):,} jobs; a batch can have at most {wire.BATCH_MAX:,}.", field="requests"
            )
        first, *rest = parts(jobs)
        hook = None if webhook is None else _webhook(webhook)
        options = {"name": name, "tags": dict(tags) if tags else None, "webhook": hook, "account": account}
        body = _with_jobs(wire.MakeBatch(total=len(jobs), **given(options)), first)
        with _placed(0):
            created = await self.request(
                "POST",
                "/v1/batches",
                body=body,
                params={"tenant": tenant},
                type=wire.NewBatch,
                idempotency_key=idempotency_key or new_key(),
            )
        batch = self._batch_handle(self, created.id, created)
        await self._add_parts(batch, rest, len(first), tenant)
        return batch

    async def add_jobs(
        self,
        batch: KnownBatch | str,
        requests: Iterable[Mapping[str, Any]],
        *,
        first: int,
        tenant: str | None = None,
    ) -> B:
        """Add jobs to a batch, from the position ``first`` on, which is how many jobs were submitted before."""
        handle = self._of_batch(batch)
        jobs = [_encoded(position, request) for position, request in enumerate(requests)]
        await self._add_parts(handle, parts(jobs), first, tenant)
        return handle

    async def _add_parts(self, batch: B, added: Iterable[list[bytes]], first: int, tenant: str | None) -> None:
        start = 0
        for part in added:
            position = first + start
            try:
                with _placed(position):
                    known = await self.request(
                        "POST",
                        f"/v1/batches/{segment(batch.id)}/jobs",
                        body=_with_jobs(wire.AddJobs(first=position, jobs=[]), part),
                        params={"tenant": tenant},
                        type=wire.Batch,
                        is_repeatable=True,
                    )
            except MillpondError as error:
                error.details |= {"batch_id": batch.id, "submitted": position}
                raise
            batch.learn(known)
            start += len(part)

    def batch_of(self, batch_id: str) -> B:
        """A handle of a batch with a known id. No request is sent."""
        return self._batch_handle(self, batch_id)

    async def get_batch(self, batch: KnownBatch | str, *, tenant: str | None = None) -> B:
        """The current state of a batch: its counts and its cost."""
        handle = self._of_batch(batch)
        handle.learn(await self.request("GET", _path(handle), params={"tenant": tenant}, type=wire.Batch))
        return handle

    async def batches(
        self,
        *,
        state: wire.BatchState | None = None,
        tags: Mapping[str, str] | None = None,
        account: str | None = None,
        tenant: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[B]:
        """All batches that match, newest first; ``limit`` is the page size. A batch matches if it has all ``tags``."""
        tag = [f"{key}:{value}" for key, value in tags.items()] if tags else None
        params = {"state": state, "tag": tag, "account": account, "tenant": tenant, "limit": limit}
        async for record in self.pages("/v1/batches", wire.Batches, params):
            yield self._batch_handle(self, record.id, record)

    async def wait_for_batch(self, batch: KnownBatch | str, *, timeout: float | None = None) -> B:
        """Wait until all jobs of a batch have ended, with any outcome."""
        deadline, pause = Deadline(timeout), _PAUSE
        while not (known := await self.get_batch(batch)).is_ended:
            if deadline.is_over:
                raise WaitTimeoutError(
                    f"{known.ended} of {known.total} jobs of {known.id} have ended after {timeout:.3g} s. "
                    "The others continue to run.",
                    job=known,
                    hint="Wait again, or cancel the batch.",
                )
            await self._port.sleep(deadline.left(pause))
            pause = min(pause * 1.5, _PAUSE_MAX)
        return known

    async def cancel_batch(self, batch: KnownBatch | str, *, tenant: str | None = None) -> wire.CanceledBatch:
        """Cancel a batch: it accepts no more jobs, and those that have not ended are canceled."""
        handle = self._of_batch(batch)
        canceled = await self.request(
            "POST",
            f"{_path(handle)}/cancel",
            params={"tenant": tenant},
            type=wire.CanceledBatch,
            is_repeatable=True,
        )
        handle.learn(canceled.batch)
        return canceled

    def _of_batch(self, batch: KnownBatch | str) -> Any:
        return batch if isinstance(batch, KnownBatch) else self.batch_of(batch)


def parts(jobs: list[bytes]) -> Iterator[list[bytes]]:
    """Encoded jobs in parts, each within the limits of one request."""
    part: list[bytes] = []
    size = 0
    for job in jobs:
        if part and (len(part) == wire.BULK_MAX or size + len(job) > BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(job)
        size += len(job) + 1
    if part:
        yield part


def job_input(given: Any) -> dict[str, Any]:
    """The input of a job, as it is sent."""
    written = plain({} if given is None else given, field="input")
    if not isinstance(written, dict):
        raise InputError("The value must be an object with names and values.", field="input")
    return cast("dict[str, Any]", written)


def _path(batch: KnownBatch) -> str:
    return f"/v1/batches/{segment(batch.id)}"


def _encoded(position: int, request: Mapping[str, Any]) -> bytes:
    if unknown := sorted(request.keys() - _FIELDS):
        raise InvalidError(f"Unknown job options: {', '.join(unknown)}.", field=f"requests[{position}]")
    if "kind" not in request:
        raise InvalidError("The kind is missing.", field=f"requests[{position}].kind")
    options: Any = given(request)
    try:
        if "expires_in" in options:
            options["expires_in"] = length(options["expires_in"], field="expires_in")
        return encode(wire.BatchJob(**options | {"input": job_input(request.get("input"))}))
    except MillpondError as error:
        error.field = f"requests[{position}].{error.field}"
        raise


def _webhook(hook: wire.BatchWebhook | Mapping[str, Any] | str) -> wire.BatchWebhook:
    if isinstance(hook, wire.BatchWebhook):
        return hook
    try:
        return msgspec.convert({"url": hook} if isinstance(hook, str) else dict(hook), wire.BatchWebhook)
    except msgspec.ValidationError as error:
        raise InvalidError(f"{error}.", field="webhook") from None


def _with_jobs(body: wire.MakeBatch | wire.AddJobs, jobs: list[bytes]) -> bytes:
    """A body with jobs that are encoded already."""
    members = msgspec.to_builtins(body) | {"jobs": msgspec.Raw(b"[" + b",".join(jobs) + b"]")}
    return msgspec.json.encode(members)


@contextmanager
def _placed(first: int) -> Generator[None]:
    """Let errors name jobs by their positions in the batch, not in the request."""
    try:
        yield
    except MillpondError as error:
        if error.field is not None:
            error.field = _PLACE.sub(lambda place: f"requests[{first + int(place[1])}]", error.field)
        raise
