"""The client of Replicate, against the double; and the double against the real client."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from replicate.client import Client
from replicate.exceptions import ReplicateError
from replicate.webhook import InvalidSignatureError, Webhooks

from millpond import webhooks
from millpond.errors import BadSignatureError, InputError, NotFoundError, PermanentError, SettingsError, TransientError
from millpond.integrations.replicate import Replicate
from millpond.providers import Ask
from tests.doubles.replicate import TOKEN, Refusal, Script
from tests.doubles.replicate import Replicate as Double
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

VERSION = "5c7d5dc6dd8bf75c1acaa8565735e7986bc5b66206b55cca93cb72c9bf15ccaa"
NEVER = Script(seconds=3600)


@pytest.fixture
async def client(double: Double) -> AsyncIterator[Replicate]:
    double.plan = lambda _: NEVER
    made = Replicate(double.url, TOKEN)
    yield made
    await made.close()


async def submit(client: Replicate, model: str = "acme/painter", **options: Any) -> Any:
    return await client.submit(Ask(model, {"prompt": "a cat"}), **{"callback": None, "deadline": None} | options)


@pytest.mark.parametrize(
    ("model", "path", "version"),
    [
        ("acme/painter", "/v1/models/acme/painter/predictions", None),
        (f"acme/painter:{VERSION}", "/v1/predictions", VERSION),
        (VERSION, "/v1/predictions", VERSION),
        ("deployments/acme/fast", "/v1/deployments/acme/fast/predictions", None),
    ],
)
async def test_a_model_is_asked_for_where_it_is(
    client: Replicate, double: Double, model: str, path: str, version: str | None
) -> None:
    made = await submit(client, model, callback="https://x.test/cb", deadline=timedelta(seconds=90))
    assert (made.status, made.is_over) == ("starting", False) or made.status == "processing"
    assert double.asked == [("POST", path)]
    assert double.bodies[0].get("version") == version
    assert double.bodies[0]["input"] == {"prompt": "a cat"}
    assert double.bodies[0]["webhook"] == "https://x.test/cb"
    assert double.heads[0]["cancel-after"] == "90s"


@pytest.mark.parametrize("model", ["", "a/b/c", "../../x", "a b/c", "a/b:c:d", "https://x/y", "a/b?c=d"])
async def test_what_is_no_name_of_a_model_is_refused(client: Replicate, double: Double, model: str) -> None:
    with pytest.raises(InputError) as refused:
        await submit(client, model)
    assert refused.value.field == "model"
    assert double.asked == []


async def test_status_and_cancel_report_where_it_stands(client: Replicate, double: Double) -> None:
    made = await submit(client)
    assert not (await client.status(made.id)).is_over
    stopped = await client.cancel(made.id)
    assert stopped is not None
    assert stopped.status == "canceled"
    assert (await client.status(made.id)).status == "canceled"
    assert await client.cancel("unknown") is None
    with pytest.raises(NotFoundError):
        await client.status("../../v1/webhooks/default/secret")


@pytest.mark.parametrize(
    ("word", "completed_at", "status"),
    [
        ("aborted", "2026-01-01T00:00:00Z", "canceled"),
        ("queued", None, "processing"),
        ("exploded", "2026-01-01T00:00:00Z", "failed"),
        ("succeeded", "2026-01-01T00:00:00Z", "succeeded"),
    ],
)
async def test_words_that_it_may_learn_are_understood(
    client: Replicate, double: Double, word: str, completed_at: str | None, status: str
) -> None:
    made = await submit(client)
    while (await client.status(made.id)).status == "starting":  # from then on the double leaves it alone
        await asyncio.sleep(0.01)
    double.predictions[made.id] |= {"status": word, "completed_at": completed_at}
    response = await client.status(made.id)
    assert response.status == status
    assert status != "failed" or "exploded" in (response.error or "")


@pytest.mark.parametrize("status", [400, 402, 403, 404, 422])
async def test_a_refusal_is_permanent(client: Replicate, double: Double, status: int) -> None:
    double.refusals.append(Refusal(status, f"No, {TOKEN}."))
    with pytest.raises(PermanentError) as refused:
        await submit(client)
    assert str(status) in str(refused.value)
    assert TOKEN not in repr(refused.value.as_dict())


@pytest.mark.parametrize("status", [400, 401, 402, 403, 422])
async def test_a_refusal_to_report_is_not_about_the_prediction(client: Replicate, double: Double, status: int) -> None:
    made = await submit(client)
    double.illness = Refusal(status, f"No, {TOKEN}.")
    for call in (client.status, client.cancel):
        with pytest.raises(TransientError) as refused:
            await call(made.id)
        assert (refused.value.retry_after is not None) == (status in (401, 402))
        assert TOKEN not in repr(refused.value.as_dict())


async def test_a_token_that_is_not_taken_is_no_fault_of_what_was_asked(client: Replicate, double: Double) -> None:
    double.refusals.append(Refusal(401))
    with pytest.raises(TransientError) as refused:
        await submit(client)
    assert refused.value.retry_after == timedelta(seconds=30)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
async def test_a_fault_of_its_own_is_passing(client: Replicate, double: Double, status: int) -> None:
    double.refusals.append(Refusal(status))
    with pytest.raises(TransientError) as failed:
        await submit(client)
    assert failed.value.retry_after is None


@pytest.mark.parametrize(
    ("refusal", "seconds"),
    [
        (Refusal(429, headers={"Retry-After": "7"}), 7),
        (Refusal(503, headers={"Retry-After": "2.5"}), 2.5),
        (Refusal(429, "Request was throttled. Your rate limit resets in ~30s."), 30),
        (Refusal(429), 5),
        (Refusal(429, headers={"Retry-After": "100000000"}), 3600),
        (Refusal(429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), 1),
        (Refusal(429, headers={"Retry-After": "tomorrow"}), 5),
    ],
)
async def test_it_says_when_to_come_again(client: Replicate, double: Double, refusal: Refusal, seconds: float) -> None:
    double.refusals.append(refusal)
    with pytest.raises(TransientError) as failed:
        await submit(client)
    assert failed.value.retry_after == timedelta(seconds=seconds)


async def test_an_answer_that_breaks_off_is_passing(client: Replicate, double: Double) -> None:
    double.plan = lambda _: Script(is_lost=True, seconds=3600)
    with pytest.raises(TransientError):
        await submit(client)
    assert len(double.predictions) == 1


async def test_nobody_there_is_passing(unused_tcp_port: int) -> None:
    client = Replicate(f"http://127.0.0.1:{unused_tcp_port}", TOKEN)
    with pytest.raises(TransientError) as failed:
        await submit(client)
    assert TOKEN not in repr(failed.value) + repr(client)
    await client.close()


@pytest.fixture
def unused_tcp_port() -> int:
    import socket  # noqa: PLC0415 - here alone

    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def test_origins_have_a_port() -> None:
    assert Replicate("https://api.replicate.com", TOKEN).origin == "https://api.replicate.com:443"
    assert Replicate("http://127.0.0.1:8911/v1/", TOKEN).origin == "http://127.0.0.1:8911"
    for url, token in [("ftp://x", TOKEN), ("nowhere", TOKEN), ("https://x.test", " "), ("https://x.test", "a\nb")]:
        with pytest.raises(SettingsError):
            Replicate(url, token)


async def test_callbacks_are_read_by_the_secret_it_reports(client: Replicate, double: Double) -> None:
    body = b'{"id": "p1", "status": "succeeded", "output": ["x"]}'
    headers = double.signed("m1", datetime.now(UTC), body)
    called = await client.verify({name.title(): value for name, value in headers.items()}, body)
    assert (called.message_id, called.external_id, called.status) == ("m1", "p1", "succeeded")
    await client.verify(headers, body)
    assert double.asked == [("GET", "/v1/webhooks/default/secret")]
    for wrong in (b"{}", b"[]", b"no json", b'{"id": 1, "status": 2}'):
        with pytest.raises(BadSignatureError):
            await client.verify(double.signed("m1", datetime.now(UTC), wrong), wrong)


# The double, as the real client sees it


@pytest.fixture
def real(double: Double) -> Iterator[Client]:
    made = Client(api_token=TOKEN, base_url=double.url)
    yield made
    made._client.close()


def test_the_real_client_makes_reads_and_cancels_predictions(double: Double, real: Client) -> None:
    double.plan = lambda given: Script(seconds=3600 if given["slow"] else 0.05)
    made = real.predictions.create(version=VERSION, input={"slow": False}, webhook="http://127.0.0.1:9/x")
    assert made.status in ("starting", "processing")
    made.wait()
    assert (made.status, made.output) == ("succeeded", [f"{double.url}/files/{made.id}/out-0.png"])
    slow = real.models.predictions.create("acme/painter", input={"slow": True})
    slow.cancel()
    slow.reload()
    assert slow.status == "canceled"
    assert real.deployments.predictions.create("acme/fast", input={"slow": True}).id in double.predictions


def test_the_real_client_is_shown_problems_in_its_words(double: Double, real: Client) -> None:
    double.refusals.append(Refusal(422, "- input.width: must be at most 1024"))
    with pytest.raises(ReplicateError) as refused:
        real.predictions.create(version=VERSION, input={})
    assert refused.value.status == 422
    assert "input.width" in (refused.value.detail or "")


def test_the_real_client_finds_the_signatures_good(double: Double, real: Client) -> None:
    secret = real.webhooks.default.secret()
    body = '{"id": "p"}'
    headers = double.signed("m", datetime.now(UTC), body.encode())
    Webhooks.validate(headers=headers, body=body, secret=secret, tolerance=300)
    ours = webhooks.headers("m", int(datetime.now(UTC).timestamp()), body.encode(), [secret.key])
    Webhooks.validate(headers=ours, body=body, secret=secret, tolerance=300)
    with pytest.raises(InvalidSignatureError):
        Webhooks.validate(headers=headers, body=body + " ", secret=secret)


async def test_the_real_client_and_ours_see_the_same(double: Double, client: Replicate, real: Client) -> None:
    double.plan = lambda _: Script(seconds=0.01)
    made = await submit(client)
    theirs = await real.predictions.async_get(made.id)
    async with asyncio.timeout(PATIENCE):
        while not (ours := await client.status(made.id)).is_over:
            await asyncio.sleep(0.01)
    await theirs.async_wait()
    assert (theirs.status, theirs.output) == (ours.status, ours.output)
    await real._async_client.aclose()
