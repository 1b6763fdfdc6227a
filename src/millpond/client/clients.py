"""The two clients, asynchronous and blocking. Their methods are implemented once, in :mod:`millpond.client.verbs`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from millpond.client.handles import AsyncJobHandle, JobHandle
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


class AsyncClient(Verbs[AsyncJobHandle]):
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
        super().__init__(AwaitingPort(http), server, timeout, handle=AsyncJobHandle, can_stream=can_stream)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _verb(
    awaited: Callable[Concatenate[Verbs[JobHandle], P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client, P], R]:
    """A method of the blocking client."""

    @functools.wraps(awaited)
    def call(self: Client, /, *args: P.args, **options: P.kwargs) -> R:
        return run(awaited(self.verbs, *args, **options))

    return call


def _list(
    awaited: Callable[Concatenate[Verbs[JobHandle], P], AsyncIterator[R]],
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
        self.verbs = Verbs[JobHandle](BlockingPort(http), server, timeout, handle=JobHandle)

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

    request = _verb(Verbs[JobHandle].request)
    close = _verb(Verbs[JobHandle].close)
    pages = _list(Verbs[JobHandle].pages)

    run = _verb(Verbs[JobHandle].run)
    submit = _verb(Verbs[JobHandle].submit)
    submit_many = _verb(Verbs[JobHandle].submit_many)
    quote = _verb(Verbs[JobHandle].quote)
    get = _verb(Verbs[JobHandle].get)
    jobs = _list(Verbs[JobHandle].jobs)
    wait = _verb(Verbs[JobHandle].wait)
    result = _verb(Verbs[JobHandle].result)
    events = _list(Verbs[JobHandle].events)
    chunks = _list(Verbs[JobHandle].chunks)
    watch = _list(Verbs[JobHandle].watch)
    stream_text = _list(Verbs[JobHandle].stream_text)
    as_completed = _list(Verbs[JobHandle].as_completed)
    logs = _list(Verbs[JobHandle].logs)
    cancel = _verb(Verbs[JobHandle].cancel)
    retry = _verb(Verbs[JobHandle].retry)
    children = _verb(Verbs[JobHandle].children)
    questions = _verb(Verbs[JobHandle].questions)
    answer = _verb(Verbs[JobHandle].answer)
    token = _verb(Verbs[JobHandle].token)
    upload = _verb(Verbs[JobHandle].upload)
    artifact = _verb(Verbs[JobHandle].artifact)
    artifacts = _verb(Verbs[JobHandle].artifacts)
    download = _verb(Verbs[JobHandle].download)
    wallet = _verb(Verbs[JobHandle].wallet)
    entries = _list(Verbs[JobHandle].entries)
    kinds = _verb(Verbs[JobHandle].kinds)
    kind = _verb(Verbs[JobHandle].kind)
    diagram = _verb(Verbs[JobHandle].diagram)

    tenants = _list(Verbs[JobHandle].tenants)
    make_tenant = _verb(Verbs[JobHandle].make_tenant)
    accounts = _list(Verbs[JobHandle].accounts)
    make_account = _verb(Verbs[JobHandle].make_account)
    set_cap = _verb(Verbs[JobHandle].set_cap)
    grant = _verb(Verbs[JobHandle].grant)
    adjust = _verb(Verbs[JobHandle].adjust)
    keys = _list(Verbs[JobHandle].keys)
    make_key = _verb(Verbs[JobHandle].make_key)
    rotate_key = _verb(Verbs[JobHandle].rotate_key)
    revoke_key = _verb(Verbs[JobHandle].revoke_key)
    queues = _verb(Verbs[JobHandle].queues)
    pause = _verb(Verbs[JobHandle].pause)
    resume = _verb(Verbs[JobHandle].resume)
    worker = _verb(Verbs[JobHandle].worker)
    approve_worker = _verb(Verbs[JobHandle].approve_worker)
    revoke_worker = _verb(Verbs[JobHandle].revoke_worker)
    drain_worker = _verb(Verbs[JobHandle].drain_worker)
    resume_worker = _verb(Verbs[JobHandle].resume_worker)
    rotate_worker = _verb(Verbs[JobHandle].rotate_worker)
    assign_worker = _verb(Verbs[JobHandle].assign_worker)
    routes = _verb(Verbs[JobHandle].routes)
    scaling = _verb(Verbs[JobHandle].scaling)
    workers = _verb(Verbs[JobHandle].workers)
    transition = _verb(Verbs[JobHandle].transition)
    refund = _verb(Verbs[JobHandle].refund)
    set_priority = _verb(Verbs[JobHandle].set_priority)
    find_jobs = _list(Verbs[JobHandle].find_jobs)
    preview = _verb(Verbs[JobHandle].preview)
    order = _verb(Verbs[JobHandle].order)
    bulk_operations = _list(Verbs[JobHandle].bulk_operations)
    bulk_operation = _verb(Verbs[JobHandle].bulk_operation)
    abort = _verb(Verbs[JobHandle].abort)
    schedules = _list(Verbs[JobHandle].schedules)
    schedule = _verb(Verbs[JobHandle].schedule)
    make_schedule = _verb(Verbs[JobHandle].make_schedule)
    update_schedule = _verb(Verbs[JobHandle].update_schedule)
    pause_schedule = _verb(Verbs[JobHandle].pause_schedule)
    resume_schedule = _verb(Verbs[JobHandle].resume_schedule)
    delete_schedule = _verb(Verbs[JobHandle].delete_schedule)
    run_schedule = _verb(Verbs[JobHandle].run_schedule)
    backfill_schedule = _verb(Verbs[JobHandle].backfill_schedule)
    preview_backfill = _verb(Verbs[JobHandle].preview_backfill)
    fires = _list(Verbs[JobHandle].fires)
    preview_schedule = _verb(Verbs[JobHandle].preview_schedule)
    endpoints = _verb(Verbs[JobHandle].endpoints)
    endpoint = _verb(Verbs[JobHandle].endpoint)
    make_endpoint = _verb(Verbs[JobHandle].make_endpoint)
    change_endpoint = _verb(Verbs[JobHandle].change_endpoint)
    rotate_endpoint = _verb(Verbs[JobHandle].rotate_endpoint)
    disable_endpoint = _verb(Verbs[JobHandle].disable_endpoint)
    enable_endpoint = _verb(Verbs[JobHandle].enable_endpoint)
    delete_endpoint = _verb(Verbs[JobHandle].delete_endpoint)
    test_endpoint = _verb(Verbs[JobHandle].test_endpoint)
    endpoint_stats = _verb(Verbs[JobHandle].endpoint_stats)
    deliveries = _list(Verbs[JobHandle].deliveries)
    delivery = _verb(Verbs[JobHandle].delivery)
    resend = _verb(Verbs[JobHandle].resend)
    resend_since = _verb(Verbs[JobHandle].resend_since)
    pull = _verb(Verbs[JobHandle].pull)
    report = _verb(Verbs[JobHandle].report)
    audit = _list(Verbs[JobHandle].audit)
    verify = _verb(Verbs[JobHandle].verify)
