"""Both clients before the real server: the API, a worker, a real database."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from millpond import AsyncClient, Client, JobFailedError, PermanentError
from millpond.api.app import create_app
from millpond.api.jobs.streams import Hub
from millpond.api.server import serve
from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.errors import (
    AnswerUnavailableError,
    ForbiddenError,
    IdempotencyConflictError,
    InputError,
    InsufficientCreditsError,
    InvalidError,
    NotFoundError,
    RetryUnavailableError,
    UnauthorizedError,
    UnknownKindError,
)
from millpond.services.notifier import Notifier
from millpond.settings import Settings
from millpond.wire import JobFilter
from millpond.worker.worker import Worker
from tests.api.sites import Site, running_site
from tests.checks import until
from tests.client.both import Awaited
from tests.factories import ACCOUNT, TENANT
from tests.waiting import PATIENCE


class Choice(msgspec.Struct):
    number: int


app = Millpond()
gate = asyncio.Event()


@app.kind("ad", price=5, stages=("planning", "rendering"))
async def ad(job: Any, product: str, times: int = 1) -> dict[str, Any]:
    """Make an ad."""
    await job.stage("planning")
    for number in range(times):
        await job.log(f"{product} {number}")
    await job.stage("rendering")
    return {"headline": f"{product}!", "clicks": times}


@app.kind("doomed", price=5, attempts_max=1)
async def doomed(job: Any) -> None:
    """Fail."""
    raise PermanentError("It cannot be done.", hint="Do not try.")


@app.kind("asking", price=1, expires_in="1h")
async def asking(job: Any) -> dict[str, Any]:
    """Wait for an answer."""
    if job.answer is None:
        await job.park({"asked": True})
    return {"answer": job.answer}


@app.kind("film", price=1, budget=20)
async def film(job: Any, ads: int) -> dict[str, Any]:
    """Make ads, and ask two questions about them."""
    made = await job.gather(*(job.child("ad", {"product": str(number)}) for number in range(ads)))
    best = await job.ask("Which is best?", schema=Choice, name="best")
    await job.ask("Is it legal?", who="operator", name="legal")
    return made[best.number].output


@app.kind("held")
async def held(job: Any) -> None:
    """Wait for the test."""
    for number in range(5):
        await job.log(f"before {number}")
    while not gate.is_set():
        await asyncio.sleep(0.01)
        await job.checkpoint()
    await job.log("after")


class Ad(msgspec.Struct):
    headline: str
    clicks: int


@pytest.fixture
async def site(dsn: str) -> AsyncIterator[Site]:
    """The server with a worker, and a customer who has 100 credits."""
    gate.clear()
    engine = await Engine.open(dsn, app)
    await engine.grant(TENANT, ACCOUNT, 100)
    stop = asyncio.Event()
    async with running_site(engine) as running:
        notifier = Notifier(engine)
        working = asyncio.gather(notifier.run(stop), Worker(engine.source(), engine.app).run(stop))
        yield running
        gate.set()
        stop.set()
        await working
    await engine.close()


Connect = Callable[[str], Any]


@pytest.fixture(params=["awaited", "blocking"])
async def connect(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Makes a client of either sort for a key."""
    made: list[Any] = []

    def make(key: str) -> Any:
        inner = (AsyncClient if request.param == "awaited" else Client)(site.url, key)
        made.append(inner if request.param == "awaited" else Awaited(inner))
        return made[-1]

    yield make
    for client in made:
        await client.close()


@pytest.fixture
def client(connect: Connect, site: Site) -> Any:
    return connect(site.client_key)


@pytest.fixture
def admin(connect: Connect, site: Site) -> Any:
    return connect(site.admin_key)


async def test_a_job_is_run_and_paid_for(client: Any) -> None:
    job = await client.run("ad", {"product": "Shoes"}, timeout=PATIENCE)
    assert (job.output, job.captured, job.outcome) == ({"headline": "Shoes!", "clicks": 1}, 5, "succeeded")
    assert await job.result(Ad) == Ad("Shoes!", 1)
    wallet = await client.wallet()
    assert (wallet.available, wallet.held) == (95, 0)
    assert [entry.type async for entry in client.entries()] == ["capture", "hold", "grant"]


async def test_tags_are_set_and_looked_for(client: Any, admin: Any) -> None:
    tags = {"team": "ads", "note": "a, b: c & d ✓"}
    one = await client.submit("held", tags=tags)
    (two, *_), other = (
        await client.submit_many([{"kind": "held", "tags": {"team": "ads"}}]),
        await client.submit("held"),
    )
    assert (await client.get(one)).record.tags == tags
    assert (await client.get(other)).record.tags == {}
    assert [job.id async for job in client.jobs(tags={"team": "ads"})] == [two.id, one.id]
    assert [job.id async for job in client.jobs(tags=tags)] == [one.id]
    found = admin.find_jobs(JobFilter(tag=["team:ads", "note:a, b: c & d ✓"]))
    assert [(line.id, line.tags) async for line in found] == [(one.id, tags)]
    with pytest.raises(InvalidError) as caught:
        await client.submit("held", tags={"team": 5})
    assert caught.value.field == "tags.team"


async def test_every_event_comes_once_and_the_stream_ends(client: Any) -> None:
    job = await client.submit("ad", {"product": "Shoes", "times": 50})
    events = [event async for event in job.events()]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].type == "succeeded"
    assert len([event async for event in job.logs()]) == 50
    assert [event.seq async for event in job.events(after=events[-2].seq)] == [events[-1].seq]
    assert [event async for event in job.events(after=events[-1].seq)] == []


async def test_a_failed_job_is_raised_with_its_reason_and_costs_nothing(client: Any) -> None:
    with pytest.raises(JobFailedError, match=r"ended as failed: It cannot be done\. Do not try\."):
        await client.run("doomed", timeout=PATIENCE)
    assert (await client.wallet()).available == 100


async def test_errors_are_those_of_the_server(client: Any, connect: Connect, admin: Any) -> None:
    with pytest.raises(UnknownKindError):
        await client.submit("nonsense")
    with pytest.raises(InputError) as caught:
        await client.submit("ad", {"product": 7})
    assert caught.value.field == "input.product"
    assert caught.value.request_id
    with pytest.raises(NotFoundError):
        await client.get("job_01kh3v5d6sfk2t1m2q4w8x9y0z")
    await client.submit("ad", {"product": "Shoes"}, idempotency_key="order-1")
    with pytest.raises(IdempotencyConflictError):
        await client.submit("ad", {"product": "Hats"}, idempotency_key="order-1")
    with pytest.raises(UnauthorizedError):
        await connect("pk_nonsense").wallet()
    with pytest.raises(ForbiddenError):
        await client.queues()
    await admin.adjust(TENANT, ACCOUNT, -(await client.wallet()).available, reason="test")
    with pytest.raises(InsufficientCreditsError):
        await client.submit("ad", {"product": "Shoes"})


async def test_the_same_key_is_the_same_job(client: Any) -> None:
    first = await client.submit("ad", {"product": "Shoes"}, idempotency_key="order-1")
    assert (await client.submit("ad", {"product": "Shoes"}, idempotency_key="order-1")).id == first.id
    assert [job.id async for job in client.jobs()] == [first.id]


async def test_many_are_submitted_and_come_as_they_end(client: Any) -> None:
    requests = [{"kind": "ad", "input": {"product": str(number)}} for number in range(15)] + [{"kind": "nonsense"}]
    *jobs, refused = await client.submit_many(requests)
    assert isinstance(refused, UnknownKindError)
    ended = [job async for job in client.as_completed([job.id for job in jobs], timeout=60)]
    assert {job.id for job in ended} == {job.id for job in jobs}
    assert {job.output["headline"] for job in ended} == {f"{number}!" for number in range(15)}


async def test_a_parked_job_gets_its_answer(client: Any) -> None:
    job = await client.submit("asking")
    async for event in job.events():
        if event.type == "parked":
            await job.answer({"yes": True})
    assert await job.result(timeout=PATIENCE) == {"answer": {"yes": True}}
    with pytest.raises(AnswerUnavailableError):
        await job.answer(1)


async def test_children_and_questions_of_a_job_are_read_and_answered(client: Any, admin: Any) -> None:
    job = await client.submit("film", {"ads": 3})
    await until(lambda: asks(client, job.id, "best"))
    first = await job.children(limit=2)
    rest = await client.children(job.id, cursor=first.next_cursor, limit=2)
    assert [child.input["product"] for child in first.data + rest.data] == ["0", "1", "2"]
    assert {child.parent_id for child in first.data} == {job.id}
    assert (first.counts.submitted, first.counts.succeeded, first.parents, rest.next_cursor) == (3, 3, [], None)
    assert first.budget is not None
    assert (first.budget.amount, first.budget.spent, first.budget.reserved) == (20, 15, 0)
    (best,) = await job.questions()
    assert (best.name, best.question, best.who, best.answered_at) == ("best", "Which is best?", "client", None)
    with pytest.raises(InputError) as caught:
        await job.answer({"number": "two"})
    assert caught.value.field == "answer.number"
    with pytest.raises(NotFoundError):
        await job.answer(1, question="other")
    assert (await job.answer(Choice(2), question="best")).id == job.id
    await until(lambda: asks(admin, job.id, "legal"))
    assert [question.answer for question in await client.questions(job.id)] == [{"number": 2}]
    with pytest.raises(ForbiddenError):
        await client.answer(job.id, "yes", question="legal")
    await admin.answer(job.id, "yes")
    assert await job.result(Ad, timeout=PATIENCE) == Ad("2!", 1)
    with pytest.raises(AnswerUnavailableError):
        await job.answer({"number": 1}, question="best")


async def asks(client: Any, job_id: str, name: str) -> bool:
    return name in [question.name for question in await client.questions(job_id) if question.answered_at is None]


async def test_a_running_job_is_canceled_and_run_again(client: Any) -> None:
    job = await client.submit("held")
    async for event in job.events():
        if event.type == "log" and event.data["text"] == "before 4":
            assert (await job.cancel()).is_accepted
    assert (await job.refresh()).outcome == "canceled"
    gate.set()
    again = await job.retry()
    assert (await again.wait(timeout=PATIENCE)).outcome == "succeeded"
    with pytest.raises(RetryUnavailableError):
        await again.retry()
    assert (await again.retry(even_if_succeeded=True)).id != again.id
    assert (await client.retry(again.id, even_if_succeeded=True)).id != again.id


async def test_a_long_poll_wakes_when_the_job_ends(client: Any, site: Site) -> None:
    job = await client.submit("held")
    waiting = asyncio.ensure_future(job.wait(timeout=60))
    await until(lambda: asyncio.sleep(0, bool(site.hub._watches)))
    gate.set()
    assert (await waiting).outcome == "succeeded"


async def test_a_quote_and_the_kinds_report_what_a_job_is(client: Any) -> None:
    quote = await client.quote("ad", {"product": "Shoes"})
    assert (quote.price, quote.can_pay) == (5, True)
    assert {"ad", "held"} <= {kind.name for kind in await client.kinds()}
    assert (await client.kind("ad")).stages == ["planning", "rendering"]
    assert (await client.diagram("ad")).startswith("stateDiagram")


async def test_a_browser_gets_a_token_for_one_job(client: Any, site: Site) -> None:
    job, other = await client.submit("held"), await client.submit("held")
    token = await job.token(["read"], expires_in=60)
    assert token.job_id == job.id
    assert (await site.send("GET", f"/v1/jobs/{job.id}", key=token.token)).status_code == 200
    assert (await site.send("GET", f"/v1/jobs/{other.id}", key=token.token)).status_code >= 400


async def test_an_operator_makes_tenants_keys_and_credits(admin: Any, connect: Connect) -> None:
    await admin.make_tenant("hats")
    await admin.make_account("hats", "ann", active_max=2)
    assert (await admin.set_cap("hats", "ann", 3)).active_max == 3
    for _ in range(2):
        assert (await admin.grant("hats", "ann", 10, reference="welcome")).available == 10
    made = await admin.make_key("client", tenant="hats", account="ann", name="Ann's", expires_in="1h")
    ann = connect(made.key)
    job = await ann.run("ad", {"product": "Hats"}, timeout=PATIENCE)
    assert "hats" in [tenant.tenant async for tenant in admin.tenants()]
    assert [(wallet.account, wallet.available) async for wallet in admin.accounts("hats")] == [("ann", 5)]
    assert [listed.id async for listed in admin.jobs(tenant="hats")] == [job.id]
    assert (await admin.wallet(tenant="hats", account="ann")).available == 5
    fresh = await admin.rotate_key(made.id, overlap="1m")
    assert fresh.key != made.key
    await admin.revoke_key(fresh.id)
    assert fresh.id in [key.id async for key in admin.keys(tenant="hats")]
    with pytest.raises(UnauthorizedError):
        await connect(fresh.key).wallet()
    assert [entry async for entry in admin.audit()]


async def test_an_operator_sees_and_steers_the_queues(admin: Any, client: Any) -> None:
    job = await client.submit("held")
    assert (await admin.pause("held")).verdict == "paused"
    assert (await admin.resume("held")).paused_at is None
    assert "held" in [queue.queue for queue in await admin.queues()]
    async for event in job.events():
        if event.type == "started":
            assert [worker.jobs for worker in await admin.workers()] == [1]
            gate.set()
    assert (await admin.verify()).ok


@asynccontextmanager
async def serving(engine: Engine, port: int) -> AsyncIterator[None]:
    """One life of a server on this port."""
    stop, ready = asyncio.Event(), asyncio.Event()
    hub = Hub(engine)
    served = create_app(engine, settings=Settings(), hub=hub)
    serving = serve(served, host="127.0.0.1", port=port, stop=stop, on_ready=ready.set, drain=2)
    running = asyncio.gather(hub.run(stop), serving)
    await ready.wait()
    yield
    stop.set()
    await running


@pytest.mark.parametrize("make", [AsyncClient, Client])
async def test_a_reader_stays_while_the_server_is_started_again(site: Site, make: Any) -> None:
    """The stream is cut by the old server's end; the new one, on the same port, goes on where it was."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    async with AsyncExitStack() as life:
        await life.enter_async_context(serving(site.engine, port))
        inner = make(f"http://127.0.0.1:{port}", site.client_key)
        client = inner if make is AsyncClient else Awaited(inner)
        job = await client.submit("held")
        seen: list[int] = []
        async for event in job.events():
            seen.append(event.seq)
            if event.type == "log" and event.data["text"] == "before 4":
                await life.aclose()
                gate.set()
                await life.enter_async_context(serving(site.engine, port))
        assert seen == list(range(1, len(seen) + 1))
        assert (await job.refresh()).outcome == "succeeded"
        await client.close()
