"""PAR-10: one stable set of codes, for failed jobs and refused requests."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

import pytest
from products.tests.partner.deployments import TENANT, new_key, number

from millpond import errors
from millpond.api import problems
from millpond.errors import PermanentError, TransientError
from millpond.outbound import Outbound
from millpond_products.github import GitHub
from millpond_products.partner import failures, wire

if TYPE_CHECKING:
    from products.tests.partner.deployments import Deployment, Partner

SET = {
    *("VALIDATION", "NOT_FOUND", "CONFLICT", "IDEMPOTENCY_CONFLICT", "RATE_LIMITED", "INSUFFICIENT_CREDITS"),
    *("PLATFORM_ERROR", "TIMEOUT", "CANCELED", "INTERNAL"),
}
META = {"platform": "meta", "platformCode": "1487194", "platformMessage": "Video must be at least 4:5"}
LIMITED: Any = TransientError("Slow down.", retry_after=timedelta(seconds=90), **META)


def test_par_10_the_set_is_the_contracts() -> None:
    assert set(get_args(wire.JobCode)) == SET
    assert set(get_args(wire.Code)) == SET | {"UNAUTHENTICATED", "FORBIDDEN"}


@pytest.mark.parametrize(
    ("raised", "code", "message", "details"),
    [
        (PermanentError("Meta said no.", **META), "PLATFORM_ERROR", "Meta said no.", META | {"retryAfterMs": None}),
        (LIMITED, "PLATFORM_ERROR", "Slow down.", META | {"retryAfterMs": 90_000}),
        (
            PermanentError("No such app.", code="NOT_FOUND", field="appId"),
            "NOT_FOUND",
            "No such app.",
            {"field": "appId"},
        ),
        (PermanentError("It is a local file.", code="VALIDATION"), "VALIDATION", "It is a local file.", {}),
        (PermanentError("It could not be assembled."), "INTERNAL", "It could not be assembled.", {}),
        (ValueError("/etc/passwd and postgresql://secret"), "INTERNAL", failures.OURS, {}),
        (errors.StoreError("postgresql://secret"), "INTERNAL", failures.OURS, {}),
        (errors.TimeLimitError("It ran longer than 90 s."), "TIMEOUT", "It ran longer than 90 s.", {}),
        (errors.BlockedError("Not that."), "INTERNAL", failures.OURS, {}),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else None,
)
async def test_par_10_a_failed_job_carries_its_error(
    deployment: Deployment, partner: Partner, raised: Exception, code: str, message: str, details: dict[str, Any]
) -> None:
    async def fail(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        if isinstance(raised, TransientError) and job.attempt < 3:
            raise TransientError("Once more.", retry_after=timedelta(milliseconds=1))
        raise raised

    deployment.scripts["appstore_ingest"] = fail
    before = await deployment.balance(partner)
    job_id = (await partner.start("appstore_ingest"))["jobId"]
    while (response := await partner.get(f"/v1/jobs/{job_id}?wait=0.2"))["status"] == "running":
        if (await deployment.engine.read(TENANT, number(job_id))).phase == "waiting":
            await deployment.clock.advance(timedelta(seconds=3))
    assert set(response) == {"jobId", "kind", "status", "projectId", "startedAt", "finishedAt", "error"}
    assert response["error"] == {"code": code, "message": message, "details": details}
    assert await deployment.balance(partner) == before


def test_par_10_whatever_the_engine_refuses_with_has_a_code_of_the_set() -> None:
    for kind in problems.all_errors():
        error = kind(**({"allow": "GET"} if kind is errors.MethodNotAllowedError else {}))
        status, envelope = failures.refuse(error, problems.describe(error, request_id="req_1"))
        assert envelope.error.code in get_args(wire.Code)
        assert (status == 422) is False
        assert (envelope.error.code == "INTERNAL") == (status >= 500)


async def test_par_10_every_refusal_is_the_envelope(deployment: Deployment, partner: Partner) -> None:
    nobody = f"prj_{new_key()}"
    refused = partner.refused
    response = await refused("POST", "/v1/projects", {}, status=400, code="VALIDATION")
    assert response["details"]["field"] == "name"
    response = await refused("POST", "/v1/projects", {"name": "a", "colour": "red"}, status=400, code="VALIDATION")
    assert (response["details"]["field"], response["details"]["hint"]) == ("colour", "Known fields: name, description.")
    await refused("POST", "/v1/projects", {"name": " "}, status=400, code="VALIDATION")
    await refused("GET", f"/v1/projects/{nobody}", status=404, code="NOT_FOUND")
    await refused("GET", "/v1/projects/prj_1", status=404, code="NOT_FOUND")
    await refused("GET", "/v1/nowhere", status=404, code="NOT_FOUND")
    await refused("DELETE", "/v1/projects", status=405, code="VALIDATION")
    await refused("GET", "/v1/jobs/job_1", status=404, code="NOT_FOUND")
    await refused("POST", f"/v1/projects/{nobody}/content", {"images": 9}, status=400, code="VALIDATION")
    await refused("POST", f"/v1/projects/{nobody}/content", status=404, code="NOT_FOUND", json={})
    await refused("POST", "/v1/admin/tiktok-leases/lse_1/reject", {"reason": "-"}, status=403, code="FORBIDDEN")
    answer = await partner.http.get("/v1/projects")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    malformed = await partner.http.post(
        "/v1/projects",
        content=b"{",
        headers={"Authorization": f"Bearer {partner.key}", "Content-Type": "application/json"},
    )
    assert (malformed.status_code, malformed.json()["error"]["code"]) == (400, "VALIDATION")
    pauper = await deployment.partner(amount=0)
    project = await pauper.project()
    response = await pauper.refused(
        "POST", f"/v1/projects/{project}/content", {}, status=402, code="INSUFFICIENT_CREDITS"
    )
    assert (response["details"]["required"], response["details"]["available"]) == (10, 0)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("ingest/github", {"repoUrl": "file:///etc"}, "repoUrl"),
        ("ingest/github", {"repoUrl": "/etc/passwd"}, "repoUrl"),
        ("ingest/github", {"repoUrl": "ssh://git@github.com/a/b"}, "repoUrl"),
        ("ingest/github", {"repoUrl": "http://10.0.0.1/a/b.git"}, "repoUrl"),
        ("ingest/github", {"repoUrl": "https://127.0.0.1/a/b", "branch": "--upload-pack=x"}, "branch"),
        ("ingest/website", {"url": "http://169.254.169.254/latest"}, "url"),
        ("ingest/website", {"url": "gopher://example.com"}, "url"),
        ("ingest/appstore", {"appId": "../../x"}, "appId"),
        ("ingest/appstore", {"appId": "310633997", "country": "usa"}, "country"),
        ("content", {"influencerId": "inf_1"}, "influencerId"),
        ("content/clone", {}, "sourceContainerId"),
    ],
)
async def test_par_10_bad_input_names_its_field(
    deployment: Deployment, partner: Partner, path: str, body: dict[str, Any], field: str
) -> None:
    project = await partner.project()
    before = await deployment.balance(partner)
    answer = await partner.send("POST", f"/v1/projects/{project}/{path}", body)
    assert answer.status_code in {400, 404}, answer.text
    assert answer.json()["error"]["details"]["field"] == field
    assert await deployment.balance(partner) == before
    assert (await partner.get("/v1/jobs"))["data"] == []


async def test_par_10_what_github_refuses_is_a_platform_error(deployment: Deployment, partner: Partner) -> None:
    github = GitHub(Outbound("loopback"), "http://127.0.0.1:9", "t0ken")

    async def ask(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        try:
            return await github.call("GET", "/repos/a/b")
        except TransientError as error:
            raise PermanentError(error.message, **error.details) from error

    deployment.scripts["project_ingest_github"] = ask
    response = await partner.ended((await partner.start("project_ingest_github"))["jobId"])
    assert response["error"]["code"] == "PLATFORM_ERROR"
    assert response["error"]["details"]["platform"] == "github"
    assert "t0ken" not in str(response)
