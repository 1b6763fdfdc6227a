"""The two clients, asynchronous and blocking. Their methods are implemented once, in :mod:`millpond.client.verbs`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from millpond.client.handles import AsyncBatchHandle, AsyncJobHandle, BatchHandle, JobHandle
from millpond.client.ports import AwaitingPort, BlockingPort, iterate, run
from millpond.client.requests import TIMEOUT, ServerAddress
from millpond.client.trust import trusted
from millpond.client.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

P = ParamSpec("P")
R = TypeVar("R")

# Many waiting calls may share a client. Idle connections are closed before a proxy closes them.
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=15.0)


class AsyncClient(Verbs[AsyncJobHandle, AsyncBatchHandle]):
    """The asynchronous client of Millpond's HTTP API.

    ``url`` and ``key`` default to MILLPOND_URL and MILLPOND_API_KEY. ``timeout`` is the limit of a call in seconds,
    including its retries. ``transport`` replaces the network, for an app in the same process.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        server = ServerAddress.find(url, key, is_in_process=transport is not None)
        http = httpx2.AsyncClient(
            base_url=server.url,
            headers=server.headers,
            limits=_LIMITS,
            transport=transport,
            verify=transport is not None or trusted(),
        )
        # This transport collects the whole response of the app first, so it cannot stream.
        can_stream = not isinstance(transport, httpx2.ASGITransport)
        super().__init__(
            AwaitingPort(http),
            server,
            timeout,
            handle=AsyncJobHandle,
            batch_handle=AsyncBatchHandle,
            can_stream=can_stream,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _verb(
    awaited: Callable[Concatenate[Verbs[JobHandle, BatchHandle], P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client, P], R]:
    """A method of the blocking client."""

    @functools.wraps(awaited)
    def call(self: Client, /, *args: P.args, **options: P.kwargs) -> R:
        return run(awaited(self.verbs, *args, **options))

    return call


def _list(
    awaited: Callable[Concatenate[Verbs[JobHandle, BatchHandle], P], AsyncIterator[R]],
) -> Callable[Concatenate[Client, P], Iterator[R]]:
    """A method of the blocking client that returns an iterator."""

    @functools.wraps(awaited)
    def call(self: Client, /, *args: P.args, **options: P.kwargs) -> Iterator[R]:
        return iterate(awaited(self.verbs, *args, **options))

    return call


class Client:
    """The blocking client of Millpond's HTTP API; it is thread-safe.

    ``url`` and ``key`` default to MILLPOND_URL and MILLPOND_API_KEY. ``timeout`` is the limit of a call in seconds,
    including its retries. ``transport`` replaces the network.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        server = ServerAddress.find(url, key, is_in_process=transport is not None)
        http = httpx2.Client(
            base_url=server.url,
            headers=server.headers,
            limits=_LIMITS,
            transport=transport,
            verify=transport is not None or trusted(),
        )
        self.verbs = Verbs[JobHandle, BatchHandle](
            BlockingPort(http), server, timeout, handle=JobHandle, batch_handle=BatchHandle
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self.verbs.url

    def job(self, job_id: str) -> JobHandle:
        """A handle of a job with a known id. No request is sent."""
        return self.verbs.job(job_id)

    def batch_of(self, batch_id: str) -> BatchHandle:
        """A handle of a batch with a known id. No request is sent."""
        return self.verbs.batch_of(batch_id)

    request = _verb(Verbs[JobHandle, BatchHandle].request)
    close = _verb(Verbs[JobHandle, BatchHandle].close)
    pages = _list(Verbs[JobHandle, BatchHandle].pages)

    run = _verb(Verbs[JobHandle, BatchHandle].run)
    submit = _verb(Verbs[JobHandle, BatchHandle].submit)
    submit_many = _verb(Verbs[JobHandle, BatchHandle].submit_many)
    quote = _verb(Verbs[JobHandle, BatchHandle].quote)
    get = _verb(Verbs[JobHandle, BatchHandle].get)
    jobs = _list(Verbs[JobHandle, BatchHandle].jobs)
    wait = _verb(Verbs[JobHandle, BatchHandle].wait)
    result = _verb(Verbs[JobHandle, BatchHandle].result)
    events = _list(Verbs[JobHandle, BatchHandle].events)
    chunks = _list(Verbs[JobHandle, BatchHandle].chunks)
    watch = _list(Verbs[JobHandle, BatchHandle].watch)
    stream_text = _list(Verbs[JobHandle, BatchHandle].stream_text)
    as_completed = _list(Verbs[JobHandle, BatchHandle].as_completed)
    logs = _list(Verbs[JobHandle, BatchHandle].logs)
    cancel = _verb(Verbs[JobHandle, BatchHandle].cancel)
    retry = _verb(Verbs[JobHandle, BatchHandle].retry)
    children = _verb(Verbs[JobHandle, BatchHandle].children)
    questions = _verb(Verbs[JobHandle, BatchHandle].questions)
    answer = _verb(Verbs[JobHandle, BatchHandle].answer)
    token = _verb(Verbs[JobHandle, BatchHandle].token)
    batch = _verb(Verbs[JobHandle, BatchHandle].batch)
    add_jobs = _verb(Verbs[JobHandle, BatchHandle].add_jobs)
    get_batch = _verb(Verbs[JobHandle, BatchHandle].get_batch)
    batches = _list(Verbs[JobHandle, BatchHandle].batches)
    wait_for_batch = _verb(Verbs[JobHandle, BatchHandle].wait_for_batch)
    batch_jobs = _list(Verbs[JobHandle, BatchHandle].batch_jobs)
    cancel_batch = _verb(Verbs[JobHandle, BatchHandle].cancel_batch)
    upload = _verb(Verbs[JobHandle, BatchHandle].upload)
    artifact = _verb(Verbs[JobHandle, BatchHandle].artifact)
    artifacts = _verb(Verbs[JobHandle, BatchHandle].artifacts)
    download = _verb(Verbs[JobHandle, BatchHandle].download)
    wallet = _verb(Verbs[JobHandle, BatchHandle].wallet)
    entries = _list(Verbs[JobHandle, BatchHandle].entries)
    kinds = _verb(Verbs[JobHandle, BatchHandle].kinds)
    kind = _verb(Verbs[JobHandle, BatchHandle].kind)
    diagram = _verb(Verbs[JobHandle, BatchHandle].diagram)

    tenants = _list(Verbs[JobHandle, BatchHandle].tenants)
    make_tenant = _verb(Verbs[JobHandle, BatchHandle].make_tenant)
    accounts = _list(Verbs[JobHandle, BatchHandle].accounts)
    make_account = _verb(Verbs[JobHandle, BatchHandle].make_account)
    set_cap = _verb(Verbs[JobHandle, BatchHandle].set_cap)
    grant = _verb(Verbs[JobHandle, BatchHandle].grant)
    adjust = _verb(Verbs[JobHandle, BatchHandle].adjust)
    keys = _list(Verbs[JobHandle, BatchHandle].keys)
    make_key = _verb(Verbs[JobHandle, BatchHandle].make_key)
    rotate_key = _verb(Verbs[JobHandle, BatchHandle].rotate_key)
    revoke_key = _verb(Verbs[JobHandle, BatchHandle].revoke_key)
    queues = _verb(Verbs[JobHandle, BatchHandle].queues)
    pause = _verb(Verbs[JobHandle, BatchHandle].pause)
    resume = _verb(Verbs[JobHandle, BatchHandle].resume)
    worker = _verb(Verbs[JobHandle, BatchHandle].worker)
    approve_worker = _verb(Verbs[JobHandle, BatchHandle].approve_worker)
    revoke_worker = _verb(Verbs[JobHandle, BatchHandle].revoke_worker)
    drain_worker = _verb(Verbs[JobHandle, BatchHandle].drain_worker)
    resume_worker = _verb(Verbs[JobHandle, BatchHandle].resume_worker)
    rotate_worker = _verb(Verbs[JobHandle, BatchHandle].rotate_worker)
    assign_worker = _verb(Verbs[JobHandle, BatchHandle].assign_worker)
    routes = _verb(Verbs[JobHandle, BatchHandle].routes)
    scaling = _verb(Verbs[JobHandle, BatchHandle].scaling)
    workers = _verb(Verbs[JobHandle, BatchHandle].workers)
    transition = _verb(Verbs[JobHandle, BatchHandle].transition)
    refund = _verb(Verbs[JobHandle, BatchHandle].refund)
    set_priority = _verb(Verbs[JobHandle, BatchHandle].set_priority)
    find_jobs = _list(Verbs[JobHandle, BatchHandle].find_jobs)
    preview = _verb(Verbs[JobHandle, BatchHandle].preview)
    order = _verb(Verbs[JobHandle, BatchHandle].order)
    bulk_operations = _list(Verbs[JobHandle, BatchHandle].bulk_operations)
    bulk_operation = _verb(Verbs[JobHandle, BatchHandle].bulk_operation)
    abort = _verb(Verbs[JobHandle, BatchHandle].abort)
    limits = _verb(Verbs[JobHandle, BatchHandle].limits)
    limit = _verb(Verbs[JobHandle, BatchHandle].limit)
    limit_keys = _list(Verbs[JobHandle, BatchHandle].limit_keys)
    change_limit = _verb(Verbs[JobHandle, BatchHandle].change_limit)
    reset_limit = _verb(Verbs[JobHandle, BatchHandle].reset_limit)
    close_limit = _verb(Verbs[JobHandle, BatchHandle].close_limit)
    open_limit = _verb(Verbs[JobHandle, BatchHandle].open_limit)
    schedules = _list(Verbs[JobHandle, BatchHandle].schedules)
    schedule = _verb(Verbs[JobHandle, BatchHandle].schedule)
    make_schedule = _verb(Verbs[JobHandle, BatchHandle].make_schedule)
    update_schedule = _verb(Verbs[JobHandle, BatchHandle].update_schedule)
    pause_schedule = _verb(Verbs[JobHandle, BatchHandle].pause_schedule)
    resume_schedule = _verb(Verbs[JobHandle, BatchHandle].resume_schedule)
    delete_schedule = _verb(Verbs[JobHandle, BatchHandle].delete_schedule)
    run_schedule = _verb(Verbs[JobHandle, BatchHandle].run_schedule)
    backfill_schedule = _verb(Verbs[JobHandle, BatchHandle].backfill_schedule)
    preview_backfill = _verb(Verbs[JobHandle, BatchHandle].preview_backfill)
    fires = _list(Verbs[JobHandle, BatchHandle].fires)
    preview_schedule = _verb(Verbs[JobHandle, BatchHandle].preview_schedule)
    endpoints = _verb(Verbs[JobHandle, BatchHandle].endpoints)
    endpoint = _verb(Verbs[JobHandle, BatchHandle].endpoint)
    make_endpoint = _verb(Verbs[JobHandle, BatchHandle].make_endpoint)
    change_endpoint = _verb(Verbs[JobHandle, BatchHandle].change_endpoint)
    rotate_endpoint = _verb(Verbs[JobHandle, BatchHandle].rotate_endpoint)
    disable_endpoint = _verb(Verbs[JobHandle, BatchHandle].disable_endpoint)
    enable_endpoint = _verb(Verbs[JobHandle, BatchHandle].enable_endpoint)
    delete_endpoint = _verb(Verbs[JobHandle, BatchHandle].delete_endpoint)
    test_endpoint = _verb(Verbs[JobHandle, BatchHandle].test_endpoint)
    endpoint_stats = _verb(Verbs[JobHandle, BatchHandle].endpoint_stats)
    deliveries = _list(Verbs[JobHandle, BatchHandle].deliveries)
    delivery = _verb(Verbs[JobHandle, BatchHandle].delivery)
    resend = _verb(Verbs[JobHandle, BatchHandle].resend)
    resend_since = _verb(Verbs[JobHandle, BatchHandle].resend_since)
    pull = _verb(Verbs[JobHandle, BatchHandle].pull)
    report = _verb(Verbs[JobHandle, BatchHandle].report)
    audit = _list(Verbs[JobHandle, BatchHandle].audit)
    verify = _verb(Verbs[JobHandle, BatchHandle].verify)
