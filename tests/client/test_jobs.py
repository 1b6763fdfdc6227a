"""What a caller does with jobs, by both clients."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import msgspec
import pydantic
import pytest

from millpond import JobEndedError, WaitTimeoutError
from millpond.errors import InputError, InsufficientCreditsError, InvalidError, NotFoundError
from tests.checks import until
from tests.client.both import begun, unwrapped
from tests.doubles.native_api import NativeApi
from tests.waiting import PATIENCE


class Ad(msgspec.Struct):
    headline: str


class PydanticAd(pydantic.BaseModel):
    headline: str


@dataclasses.dataclass
class DataAd:
    headline: str


def end_at_once(api: NativeApi, type: str = "succeeded", **expected: Any) -> None:
    """Every job of the double ends as soon as it is born."""
    add = api.add

    def ended(kind: str, input: Any = None) -> Any:
        made = add(kind, input)
        made.happen("started")
        made.happen(type, **expected)
        return made

    api.add = ended  # type: ignore[method-assign]


async def test_run_gives_the_job_with_its_output_and_its_cost(client: Any, api: NativeApi) -> None:
    end_at_once(api, output={"headline": "Shoes!"})
    job = await client.run("ad", {"product": "shoe"}, timeout=PATIENCE)
    assert (job.output, job.captured, job.state) == ({"headline": "Shoes!"}, 5, "succeeded")
    assert api.jobs[job.id].input == {"product": "shoe"}


@pytest.mark.parametrize("outcome", ["failed", "canceled", "expired", "blocked"])
async def test_run_raises_every_other_outcome(client: Any, api: NativeApi, outcome: str) -> None:
    end_at_once(api, outcome, error={"code": "permanent", "message": "The shoe is gone.", "hint": "Take a hat."})
    with pytest.raises(JobEndedError) as caught:
        await client.run("ad")
    assert caught.value.code == f"job_{outcome}"
    assert caught.value.job.outcome == outcome
    assert str(caught.value) == f"{caught.value.job.id} (ad) ended as {outcome}: The shoe is gone. Take a hat."


async def test_run_reports_its_events_as_they_happen(client: Any, api: NativeApi) -> None:
    end_at_once(api)
    reported: list[str] = []
    await client.run("ad", on_event=lambda event: reported.append(event.type))
    assert reported == ["submitted", "started", "succeeded"]


@pytest.mark.parametrize("seconds", [0.2, 1.2])
async def test_when_patience_ends_the_job_goes_on(client: Any, api: NativeApi, seconds: float) -> None:
    with pytest.raises(WaitTimeoutError, match="It continues to run") as caught:
        await client.run("ad", timeout=seconds)
    assert isinstance(caught.value, TimeoutError)
    assert api.jobs[caught.value.job.id].outcome is None


async def test_when_patience_ends_the_job_is_canceled_if_that_was_asked_for(client: Any, api: NativeApi) -> None:
    with pytest.raises(WaitTimeoutError) as caught:
        await client.run("ad", timeout=0.1, cancel_on_timeout=True)
    assert api.jobs[caught.value.job.id].outcome == "canceled"


@pytest.mark.parametrize("shape", [Ad, PydanticAd, DataAd])
async def test_a_record_goes_in_and_comes_out(client: Any, api: NativeApi, shape: Any) -> None:
    end_at_once(api, output={"headline": "Shoes!"})
    job = await client.submit("ad", shape(headline="Shoes!"), expires_in=timedelta(minutes=5))
    assert api.jobs[job.id].input == {"headline": "Shoes!"}
    assert await job.result(shape) == shape(headline="Shoes!")
    assert await job.result() == {"headline": "Shoes!"}


async def test_an_output_of_another_shape_is_reported_by_its_place(client: Any, api: NativeApi) -> None:
    end_at_once(api, output={"headline": 7})
    with pytest.raises(InputError, match=r"output: The output cannot be decoded as Ad: .*\$\.headline"):
        await client.result((await client.submit("ad")).id, Ad)


@pytest.mark.parametrize(
    ("given", "field"),
    [([1], "input"), ({"a": float("nan")}, "input.a"), ({"a": object()}, "input"), ({"a": ["x\0"]}, "input.a[0]")],
)
async def test_an_input_that_json_cannot_hold_is_refused_before_it_is_sent(
    client: Any, api: NativeApi, given: Any, field: str
) -> None:
    with pytest.raises(InputError) as caught:
        await client.submit("ad", given)
    assert caught.value.field == field
    assert api.asked == []


async def test_a_handle_knows_what_it_has_read_and_asks_only_when_asked_to(client: Any, api: NativeApi) -> None:
    job = await client.submit("ad")
    assert (job.kind, job.state, job.price, job.output, job.is_ended) == ("ad", "queued", 5, None, False)
    api.jobs[job.id].happen("succeeded", output={"a": 1})
    assert job.output is None
    await job.refresh()
    assert (job.output, job.is_ended) == ({"a": 1}, True)
    assert client.job(job.id).state is None
    assert (await client.get(job.id)).state == "succeeded"


async def test_a_job_that_is_not_there_is_not_found(client: Any) -> None:
    with pytest.raises(NotFoundError):
        await client.job("job_x").wait()


@pytest.mark.parametrize("name", ["", "..", "."])
async def test_an_id_that_would_be_another_path_is_refused(client: Any, api: NativeApi, name: str) -> None:
    with pytest.raises(InvalidError):
        await client.get(name)
    assert api.asked == []


async def test_an_id_stays_one_part_of_the_path(client: Any, api: NativeApi) -> None:
    job = api.add("ad")
    with pytest.raises(NotFoundError):
        await client.cancel(f"x/../{job.id}")
    assert job.outcome is None


async def test_cancel_and_retry_work_by_handle_and_by_id(client: Any) -> None:
    job = await client.submit("ad")
    assert (await job.cancel()).is_accepted
    assert not (await client.cancel(job.id)).is_accepted
    assert (await job.retry()).id != job.id
    assert (await client.retry(job.id)).kind == "ad"


async def test_a_list_is_read_page_by_page(client: Any, api: NativeApi) -> None:
    api.page_size = 2
    made = [api.add("ad").id for _ in range(5)]
    assert [job.id async for job in client.jobs(kind="ad")] == made[::-1]
    assert len(api.asked_for("GET", "/jobs")) == 3


async def test_of_many_jobs_each_is_accepted_or_refused_by_itself(client: Any, api: NativeApi) -> None:
    first, refused, last = await client.submit_many(
        [{"kind": "a"}, {"kind": "broke"}, {"kind": "b", "input": {"x": 1}}]
    )
    assert (first.kind, last.kind, api.jobs[last.id].input) == ("a", "b", {"x": 1})
    assert isinstance(refused, InsufficientCreditsError)
    assert refused.status == 402


async def test_more_jobs_than_a_bulk_can_hold_go_in_several(client: Any, api: NativeApi) -> None:
    jobs = await client.submit_many({"kind": "ad", "input": {"n": n}} for n in range(1_001))
    assert [api.jobs[job.id].input["n"] for job in jobs] == list(range(1_001))
    assert len(api.asked) == 2


async def test_large_jobs_go_in_bulks_that_the_server_can_take(client: Any, api: NativeApi) -> None:
    await client.submit_many({"kind": "ad", "input": {"text": "x" * 250_000}} for _ in range(40))
    assert len(api.asked) == 2


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"kind": "a", "colour": 1}, "requests[1]"),
        ({}, "requests[1].kind"),
        ({"kind": "a", "input": [1]}, "requests[1].input"),
    ],
)
async def test_a_wrong_request_among_many_is_named(client: Any, api: NativeApi, request_: Any, field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        await client.submit_many([{"kind": "a"}, request_])
    assert caught.value.field == field
    assert api.asked == []


async def test_jobs_come_as_they_end_and_not_as_they_were_named(client: Any, api: NativeApi) -> None:
    jobs = await client.submit_many({"kind": "ad"} for _ in range(12))
    order = [job.id for job in jobs]
    api.jobs[order[11]].happen("failed")
    ended: list[str] = []
    async for job in client.as_completed(unwrapped(jobs), timeout=PATIENCE):
        ended.append(job.id)
        if len(ended) == 1:
            for later in order[:11]:
                api.jobs[later].happen("succeeded")
    assert ended[0] == order[11]
    assert sorted(ended) == sorted(order)


async def test_waiting_for_many_ends_with_the_callers_patience(client: Any, api: NativeApi) -> None:
    jobs = await client.submit_many({"kind": "ad"} for _ in range(3))
    api.jobs[jobs[1].id].happen("succeeded")
    first, ended = await begun(lambda seconds: client.as_completed(unwrapped(jobs), timeout=seconds))
    assert first.id == jobs[1].id
    with pytest.raises(WaitTimeoutError):
        await anext(ended)


async def test_a_wait_outlasts_one_long_poll(client: Any, api: NativeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.client.verbs.POLL_MAX", 0.2)
    job = await client.submit("ad")
    waiting = asyncio.create_task(job.wait(timeout=PATIENCE))
    await until(lambda: asyncio.sleep(0, len(api.asked_for("GET", job.id)) >= 3))
    assert not waiting.done()
    api.jobs[job.id].happen("succeeded")
    assert (await waiting).is_ended
