"""Where the contract is served: beside the native API or in front of it, and for tenants that live elsewhere."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING

import httpx2
import jsonschema_rs
import pytest
from products.tests.guard.deployments import Deployment, running_deployment

from millpond.api.documents import openapi
from millpond.engine.verify import verify_all
from millpond_products.guard import sets
from millpond_products.guard.routes import PRODUCT
from tests.checks import until
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.databases import DatabaseServer

DOCUMENT = openapi.document(PRODUCT.routes, {}, product=PRODUCT)
SECRET = {"type": "keywords", "words": ["secret"]}


# Alone, and the native API behind it


async def test_it_is_served_alone_with_the_native_api_beside_it(server: DatabaseServer, template: str) -> None:
    async with server.database(template) as dsn, running_deployment(dsn, alone=True) as deployment:
        customer = await deployment.customer()
        job = await customer.submit(message_output="Hello!")
        await customer.when(job, "completed")
        native = await customer.get(f"/native/v1/jobs/{job['job_id']}")
        assert (native["id"], native["state"]) == (job["job_id"], "completed")
        assert native["links"]["self"] == f"/native/v1/jobs/{job['job_id']}"
        assert [one["id"] for one in (await customer.get("/native/v1/jobs"))["data"]] == [job["job_id"]]
        await deployment.engine.grant(customer.name, "app", 5)
        other = await customer.post("/native/v1/jobs", {"kind": "gated", "input": {"text": "x"}})
        assert other["kind"] == "gated"
        assert (await customer.get("/healthz"))["status"] == "ok"
        events = await customer.get(f"/v1/jobs/{job['job_id']}/events")  # where the contract has no path
        assert events["data"][0]["state"] == "processing_inbound"
        refused = await customer.refused("GET", "/v1/jobs", status=405)
        assert refused["code"] == "method_not_allowed"
        assert (await deployment.http.get("/openapi.json")).json()["info"]["title"] == "Guard"
        assert (await deployment.http.get("/native/openapi.json")).json()["info"]["title"] == "Millpond"
        assert (await deployment.http.get("/")).headers["content-type"].startswith("text/html")


async def test_it_is_served_beside_the_native_api(deployment: Deployment) -> None:
    customer = await deployment.customer()
    document = (await deployment.http.get("/openapi.json")).json()
    assert document["info"]["title"] == "Guard"
    assert document["servers"] == [{"url": "/guard"}]
    assert "dry-run" in (await deployment.http.get("/docs")).text
    problem = await customer.refused("GET", "/v1/nothing", status=404)
    assert problem["type"] == "/guard/docs/problems/not_found"
    async with httpx2.AsyncClient(
        base_url=deployment.url, headers={"Authorization": f"Bearer {customer.key}"}, timeout=PATIENCE
    ) as native:
        assert (await native.get("/v1/jobs")).json()["data"] == []
        assert (await native.get("/v1/kinds")).json()["data"][0]["name"] == "gated"  # guard is nobody else's to submit


# A tenant in another database


async def test_a_tenant_apart_sees_no_difference(server: DatabaseServer, template: str) -> None:
    async with (
        server.database(template) as dsn,
        server.database() as far,
        running_deployment(dsn, tenant_databases={"far": far}) as deployment,
    ):
        customer, near = await deployment.customer("far"), await deployment.customer()
        await customer.rule({"type": "pii", "labels": ["email"]}, action="redact")
        await customer.rule(SECRET, direction="outbound")
        job = await customer.submit("I am ann@example.com.")
        operator = await deployment.key(scope="admin")
        queues = (await customer.get("/api/v1/health/queues", key=operator))["queues"]
        (queue,) = [one for one in queues if one["queue"] == "guard"]
        assert queue["rate_in_1m"] == round(1 / 60, 3)
        response = await customer.when(job, "awaiting_response")
        assert response["inbound"]["text"] == "I am [EMAIL]."
        await customer.respond(job, "Hello!")
        await customer.when(job, "completed")
        held = await customer.submit("Well?", message_output="A secret.")
        await customer.when(held, "outbound_blocked")
        late = await customer.submit("Well?", expires_in_seconds=1)
        await customer.when(late, "expired")
        await until(lambda: asyncio.sleep(0, "job.expired" in deployment.receiver.events("far")))
        own = [one for one in deployment.receiver.at("far") if one.payload["job_id"] == job["job_id"]]
        assert [one.payload["event"] for one in own] == ["job.inbound_completed", "job.completed"]
        assert all(one.verified(job["webhook_secret"]) for one in own)
        assert (await near.operate("GET", "/v1/rules"))["data"] == []
        async with deployment.engine.db.transaction() as tx:
            assert await tx.fetchval("select count(*) from millpond.guard_rules") == 0
        assert await verify_all(deployment.engine.tenant_databases) == []


# A classifier of somebody else's


CLASSIFIER = """
from millpond_products.rules import Finding


class Mood:
    async def classify(self, text):
        return [Finding("angry", 0.9)] if "!!!" in text else []
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that offers a classifier, as pip would put it there."""
    (tmp_path / "mood_of_text.py").write_text(CLASSIFIER)
    about = tmp_path / "mood_of_text-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mood-of-text\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[millpond.classifiers]\nmood = mood_of_text:Mood\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    sets._classifiers.cache_clear()
    yield
    sets._classifiers.cache_clear()


@pytest.mark.usefixtures("installed")
async def test_grd_07_rules_can_ask_a_classifier_of_an_installed_package(deployment: Deployment) -> None:
    customer = await deployment.customer()
    await customer.rule({"type": "classifier", "name": "mood"}, name="Be calm")
    response = await customer.when(await customer.submit("Now!!!"), "inbound_blocked")
    (verdict,) = response["inbound"]["verdicts"]
    assert (verdict["name"], verdict["label"]) == ("Be calm", "angry")
    await customer.when(await customer.submit("Now, please."), "awaiting_response")


# Its document


async def test_what_is_answered_fits_the_document(deployment: Deployment) -> None:
    customer = await deployment.customer()
    await customer.rule({"type": "pii", "labels": ["email"]}, action="redact")
    job = await customer.submit("I am ann@example.com.", message_output="Hello!", metadata={"a": 1})
    response = await customer.when(job, "completed")
    answers = {
        "MadeJob": job,
        "Job": response,
        "Rules": await customer.operate("GET", "/v1/rules"),
        "Queues": await customer.get("/api/v1/health/queues"),
        "Filtered": await customer.operate("POST", "/v1/rules/dry-run", {"text": "x", "direction": "inbound"}),
    }
    for name, answer in answers.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
        jsonschema_rs.validate(schema, answer)
    assert re.fullmatch(
        DOCUMENT["paths"]["/v1/jobs/{job_id}"]["get"]["parameters"][0]["schema"]["pattern"], job["job_id"]
    )
