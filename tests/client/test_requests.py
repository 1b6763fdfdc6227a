"""One request: its tries, its key, its deadline, and the errors it ends with."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from millpond import AsyncClient, Client, MillpondError, UnreadableError, wire
from millpond.errors import (
    AnswerUnavailableError,
    ConflictError,
    ForbiddenError,
    GateMissingError,
    IdempotencyKeyError,
    InputError,
    InsufficientCreditsError,
    InvalidError,
    PermanentError,
    RateLimitedError,
    SettingsError,
    TooManyActiveJobsError,
    UnavailableError,
    VaultError,
)
from millpond.retry import Backoff
from tests.doubles.native_api import (
    KEY,
    NativeApi,
    Server,
    answer_with,
    compress,
    cut_after_it_is_done,
    refuse,
    served,
    stall,
)
from tests.waiting import PATIENCE


class BusyError(ConflictError):
    """A conflict that will pass."""

    code = "busy"
    retryable = True


PASSING = {
    "408": answer_with(408),
    "409 that is retryable": refuse(BusyError()),
    "429": refuse(RateLimitedError(retry_after=0)),
    "502 of a proxy": answer_with(502, b"<html>bad gateway</html>"),
    "503": refuse(UnavailableError()),
    "504": answer_with(504),
    "a body cut in the middle": cut_after_it_is_done,
}
HARMLESS = {"429": PASSING["429"]}
DOUBTFUL = {name: fault for name, fault in PASSING.items() if name not in HARMLESS}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
async def test_a_submit_is_tried_again_under_the_same_key(client: Any, api: NativeApi, fault: Any) -> None:
    api.faults.extend([fault, fault])
    job = await client.submit("ad")
    keys = [request.headers["idempotency-key"] for request in api.asked]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert list(api.jobs) == [job.id]


async def test_each_submit_has_a_key_of_its_own_unless_it_is_given_one(client: Any, api: NativeApi) -> None:
    await client.submit("ad")
    await client.submit("ad")
    first = await client.submit("ad", idempotency_key="order-1")
    assert (await client.submit("ad", idempotency_key="order-1")).id == first.id
    keys = [request.headers["idempotency-key"] for request in api.asked]
    assert len(set(keys)) == 3


async def test_a_bulk_whose_answer_was_lost_is_the_same_jobs_again(client: Any, api: NativeApi) -> None:
    api.faults.append(cut_after_it_is_done)
    jobs = await client.submit_many({"kind": "ad"} for _ in range(3))
    assert [job.id for job in jobs] == list(api.jobs)


@pytest.mark.parametrize("fault", DOUBTFUL.values(), ids=DOUBTFUL)
async def test_what_may_have_had_an_effect_is_not_sent_again_without_a_key(
    client: Any, api: NativeApi, fault: Any
) -> None:
    job = await client.submit("ad")
    api.faults.append(fault)
    with pytest.raises(MillpondError):
        await client.retry(job)
    assert len(api.asked_for("POST", "/retry")) == 1


@pytest.mark.parametrize("fault", HARMLESS.values(), ids=HARMLESS)
async def test_what_surely_had_no_effect_is_sent_again(client: Any, api: NativeApi, fault: Any) -> None:
    job = await client.submit("ad")
    api.faults.append(fault)
    assert (await client.retry(job)).id != job.id


@pytest.mark.parametrize(("reference", "tries"), [("invoice-1", 2), (None, 1)])
async def test_a_grant_is_sent_again_only_with_a_reference(
    client: Any, api: NativeApi, reference: str | None, tries: int
) -> None:
    api.faults.append(cut_after_it_is_done)
    if reference is None:
        with pytest.raises(UnavailableError):
            await client.grant("acme", "mary", 5)
    else:
        await client.grant("acme", "mary", 5, reference=reference)
    assert len(api.asked) == tries


@pytest.mark.parametrize(
    "error",
    [
        InputError("It is wrong.", field="input.a"),
        ConflictError(),
        InsufficientCreditsError(required=5),
        MillpondError(),
        VaultError(),
        GateMissingError(),
    ],
    ids=lambda error: error.code,
)
async def test_a_refusal_for_good_is_not_tried_again(client: Any, api: NativeApi, error: MillpondError) -> None:
    api.faults.append(refuse(error))
    with pytest.raises(type(error)):
        await client.submit("ad")
    assert len(api.asked) == 1


async def test_the_error_is_the_servers_own_with_all_it_said(client: Any, api: NativeApi) -> None:
    api.faults.append(
        refuse(InsufficientCreditsError("Too few.", field="kind", hint="Top up.", required=5, available=2))
    )
    with pytest.raises(InsufficientCreditsError) as caught:
        await client.submit("ad")
    error = caught.value
    assert (error.code, error.status, error.retryable) == ("insufficient_credits", 402, False)
    assert (error.message, error.field, error.hint) == ("Too few.", "kind", "Top up.")
    assert error.details == {"required": 5, "available": 2}
    assert error.request_id == "req_1"


async def test_members_that_are_named_like_arguments_are_only_details(client: Any, api: NativeApi) -> None:
    body = b'{"code": "permanent", "detail": "No.", "message": "x", "self": 1, "retry_after": "soon", "field": 7}'
    api.faults.append(answer_with(422, body))
    with pytest.raises(PermanentError) as caught:
        await client.submit("ad")
    assert caught.value.details == {"message": "x", "self": 1, "retry_after": "soon"}
    assert caught.value.field == "7"


async def test_a_code_from_the_future_keeps_its_name(client: Any, api: NativeApi) -> None:
    api.faults.append(answer_with(418, b'{"code": "teapot", "detail": "I am a teapot.", "retryable": false}'))
    with pytest.raises(MillpondError) as caught:
        await client.submit("ad")
    assert type(caught.value) is MillpondError
    assert (caught.value.code, caught.value.status, caught.value.message) == ("teapot", 418, "I am a teapot.")
    assert (MillpondError.code, MillpondError.status) == ("error", 500)


@pytest.mark.parametrize(
    ("status", "body", "made"),
    [
        (403, b"<html>forbidden by the proxy</html>", ForbiddenError),
        (404, b'"text"', MillpondError),
        (500, b"\xff\xfe", MillpondError),
        (500, b"[" * 100_000, MillpondError),
        (302, b"", UnreadableError),
    ],
)
async def test_what_a_proxy_says_becomes_an_error_too(
    client: Any, api: NativeApi, status: int, body: bytes, made: type[MillpondError]
) -> None:
    api.faults.append(answer_with(status, body))
    with pytest.raises(made) as caught:
        await client.submit("ad")
    assert str(status) in str(caught.value) or status == 302


@pytest.mark.parametrize("body", [b"<html>hello</html>", b'{"id": 7}', b"[" * 100_000, b"\xff"])
async def test_an_answer_that_is_not_millponds_is_reported_as_such(client: Any, api: NativeApi, body: bytes) -> None:
    api.faults.append(answer_with(200, body))
    with pytest.raises(UnreadableError, match="Check that the URL is that of a Millpond server"):
        await client.wallet()


async def test_a_redirect_is_not_followed_with_the_key(client: Any, api: NativeApi) -> None:
    with served(other := NativeApi()) as elsewhere:
        api.faults.append(answer_with(307, location=f"{elsewhere.url}/v1/wallet"))
        with pytest.raises(UnreadableError, match="redirected the request"):
            await client.wallet()
    assert other.asked == []


# Time


async def test_the_pause_is_the_one_the_server_asks_for(client: Any, api: NativeApi) -> None:
    api.faults.append(refuse(RateLimitedError(), retry_after="1"))
    started = time.monotonic()
    await client.wallet()
    assert time.monotonic() - started >= 1


async def test_a_pause_that_is_longer_than_the_deadline_is_not_begun(client: Any, api: NativeApi) -> None:
    api.faults.extend([refuse(RateLimitedError("Slow down."), retry_after="3600")] * 9)
    with pytest.raises(RateLimitedError, match="Slow down"):
        await client.wallet()
    assert len(api.asked) == 1


async def test_a_pause_may_be_given_as_a_date(client: Any, api: NativeApi) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    api.faults.extend([refuse(RateLimitedError(), retry_after=later)] * 9)
    with pytest.raises(RateLimitedError):
        await client.wallet()
    assert len(api.asked) == 1


@pytest.mark.parametrize("said", ["soon", "nan", "-5", "1e400", ""])
async def test_a_pause_that_makes_no_sense_is_our_own(client: Any, api: NativeApi, said: str) -> None:
    api.faults.append(refuse(RateLimitedError(), retry_after=said))
    await client.wallet()
    assert len(api.asked) == 2


async def test_a_storm_of_refusals_ends_with_the_deadline_and_with_its_reason(
    client: Any, api: NativeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third pause would be longer than what is left."""
    pauses = Backoff(first=timedelta(seconds=0.02), factor=60, longest=timedelta(days=1))
    monkeypatch.setattr("millpond.client.requests._BACKOFF", pauses)
    api.faults.extend([refuse(TooManyActiveJobsError("Ten are active."))] * 1_000)
    with pytest.raises(TooManyActiveJobsError, match="Ten are active"):
        await client.request("GET", "/v1/wallet", timeout=50)
    assert len(api.asked) == 3


async def test_a_body_that_drips_does_not_outlast_the_deadline(client: Any, api: NativeApi) -> None:
    api.faults.extend([stall(60)] * 9)
    with pytest.raises(UnavailableError, match="did not respond within"):
        await client.request("GET", "/v1/wallet", timeout=0.5)


async def test_a_slow_body_within_the_deadline_is_read(client: Any, api: NativeApi) -> None:
    api.faults.append(stall(0.5))
    assert await client.request("GET", "/v1/wallet", timeout=PATIENCE) == {}


async def test_a_compressed_and_chunked_answer_is_read(client: Any, api: NativeApi) -> None:
    api.faults.append(compress)
    assert (await client.wallet()).available == 95


async def test_a_server_that_comes_back_in_time_is_waited_for(client: Any, double: Server) -> None:
    double.stop()
    with pytest.raises(UnavailableError, match="could not be reached"):
        await client.request("GET", "/v1/wallet", timeout=0.5)
    double.start()
    assert (await client.wallet()).available == 95


async def test_a_connection_that_died_in_its_sleep_is_replaced(client: Any, double: Server) -> None:
    """Even for a call without a key: nothing was sent over the dead one."""
    job = await client.submit("ad")
    double.stop()
    double.start()
    assert (await client.get(job.id)).id == job.id


# Settings and secrets


@pytest.fixture(params=[Client, AsyncClient])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.delenv("MILLPOND_URL", raising=False)
    monkeypatch.delenv("MILLPOND_API_KEY", raising=False)
    return request.param


def test_what_is_missing_is_named_with_its_variable(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="MILLPOND_URL"):
        make()
    monkeypatch.setenv("MILLPOND_URL", "http://127.0.0.1:8000")
    with pytest.raises(SettingsError, match="MILLPOND_API_KEY"):
        make()
    monkeypatch.setenv("MILLPOND_API_KEY", KEY)
    assert make().url == "http://127.0.0.1:8000"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://[::1", "http://mary:hunter2@host"])
def test_a_url_that_cannot_be_one_is_refused(make: Any, url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make(url, KEY)
    assert caught.value.field == "url"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["pk secret", "pk_secret\n", "pk_sécret"])
def test_a_key_with_a_line_break_is_refused_without_being_reported(make: Any, key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make("http://127.0.0.1:8000", key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("timeout", [0, -1, "soon", float("nan")])
def test_a_timeout_must_be_a_length_of_time(make: Any, timeout: Any) -> None:
    with pytest.raises(InvalidError) as caught:
        make("http://127.0.0.1:8000", KEY, timeout=timeout)
    assert caught.value.field == "timeout"


def test_a_path_before_the_api_and_the_version_behind_it_are_understood(make: Any) -> None:
    assert make("http://host/jobs/", KEY).url == "http://host/jobs"
    assert make("http://host/jobs/v1/", KEY).url == "http://host/jobs"


async def test_a_wrong_idempotency_key_is_refused_before_it_is_sent(client: Any, api: NativeApi) -> None:
    with pytest.raises(IdempotencyKeyError):
        await client.submit("ad", idempotency_key="a b\r\nX: y")
    assert api.asked == []


async def test_the_key_is_in_no_repr_and_in_no_error(client: Any, api: NativeApi, double: Server) -> None:
    api.faults.append(refuse(AnswerUnavailableError()))
    described = [repr(client), repr(client.job("x"))]
    try:
        await client.answer("job_x", {"a": 1})
    except MillpondError as error:
        described.append("".join(traceback.format_exception(error)) + repr(vars(error)))
    double.stop()
    try:
        await client.request("GET", "/v1/wallet", timeout=0.3)
    except MillpondError as error:
        described.append("".join(traceback.format_exception(error)) + repr(vars(error)))
    double.start()
    assert len(described) == 4
    assert KEY not in "".join(described)


async def test_any_request_can_be_made(client: Any) -> None:
    assert (await client.request("GET", "/v1/wallet", type=wire.Wallet)).held == 5
    assert (await client.request("GET", "/v1/wallet"))["held"] == 5
    assert b"held" in await client.request("GET", "/v1/wallet", type=bytes)
    assert "held" in await client.request("GET", "/v1/wallet", type=str)


async def test_a_closed_client_says_that_it_is_closed(client: Any) -> None:
    await client.close()
    with pytest.raises(InvalidError, match="closed"):
        await client.wallet()


def test_a_client_leaves_nothing_open(double: Server) -> None:
    """Warnings are errors: a socket that is left to the collector would be one."""
    with Client(double.url, KEY) as client:
        client.submit("ad")
        next(client.jobs())
    gc.collect()
