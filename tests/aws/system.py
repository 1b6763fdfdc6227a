"""A server with jobs and a group with instances, for the tests of what goes on between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.factories import TENANT

if TYPE_CHECKING:
    import httpx2

    from millpond.integrations.aws.autoscaler import Autoscaler, ScalingDecision
    from tests.api.sites import Site
    from tests.aws.amazon import Amazon
    from tests.factories import Factory

ROUTE = "filmed"


@dataclass
class SystemUnderTest:
    """A server with jobs, a group with instances, and workers on them that do as they are told."""

    site: Site
    amazon: Amazon
    make: Factory
    fleet_key: str
    http: httpx2.AsyncClient
    now: float = 0.0
    tokens: dict[str, str] = field(default_factory=dict[str, str])

    async def submit(self, jobs: int) -> None:
        for _ in range(jobs):
            await self.make.submitted(ROUTE)

    async def come(self, *instances: str) -> None:
        for name in instances:
            answer = await self._call("register", {"worker": name, "routes": [ROUTE]}, key=self.fleet_key)
            self.tokens[name] = answer["token"]

    async def take(self, instance: str) -> dict[str, Any] | None:
        """A job for the worker, if there is one for it."""
        jobs = (await self._call("poll", {"want": 1}, key=self.tokens[instance]))["jobs"]
        return jobs[0] if jobs else None

    async def finish(self, instance: str, job: dict[str, Any]) -> None:
        lease = {"job_id": job["job_id"], "lease_token": job["lease_token"]}
        await self._call("complete", lease | {"output": {}}, key=self.tokens[instance])

    async def _call(self, verb: str, body: Any, *, key: str) -> Any:
        answer = await self.http.post(f"/v1/worker/{verb}", json=body, headers={"Authorization": f"Bearer {key}"})
        assert answer.is_success, answer.text
        return answer.json()

    async def status(self, instance: str) -> str:
        return next(each["status"] for each in await self.workers() if each["worker"] == instance)

    async def drain(self, instance: str) -> None:
        (found,) = [each["id"] for each in await self.workers() if each["worker"] == instance]
        await self.order("POST", f"/v1/workers/{found}/drain")

    async def workers(self) -> list[dict[str, Any]]:
        return (await self.order("GET", "/v1/workers"))["data"]

    async def jobs(self) -> list[dict[str, Any]]:
        return (await self.order("GET", f"/v1/jobs?tenant={TENANT}"))["data"]

    async def order(self, method: str, path: str) -> Any:
        answer = await self.http.request(method, path, headers={"Authorization": f"Bearer {self.site.admin_key}"})
        assert answer.is_success, answer.text
        return answer.json()

    async def look(self, scaler: Autoscaler) -> ScalingDecision:
        """A look at what is so now, not a moment ago."""
        self.site.engine.scaling._seen._good_until = 0.0
        return await scaler.look()
