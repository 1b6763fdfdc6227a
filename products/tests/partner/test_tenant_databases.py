"""Where things are kept: a tenant in a database of its own, and what stays when the weeks of jobs are dropped."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from products.tests.partner.deployments import TENANT, made, new_key, running_deployment

from millpond.errors import PermanentError
from millpond.store import partitions
from millpond_products.partner import projects, resources

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import DatabaseServer


async def test_the_whole_flow_in_a_database_of_its_own(server: DatabaseServer, template: str, tmp_path: Path) -> None:
    async with (
        server.database(template) as near,
        server.database(template) as far,
        running_deployment(near, tmp_path, far=far) as deployment,
    ):

        async def find(job: Any, given: dict[str, Any]) -> dict[str, Any]:
            await job.stage("merging_context")
            await projects.merge(deployment.engine, job, UUID(given["project_id"]), "website", {"title": "Far"})
            return made(given)

        deployment.scripts["project_ingest_website"] = find
        partner, key = await deployment.partner(tenant="far"), new_key()
        endpoint = await partner.post("/v1/webhook-endpoints", {"url": deployment.receiver.url("far")}, 201)
        project = await partner.project()
        read = await partner.ended((await partner.start("project_ingest_website", project))["jobId"])
        assert read["status"] == "completed", read
        assert (await partner.get(f"/v1/projects/{project}"))["context"]["website"] == {"title": "Far"}
        started = await partner.start("content_generate", project, key=key)
        assert await partner.start("content_generate", project, key=key) == started
        ended = await partner.ended(started["jobId"])
        container = await partner.get(f"/v1/projects/{project}/containers/{started['containerId']}")
        assert (container["status"], container["result"]) == ("completed", ended["result"])
        came = await deployment.receiver.wait("far", 2)
        assert [one.verified(endpoint["secret"]) for one in came] == [read, ended]
        lease = await partner.post(f"/v1/projects/{project}/tiktok-leases", {}, 202)
        admin = f"/v1/admin/tiktok-leases/{lease['leaseId']}/fulfil?tenant=far"
        assert (await deployment.admin.post(admin, {"handle": "afar"}))["status"] == "fulfilled"
        assert len((await partner.get(f"/v1/projects/{project}/social-accounts"))["data"]) == 1
        neighbour = await deployment.partner()
        theirs = await neighbour.post(f"/v1/projects/{await neighbour.project()}/tiktok-leases", {}, 202)
        admin = f"/v1/admin/tiktok-leases/{theirs['leaseId']}/fulfil?tenant={TENANT}"
        await deployment.admin.refused("POST", admin, {"handle": "afar"}, status=409, code="CONFLICT")


async def test_what_was_made_says_how_it_ended_when_its_jobs_are_forgotten(
    server: DatabaseServer, template: str, tmp_path: Path
) -> None:
    """Their weeks are dropped before anybody has read what they made."""
    async with server.database(template) as dsn, running_deployment(dsn, tmp_path) as deployment:

        async def keep(job: Any, given: dict[str, Any]) -> dict[str, Any]:
            await resources.kept(deployment.engine, "content_generate", output)(job, given)
            if given["brief"] == "failed":
                raise PermanentError("After all it is of no use.")
            return made(given)

        async def output(job: Any, given: dict[str, Any]) -> dict[str, Any]:
            return made(given)

        deployment.scripts["content_generate"] = keep
        partner = await deployment.partner()
        project = await partner.project()
        jobs = {end: await partner.start("content_generate", project, brief=end) for end in ("completed", "failed")}
        ended = {end: await partner.ended(job["jobId"]) for end, job in jobs.items()}
        assert await partitions.drop(deployment.engine.db, timedelta(days=-60)) != []
        for end, job in jobs.items():
            await partner.refused("GET", f"/v1/jobs/{job['jobId']}", status=404, code="NOT_FOUND")
            response = await partner.get(f"/v1/projects/{project}/containers/{job['containerId']}")
            assert (response["status"], response.get("result")) == (end, ended[end].get("result"))
        listed = (await partner.get(f"/v1/projects/{project}/containers"))["data"]
        assert [each["status"] for each in listed] == ["failed", "completed"]
