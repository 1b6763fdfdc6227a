"""The client's methods for jobs and credits, written once for both clients."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import msgspec

from millpond import wire
from millpond.client.batches import BatchVerbs, job_input, parts
from millpond.client.errors import WaitTimeoutError, check_outcome, from_problem
from millpond.client.files import Files
from millpond.client.handles import Handle, KnownBatch
from millpond.client.requests import ANYTHING, Deadline, encode, given, length, new_key, plain, segment
from millpond.client.watching import EventReader, TextReader
from millpond.errors import InputError, InvalidError, MillpondError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from millpond.client.ports import Port
    from millpond.client.requests import ServerAddress

H = TypeVar("H", bound=Handle)
B = TypeVar("B", bound=KnownBatch)
T = TypeVar("T")

POLL_MAX: Final = 25.0
LATE_MAX: Final = 2.0
"""How many seconds the last read may take beyond the caller's timeout."""
_LANES: Final = 8
_CROWDED_POLL: Final = 1.0
_SUBMIT_FIELDS: Final = frozenset(wire.Submit.__struct_fields__)


class Verbs(BatchVerbs[B], Files, Generic[H, B]):
    """The client's methods. ``H`` is the type of its job handles, ``B`` that of its batch handles."""

    def __init__(
        self,
        port: Port,
        server: ServerAddress,
        timeout: float,
        *,
        handle: Callable[..., H],
        batch_handle: Callable[..., B],
        can_stream: bool = True,
    ) -> None:
        super().__init__(port, server, timeout)
        self._handle = handle
        self._batch_handle = batch_handle
        self._can_stream = can_stream

    # Submitting

    async def run(
        self,
        kind: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        cancel_on_timeout: bool = False,
        on_event: Callable[[wire.Event], object] | None = None,
        **options: Any,
    ) -> H:
        """Submit a job and wait for its output; raise if it does not succeed. The options are those of ``submit``.

        After ``timeout`` seconds the job continues to run, unless ``cancel_on_timeout`` is set.
        """
        deadline = Deadline(timeout)
        job = await self.submit(kind, input, **options)
        try:
            if on_event is not None:
                async for event in self.events(job, timeout=timeout and deadline.left()):
                    on_event(event)
            await self.wait(job, timeout=timeout and deadline.left())
        except WaitTimeoutError:
            if cancel_on_timeout:
                await self.cancel(job)
            raise
        check_outcome(job)
        return job

    async def submit(
        self,
        kind: str,
        input: Any = None,
        *,
        account: str | None = None,
        tenant: str | None = None,
        idempotency_key: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        expires_in: timedelta | str | float | None = None,
        webhook: wire.JobWebhook | Mapping[str, Any] | str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> H:
        """Submit a job. If no idempotency key is given, one is generated, so that retries do not create another job.

        ``webhook`` is a URL that receives the events of the job, optionally with ``secret`` and ``events``. If no
        secret is given, requests are signed with the handle's ``webhook_secret``. ``tags`` are up to 16 key-value pairs
        by which jobs can be found.
        """
        key = idempotency_key or new_key()
        options = {"account": account, "priority": priority, "run_at": run_at, "webhook": webhook, "tags": tags}
        body = _submit(kind=kind, input=input, expires_in=expires_in, **options)
        accepted = await self.request(
            "POST", "/v1/jobs", body=body, params={"tenant": tenant}, type=wire.Accepted, idempotency_key=key
        )
        return self._handle(self, accepted.id, accepted)

    async def submit_many(
        self, requests: Iterable[Mapping[str, Any]], *, tenant: str | None = None
    ) -> list[H | MillpondError]:
        """Submit many jobs; each is accepted or rejected separately. A request holds the arguments of ``submit``."""
        answers: list[H | MillpondError] = []
        for jobs in parts([_keyed(index, request) for index, request in enumerate(requests)]):
            body = _bulk(jobs)
            results = await self.request(
                "POST", "/v1/jobs/bulk", body=body, params={"tenant": tenant}, type=wire.Results, is_repeatable=True
            )
            answers.extend(self._answer(result) for result in results.results)
        return answers

    def _answer(self, result: wire.Result) -> H | MillpondError:
        if result.job is not None:
            return self._handle(self, result.job.id, result.job)
        problem: dict[str, Any] = msgspec.to_builtins(result.problem) or {}
        return from_problem({"code": "error"} | problem, result.status)

    async def quote(
        self, kind: str, input: Any = None, *, account: str | None = None, tenant: str | None = None
    ) -> wire.Quote:
        """The price of a job, and whether the account has enough credits."""
        body = wire.AskPrice(kind=kind, input=job_input(input), account=account)
        return await self.request(
            "POST", "/v1/quotes", body=body, params={"tenant": tenant}, type=wire.Quote, is_repeatable=True
        )

    # Reading and waiting

    def job(self, job_id: str) -> H:
        """A handle of a job with a known id. No request is sent."""
        return self._handle(self, job_id)

    async def get(self, job: Handle | str) -> H:
        """The current state of a job."""
        return self._known(job, await self._read(job, 0, None))

    def jobs(
        self,
        *,
        kind: str | None = None,
        state: str | None = None,
        phase: wire.Phase | None = None,
        tags: Mapping[str, str] | None = None,
        account: str | None = None,
        tenant: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[H]:
        """All jobs that match, newest first; ``limit`` is the page size.

        A job matches ``tags`` if it has all of them.
        """
        tag = [f"{key}:{value}" for key, value in tags.items()] if tags else None
        owner = {"account": account, "tenant": tenant}
        return self._jobs({"kind": kind, "state": state, "phase": phase, "tag": tag, **owner, "limit": limit})

    def batch_jobs(
        self,
        batch: KnownBatch | str,
        *,
        phase: wire.Phase | None = None,
        outcome: wire.Outcome | None = None,
        tenant: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[H]:
        """The jobs of a batch in the order in which they were submitted; ``limit`` is the page size."""
        path = f"/v1/batches/{segment(batch.id if isinstance(batch, KnownBatch) else batch)}/jobs"
        return self._jobs({"phase": phase, "outcome": outcome, "tenant": tenant, "limit": limit}, path, wire.BatchJobs)

    async def _jobs(self, params: dict[str, Any], path: str = "/v1/jobs", type: Any = wire.Jobs) -> AsyncIterator[H]:
        async for record in self.pages(path, type, params):
            whole = await self._read(record.id, 0, None) if record.omitted else record
            yield self._handle(self, record.id, whole)

    async def wait(self, job: Handle | str, *, timeout: float | None = None) -> H:
        """Wait until a job has ended, with any outcome."""
        deadline = Deadline(timeout)
        pauses = 0
        while True:
            started = Deadline(POLL_MAX)
            known = self._known(job, await self._read(job, deadline.left(POLL_MAX), deadline))
            if known.is_ended:
                return known
            if deadline.is_over:
                raise WaitTimeoutError(
                    f"{known.id} is still {known.state} after {timeout:.3g} s. It continues to run.",
                    job=known,
                    hint="Wait again, or cancel the job.",
                )
            # A proxy or an old server may respond immediately; then the client pauses.
            pauses = pauses + 1 if started.left() > POLL_MAX / 2 else 0
            if pauses > 1:
                await self._port.sleep(deadline.left(min(0.1 * pauses, 2.0)))

    async def _read(self, job: Handle | str, wait: float, deadline: Deadline | None) -> wire.Job:
        """Read a job once it has ended or the timeout has passed."""
        params = {"wait": f"{wait:.3f}"} if wait else None
        timeout = self._timeout + wait
        if deadline is not None:
            timeout = deadline.left(timeout) + LATE_MAX
        return await self.request("GET", f"/v1/jobs/{_id(job)}", params=params, type=wire.Job, timeout=timeout)

    async def result(self, job: Handle | str, type: type[T] = ANYTHING, *, timeout: float | None = None) -> T:
        """Wait for a job's output, decoded as the given type; raise if the job does not succeed."""
        known = await self.wait(job, timeout=timeout)
        check_outcome(known)
        return convert(known.output, type)

    def events(self, job: Handle | str, *, after: int = 0, timeout: float | None = None) -> AsyncIterator[wire.Event]:
        """The events of a job as they occur, each once, until it has ended.

        A broken stream is resumed after the last event. If streams do not work, the client polls.
        """
        return self._reader(job, after, timeout).events(can_stream=self._can_stream)

    def chunks(self, job: Handle | str, *, timeout: float | None = None) -> AsyncIterator[wire.Chunk]:
        """The text that a job emits while it runs, in chunks, each once, until the job has ended.

        The chunk with number 1 restarts the text, because another attempt has begun. Of a job that ended some
        minutes ago there are no chunks: its output is its result.
        """
        return self._text_reader(job, timeout).chunks(can_stream=self._can_stream)

    def watch(self, job: Handle | str, *, timeout: float | None = None) -> AsyncIterator[wire.Event | wire.Chunk]:
        """The events and the chunks of a job in one stream."""
        return self._text_reader(job, timeout).items(can_stream=self._can_stream)

    async def stream_text(
        self, job: Handle | str, *, timeout: float | None = None, on_restart: Callable[[], object] | None = None
    ) -> AsyncIterator[str]:
        """The text that a job emits while it runs, piece by piece, until the job has ended.

        If another attempt restarts the text, ``on_restart`` is called: the pieces so far are void.
        """
        has_text, reader = False, self._text_reader(job, timeout)
        async with aclosing(reader.chunks(can_stream=self._can_stream)) as chunks:
            async for chunk in chunks:
                if chunk.number == 1 and has_text and on_restart is not None:
                    on_restart()
                has_text = True
                yield chunk.text

    def _text_reader(self, job: Handle | str, timeout: float | None) -> EventReader:
        path = f"/v1/jobs/{_id(job)}/text"
        return self._reader(job, 0, timeout, TextReader(lambda: self.request("GET", path, type=wire.JobText)))

    def _reader(
        self, job: Handle | str, after: int, timeout: float | None, text: TextReader | None = None
    ) -> EventReader:
        handle, path, deadline = self._of(job), f"/v1/jobs/{_id(job)}", Deadline(timeout)
        return EventReader(
            port=self._port,
            job=handle,
            path=f"{path}/stream",
            read=lambda wait: self._read(handle, wait, deadline),
            page=lambda seen: self._numbered(f"{path}/events", wire.Events, seen),
            deadline=deadline,
            seen=after,
            text=text,
        )

    async def as_completed(self, jobs: Iterable[Handle | str], *, timeout: float | None = None) -> AsyncIterator[H]:
        """The jobs in the order in which they end, with any outcome."""
        line = deque(self._of(job) for job in jobs)
        deadline = Deadline(timeout)
        running = len(line)

        async def lane() -> AsyncIterator[H]:
            """Poll the next job, and queue it again unless it has ended."""
            while line:
                job = line.popleft()
                patience = POLL_MAX if len(line) == 0 else _CROWDED_POLL
                self._known(job, await self._read(job, deadline.left(patience), deadline))
                if job.is_ended:
                    yield job
                elif deadline.is_over:
                    raise WaitTimeoutError(
                        f"Not all jobs have ended after {timeout:.3g} s. They continue to run.", job=job
                    )
                else:
                    line.append(job)

        try:
            async with self._port.merge([lane() for _ in range(min(_LANES, running))]) as ended:
                async for job in ended:
                    yield job
        finally:
            line.clear()  # ends the lanes

    def logs(self, job: Handle | str, *, after: int = 0) -> AsyncIterator[wire.LogLine]:
        """The lines of a job's log."""
        return self._numbered(f"/v1/jobs/{_id(job)}/logs", wire.Logs, after)

    async def _numbered(self, path: str, type: Any, after: int) -> AsyncIterator[Any]:
        """All items of a numbered list, starting after a number."""
        following: int | None = after
        while following is not None:
            page = await self.request("GET", path, params={"after": following}, type=type)
            for thing in page.data:
                yield thing
            following = page.next

    # Changing

    async def cancel(self, job: Handle | str) -> wire.Canceled:
        """Cancel a job. If it is running, its worker is asked to stop."""
        return await self.request("POST", f"/v1/jobs/{_id(job)}/cancel", type=wire.Canceled, is_repeatable=True)

    async def retry(self, job: Handle | str, *, even_if_succeeded: bool = False) -> H:
        """Retry an ended job; returns the handle of the job that runs now.

        A job that succeeded is retried only with ``even_if_succeeded``.
        """
        body = wire.RetryJob(even_if_succeeded=True) if even_if_succeeded else None
        accepted = await self.request("POST", f"/v1/jobs/{_id(job)}/retry", body=body, type=wire.Accepted)
        return self._handle(self, accepted.id, accepted)

    async def children(self, job: Handle | str, *, cursor: str | None = None, limit: int = 50) -> wire.Children:
        """A page of the children of a job, the oldest first, with their counts and the job's budget."""
        params = {"cursor": cursor, "limit": limit}
        return await self.request("GET", f"/v1/jobs/{_id(job)}/children", params=params, type=wire.Children)

    async def questions(self, job: Handle | str) -> list[wire.Question]:
        """The questions that a job asks, as far as the key may answer or read them."""
        found = await self.request("GET", f"/v1/jobs/{_id(job)}/questions", type=wire.Questions)
        return found.data

    async def answer(self, job: Handle | str, answer: Any, *, question: str | None = None) -> wire.State:
        """Answer a parked job, or one of its questions; the name may be omitted if only one is open."""
        body = wire.GiveAnswer(answer=plain(answer, field="answer"), question=question)
        return await self.request("POST", f"/v1/jobs/{_id(job)}/answer", body=body, type=wire.State)

    async def token(
        self,
        job: Handle | str,
        scopes: Sequence[wire.TokenScope] = ("read",),
        *,
        expires_in: timedelta | str | float = "15m",
    ) -> wire.Token:
        """Create a token with which a browser can watch a job, and cancel it if allowed."""
        body = wire.MakeToken(scopes=list(scopes), expires_in=length(expires_in, field="expires_in"))
        return await self.request("POST", f"/v1/jobs/{_id(job)}/tokens", body=body, type=wire.Token, is_repeatable=True)

    # Credits and kinds

    async def wallet(self, *, tenant: str | None = None, account: str | None = None) -> wire.Wallet:
        """The balances of an account."""
        params = {"tenant": tenant, "account": account}
        return await self.request("GET", "/v1/wallet", params=params, type=wire.Wallet)

    def entries(self, *, tenant: str | None = None, account: str | None = None) -> AsyncIterator[wire.Entry]:
        """The ledger entries of an account, newest first."""
        return self.pages("/v1/wallet/entries", wire.Entries, {"tenant": tenant, "account": account})

    async def kinds(self) -> list[wire.KindInfo]:
        """All kinds with their input schemas, prices and lifecycles."""
        return (await self.request("GET", "/v1/kinds", type=wire.Kinds)).data

    async def kind(self, name: str) -> wire.KindInfo:
        """A kind."""
        return await self.request("GET", f"/v1/kinds/{segment(name)}", type=wire.KindInfo)

    async def diagram(self, kind: str) -> str:
        """The lifecycle of a kind as a Mermaid diagram."""
        return await self.request(
            "GET", f"/v1/kinds/{segment(kind)}/diagram", headers={"Accept": "text/plain"}, type=str
        )

    # The rest

    async def close(self) -> None:
        """Close the connections."""
        await self._port.close()

    def _known(self, job: Handle | str, record: wire.Job) -> H:
        handle = self._of(job)
        handle.learn(record)
        return handle

    def _of(self, job: Handle | str) -> H:
        return cast("H", job) if isinstance(job, Handle) else self.job(job)


def convert(output: Any, type: Any) -> Any:
    """An output, decoded as the requested type."""
    validate = getattr(type, "model_validate", None)
    if validate is not None:
        return validate(output)
    try:
        return msgspec.convert(output, type)
    except msgspec.ValidationError as error:
        raise InputError(
            f"The output cannot be decoded as {getattr(type, '__name__', type)}: {error}.", field="output"
        ) from error


def _id(job: Handle | str) -> str:
    return segment(job.id if isinstance(job, Handle) else job)


def _submit(
    *, kind: str, input: Any = None, expires_in: Any = None, webhook: Any = None, **options: Any
) -> wire.Submit:
    lifetime = None if expires_in is None else length(expires_in, field="expires_in")
    hook = None if webhook is None else _webhook(webhook)
    return wire.Submit(kind=kind, input=job_input(input), expires_in=lifetime, webhook=hook, **given(options))


def _webhook(given: wire.JobWebhook | Mapping[str, Any] | str) -> wire.JobWebhook:
    """A webhook URL alone, or with its secret and events."""
    if isinstance(given, wire.JobWebhook):
        return given
    try:
        return msgspec.convert({"url": given} if isinstance(given, str) else dict(given), wire.JobWebhook)
    except msgspec.ValidationError as error:
        raise InvalidError(f"{error}.", field="webhook") from None


def _keyed(index: int, request: Mapping[str, Any]) -> bytes:
    """A job of a bulk submit, encoded, with its key."""
    if unknown := sorted(request.keys() - _SUBMIT_FIELDS):
        raise InvalidError(f"Unknown job options: {', '.join(unknown)}.", field=f"requests[{index}]")
    if "kind" not in request:
        raise InvalidError("The kind is missing.", field=f"requests[{index}].kind")
    try:
        return encode(_submit(**{"idempotency_key": new_key()} | given(request)))
    except MillpondError as error:
        error.field = f"requests[{index}].{error.field}"
        raise


def _bulk(jobs: list[bytes]) -> bytes:
    return b'{"jobs":[' + b",".join(jobs) + b"]}"
