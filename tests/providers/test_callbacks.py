"""Callbacks over HTTP: what is not the provider's own, or not fresh, changes nothing; what is counts once."""

from __future__ import annotations

import json
import string
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from millpond import logs
from millpond.integrations.replicate import Replicate as Provider
from millpond.storage.local import Local
from tests.doubles.replicate import TOKEN, Refusal, Replicate
from tests.factories import TENANT
from tests.providers.deployments import Deployment, running_deployment
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from tests.databases import DatabaseServer
    from tests.doubles.comfyui import Served

_NUMBERS = count(1)
FOREVER = 3600.0


@pytest.fixture(scope="module")
async def unreconciled(
    anyio_backend: str,
    server: DatabaseServer,
    template: str,
    replicate_api: Served,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Deployment]:
    """A place where nobody reconciles: what a callback does is all that happens."""
    files = Local(tmp_path_factory.mktemp("files"), "http://files.test")
    async with (
        server.database(template) as dsn,
        running_deployment(dsn, files, replicate_api.double, with_services=False) as made,
        httpx2.AsyncClient(timeout=PATIENCE) as http,
    ):
        made.http = http
        yield made


@pytest.fixture
async def still(unreconciled: Deployment, double: Replicate) -> Deployment:
    """The same with an account of the test's own, and a provider that was asked for nothing yet."""
    providers = unreconciled.engine.providers
    await providers.close()
    providers.add(Provider(double.url, TOKEN))
    providers.heard.clear()
    return replace(unreconciled, account=f"bob-{next(_NUMBERS)}")


def fresh() -> str:
    """The id of a message that was never sent."""
    return f"message-{next(_NUMBERS)}"


async def parked(here: Deployment) -> tuple[UUID, dict[str, Any]]:
    job_id = await here.submit(seconds=FOREVER)
    await here.until(job_id, lambda job: job.phase == "parked")
    return job_id, list(here.double.predictions.values())[-1]


async def call(here: Deployment, made: dict[str, Any], headers: dict[str, str], body: bytes) -> tuple[int, Any]:
    assert here.http is not None
    answer = await here.http.post(made["webhook"], headers=headers, content=body)
    return answer.status_code, answer.json()


def body_of(made: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps(made | changes).encode()


async def state(here: Deployment, job_id: UUID) -> list[Any]:
    """All that a callback might have changed."""
    predictions = await here.rows("predictions", job_id=job_id)
    events = [event.type for event in await here.engine.events(TENANT, job_id)]
    return [predictions, events, await here.balance(), await here.rows("callbacks")]


async def test_a_good_call_makes_the_provider_be_asked_at_once(still: Deployment, double: Replicate) -> None:
    job_id, made = await parked(still)
    body = body_of(made, status="succeeded")
    asked = len(double.asked)
    response = await call(still, made, double.signed(fresh(), datetime.now(UTC), body), body)
    assert response == (200, {"verdict": "accepted"})
    (row,) = await still.rows("predictions", job_id=job_id)
    (heard,) = await still.rows("callbacks")
    assert row["due_at"] == heard["received_at"]
    assert (await still.read(job_id)).phase == "parked"  # whatever the call says
    assert [path for _, path in double.asked[asked:]] == ["/v1/webhooks/default/secret"]


async def test_the_same_call_again_changes_nothing(still: Deployment, double: Replicate) -> None:
    job_id, made = await parked(still)
    body = body_of(made)
    headers = double.signed(fresh(), datetime.now(UTC), body)
    await call(still, made, headers, body)
    before = await state(still, job_id)
    assert await call(still, made, headers, body) == (200, {"verdict": "repeated"})
    after = await state(still, job_id)
    assert after[:3] == before[:3]
    assert [row["times"] for row in after[3]] == [2]


FORGERIES = {
    "no signature": lambda headers, _: {k: v for k, v in headers.items() if k != "webhook-signature"},
    "no id": lambda headers, _: {k: v for k, v in headers.items() if k != "webhook-id"},
    "no time": lambda headers, _: {k: v for k, v in headers.items() if k != "webhook-timestamp"},
    "no time that is one": lambda headers, _: headers | {"webhook-timestamp": "soon"},
    "an endless time": lambda headers, _: headers | {"webhook-timestamp": "9" * 30},
    "another signature": lambda headers, _: headers | {"webhook-signature": "v1,aGVsbG8="},
    "no signature that is one": lambda headers, _: headers | {"webhook-signature": "v1,%%% v1 ,, v2,x"},
    "another id": lambda headers, _: headers | {"webhook-id": "m2"},
    "another time": lambda headers, _: headers | {"webhook-timestamp": str(int(time.time()) + 1)},
    "another body": lambda _, double: double.signed(fresh(), datetime.now(UTC), b"{}"),
}


async def test_a_forged_call_changes_nothing(still: Deployment, double: Replicate, capsys: Any) -> None:
    job_id, made = await parked(still)
    body = body_of(made, status="succeeded", output="https://example.com/evil.png")
    good = double.signed(fresh(), datetime.now(UTC), body)
    before = await state(still, job_id)
    logs.configure("info", as_json=True)
    try:
        for name, forge in FORGERIES.items():
            status, response = await call(still, made, forge(good, double), body)
            assert (status, response["code"]) == (401, "unauthorized"), name
    finally:
        logs.silence()
    assert await state(still, job_id) == before
    refused = [json.loads(line) for line in capsys.readouterr().err.splitlines() if "callback.refused" in line]
    assert [line["verdict"] for line in refused] == ["forged"] * len(FORGERIES)
    assert still.engine.providers.heard["replicate", "forged"] == len(FORGERIES)


async def test_no_log_of_requests_has_the_token_of_a_callback(
    still: Deployment, double: Replicate, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads logs could call in the provider's name, were its signatures not checked for once."""
    _, made = await parked(still)
    body = body_of(made)
    token = made["webhook"].rpartition("/")[2]
    logs.configure("debug", as_json=True)
    try:
        await call(still, made, double.signed(fresh(), datetime.now(UTC), body), body)

        async def breaks(*_: Any) -> str:
            raise RuntimeError("broken")

        monkeypatch.setattr(still.engine.providers, "callback", breaks)
        status, _ = await call(still, made, double.signed(fresh(), datetime.now(UTC), body), body)
        assert status == 500
    finally:
        logs.silence()
    said = capsys.readouterr().err
    decoded = [json.loads(line) for line in said.splitlines()]
    paths = [line["path"] for line in decoded if line["event"] in ("request.answered", "request.failed")]
    assert paths == ["/v1/callbacks/replicate/{token}"] * 3
    assert token not in said


@pytest.mark.parametrize("age", [timedelta(minutes=6), -timedelta(minutes=6)])
async def test_a_call_of_another_time_changes_nothing(still: Deployment, double: Replicate, age: timedelta) -> None:
    job_id, made = await parked(still)
    body = body_of(made)
    before = await state(still, job_id)
    status, _ = await call(still, made, double.signed(fresh(), datetime.now(UTC) - age, body), body)
    assert status == 401
    assert await state(still, job_id) == before
    assert still.engine.providers.heard["replicate", "stale"] == 1


async def test_a_call_about_another_prediction_changes_nothing(still: Deployment, double: Replicate) -> None:
    """A good call for one of our jobs, sent to the address of another."""
    job_id, made = await parked(still)
    other_id, other = await parked(still)
    body = body_of(other, status="succeeded")
    before = (await state(still, job_id))[:3], (await state(still, other_id))[:3]
    response = await call(still, made, double.signed(fresh(), datetime.now(UTC), body), body)
    assert response == (200, {"verdict": "unknown"})
    assert ((await state(still, job_id))[:3], (await state(still, other_id))[:3]) == before


async def test_addresses_that_nobody_gave_are_not_there(still: Deployment, double: Replicate) -> None:
    _, made = await parked(still)
    body = body_of(made)
    headers = double.signed(fresh(), datetime.now(UTC), body)
    assert still.site is not None
    good = made["webhook"].removeprefix(still.site.url)
    token = good.rpartition("/")[2]
    wrong = [
        good.replace("/replicate/", "/other/"),
        good[:-2],
        *(good[:-1] + letter for letter in string.ascii_letters if letter != good[-1]),
        good.replace(token, "x"),
        good.replace(token, "A" * 600),
        good.replace(token, token[::-1]),
        good.replace(token, "%C3%A9"),
    ]
    for path in wrong:
        assert (await call(still, {"webhook": still.site.url + path}, headers, body))[0] == 404, path
    assert await still.rows("callbacks") == []


async def test_a_call_that_is_too_large_is_not_read(still: Deployment, double: Replicate) -> None:
    _, made = await parked(still)
    body = b" " * (1024 * 1024 + 1)
    status, response = await call(still, made, double.signed(fresh(), datetime.now(UTC), body), body)
    assert (status, response["code"]) == (413, "too_large")


async def test_a_call_that_cannot_be_checked_is_to_be_sent_again(still: Deployment, double: Replicate) -> None:
    job_id, made = await parked(still)
    body = body_of(made)
    headers = double.signed(fresh(), datetime.now(UTC), body)
    double.illness = Refusal(503)
    before = await state(still, job_id)
    status, response = await call(still, made, headers, body)
    assert (status, response["retryable"]) == (503, True)
    assert await state(still, job_id) == before
    double.illness = None
    assert (await call(still, made, headers, body))[1] == {"verdict": "accepted"}


async def test_a_secret_that_was_replaced_is_asked_for_again(still: Deployment, double: Replicate) -> None:
    _, made = await parked(still)
    body = body_of(made)
    assert (await call(still, made, double.signed(fresh(), datetime.now(UTC), body), body))[0] == 200
    old = double.secret
    try:
        double.secret = "whsec_bmV3LXNlY3JldC1vZi1vdmVyLTI0LWJ5dGVzIQ=="
        new = double.signed(fresh(), datetime.now(UTC), body)
        assert (await call(still, made, new, body))[0] == 401  # it was asked for a moment ago
        provider: Any = still.engine.providers.get("replicate")
        provider._asked_secret = (provider._asked_secret[0], time.monotonic() - 120)
        assert (await call(still, made, new, body))[0] == 200
    finally:
        double.secret = old


@pytest.mark.parametrize("is_replaced", [False, True], ids=["the same secret", "a new secret"])
async def test_a_forged_call_changes_nothing_although_the_secret_must_be_asked_for_again(
    still: Deployment,
    double: Replicate,
    is_replaced: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A signature that does not match a secret from the cache is not known to be forged, until it was fetched again."""
    job_id, made = await parked(still)
    body = body_of(made, status="succeeded")
    good = double.signed(fresh(), datetime.now(UTC), body)
    assert (await call(still, made, good, body))[0] == 200
    before = await state(still, job_id)
    provider: Any = still.engine.providers.get("replicate")
    old = double.secret
    try:
        if is_replaced:
            double.secret = "whsec_bmV3LXNlY3JldC1vZi1vdmVyLTI0LWJ5dGVzIQ=="
        for name, forge in FORGERIES.items():
            provider._asked_secret = (old, time.monotonic() - 120)
            asked = len(double.asked)
            forged = forge(double.signed(fresh(), datetime.now(UTC), body), double)
            status, response = await call(still, made, forged, body)
            assert (status, response["code"]) == (401, "unauthorized"), name
            assert [path for _, path in double.asked[asked:]] in ([], ["/v1/webhooks/default/secret"]), name
    finally:
        double.secret = old
    assert await state(still, job_id) == before


async def test_a_call_is_not_accepted_while_its_secret_cannot_be_asked_for_again(
    still: Deployment, double: Replicate
) -> None:
    job_id, made = await parked(still)
    body = body_of(made)
    assert (await call(still, made, double.signed(fresh(), datetime.now(UTC), body), body))[0] == 200
    before = await state(still, job_id)
    provider: Any = still.engine.providers.get("replicate")
    provider._asked_secret = (provider._asked_secret[0], time.monotonic() - 120)
    double.illness = Refusal(503)
    forged = double.signed(fresh(), datetime.now(UTC), body) | {"webhook-signature": "v1,aGVsbG8="}
    status, response = await call(still, made, forged, body)
    assert (status, response["retryable"]) == (503, True)
    double.illness = None
    assert (await call(still, made, forged, body))[0] == 401
    assert await state(still, job_id) == before


async def test_metrics_report_providers(still: Deployment, double: Replicate) -> None:
    _, made = await parked(still)
    await call(still, made, {}, b"{}")
    assert still.site is not None
    text = (await still.site.order("GET", "/metrics")).text
    assert 'millpond_provider_calls_total{outcome="answered",provider="replicate"} 1.0' in text
    assert 'millpond_provider_suspended{provider="replicate"} 0.0' in text
    assert 'millpond_callbacks_total{provider="replicate",verdict="forged"} 1.0' in text
