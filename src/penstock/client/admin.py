"""The verbs of an operator; they need an admin key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import wire
from penstock.client.requests import Requests, given, length, segment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import timedelta


class Admin(Requests):
    """Tenants, accounts, keys, credits, queues."""

    async def pages(self, path: str, type: Any, params: dict[str, Any]) -> AsyncIterator[Any]:
        """All things of a list, page by page."""
        while True:
            page = await self.request("GET", path, params=params, type=type)
            for thing in page.data:
                yield thing
            if page.next_cursor is None:
                return
            params = {**params, "cursor": page.next_cursor}

    def tenants(self) -> AsyncIterator[wire.TenantInfo]:
        """All tenants, by name."""
        return self.pages("/v1/tenants", wire.Tenants, {})

    async def make_tenant(self, tenant: str) -> wire.TenantInfo:
        """Make a tenant; one that is there already stays as it is."""
        body = wire.MakeTenant(tenant=tenant)
        return await self.request("POST", "/v1/tenants", body=body, type=wire.TenantInfo, is_repeatable=True)

    def accounts(self, tenant: str) -> AsyncIterator[wire.Wallet]:
        """The accounts of a tenant, by name."""
        return self.pages(f"/v1/tenants/{segment(tenant)}/accounts", wire.Wallets, {})

    async def make_account(self, tenant: str, account: str, *, active_max: int | None = None) -> wire.Wallet:
        """Make an account in a tenant; one that is there already stays as it is."""
        path, body = f"/v1/tenants/{segment(tenant)}/accounts", wire.MakeAccount(account=account, active_max=active_max)
        return await self.request("POST", path, body=body, type=wire.Wallet, is_repeatable=True)

    async def set_cap(self, tenant: str, account: str, active_max: int | None) -> wire.Wallet:
        """Limit how many jobs an account may have active at once; None lifts the limit."""
        path = f"/v1/tenants/{segment(tenant)}/accounts/{segment(account)}/cap"
        return await self.request("PUT", path, body=wire.SetCap(active_max=active_max), type=wire.Wallet)

    async def grant(
        self, tenant: str, account: str, amount: int, *, reference: str | None = None, reason: str | None = None
    ) -> wire.Wallet:
        """Top an account up; the same reference grants once."""
        return await self._post("/v1/grants", tenant, account, amount, reference=reference, reason=reason)

    async def adjust(
        self, tenant: str, account: str, amount: int, *, reference: str | None = None, reason: str | None = None
    ) -> wire.Wallet:
        """Put an account right, up or down, with the reason why."""
        return await self._post("/v1/adjustments", tenant, account, amount, reference=reference, reason=reason)

    async def _post(self, path: str, tenant: str, account: str, amount: int, **why: str | None) -> wire.Wallet:
        body = wire.Post(tenant=tenant, account=account, amount=amount, **why)
        has_reference = why["reference"] is not None
        return await self.request("POST", path, body=body, type=wire.Wallet, is_repeatable=has_reference)

    def keys(self, *, tenant: str | None = None) -> AsyncIterator[wire.KeyInfo]:
        """All keys, the newest first, without their secrets."""
        return self.pages("/v1/keys", wire.Keys, {"tenant": tenant})

    async def make_key(
        self,
        scope: wire.Scope,
        *,
        tenant: str | None = None,
        account: str | None = None,
        name: str | None = None,
        expires_in: timedelta | str | float | None = None,
        rate_limit: int | None = None,
    ) -> wire.NewKey:
        """Make a key; its secret is told this once. Tenant and account are made if missing."""
        body = wire.MakeKey(
            scope=scope,
            tenant=tenant,
            account=account,
            name=name,
            expires_in=None if expires_in is None else length(expires_in, field="expires_in"),
            rate_limit=rate_limit,
        )
        return await self.request("POST", "/v1/keys", body=body, type=wire.NewKey)

    async def rotate_key(self, key_id: str, *, overlap: timedelta | str | float = "24h") -> wire.NewKey:
        """Make a key's successor; the old one stays good for the overlap."""
        body = wire.RotateKey(overlap=length(overlap, field="overlap"))
        return await self.request("POST", f"/v1/keys/{segment(key_id)}/rotate", body=body, type=wire.NewKey)

    async def revoke_key(self, key_id: str) -> wire.KeyInfo:
        """Make a key useless at once."""
        return await self.request("DELETE", f"/v1/keys/{segment(key_id)}", type=wire.KeyInfo)

    async def queues(self) -> list[wire.QueueInfo]:
        """All queues and how they are doing."""
        return (await self.request("GET", "/v1/queues", type=wire.Queues)).data

    async def pause(self, queue: str) -> wire.QueueInfo:
        """Hand out no more of a queue's jobs; what runs goes on."""
        return await self._turn(queue, "pause")

    async def resume(self, queue: str) -> wire.QueueInfo:
        """Let a paused queue move again."""
        return await self._turn(queue, "resume")

    async def _turn(self, queue: str, verb: str) -> wire.QueueInfo:
        path = f"/v1/queues/{segment(queue)}/{verb}"
        return await self.request("POST", path, type=wire.QueueInfo, is_repeatable=True)

    async def workers(self) -> list[wire.WorkerInfo]:
        """The fleet, and the other workers that hold leases now."""
        return (await self.request("GET", "/v1/workers", type=wire.Workers)).data

    async def worker(self, worker_id: str) -> wire.WorkerInfo:
        """A worker of the fleet."""
        return await self.request("GET", f"/v1/workers/{segment(worker_id)}", type=wire.WorkerInfo)

    async def approve_worker(self, worker_id: str) -> wire.WorkerInfo:
        """Let a worker in that waits, or one that was revoked."""
        return await self._order(worker_id, "approve")

    async def revoke_worker(self, worker_id: str) -> wire.WorkerInfo:
        """Throw a worker out, at once; what it holds goes back."""
        return await self._order(worker_id, "revoke")

    async def drain_worker(self, worker_id: str) -> wire.WorkerInfo:
        """Give a worker no more jobs; it finishes what it has."""
        return await self._order(worker_id, "drain")

    async def resume_worker(self, worker_id: str) -> wire.WorkerInfo:
        """Give a worker that drains jobs again."""
        return await self._order(worker_id, "resume")

    async def _order(self, worker_id: str, verb: str) -> wire.WorkerInfo:
        path = f"/v1/workers/{segment(worker_id)}/{verb}"
        return await self.request("POST", path, type=wire.WorkerInfo, is_repeatable=True)

    async def rotate_worker(
        self, worker_id: str, *, overlap: timedelta | str | float | None = None
    ) -> wire.NewWorkerToken:
        """Make a new token for a worker; the old one is refused from now on, or when the overlap is over."""
        body = wire.RotateWorker(overlap=None if overlap is None else length(overlap, field="overlap"))
        path = f"/v1/workers/{segment(worker_id)}/rotate"
        return await self.request("POST", path, body=body, type=wire.NewWorkerToken)

    async def assign_worker(self, worker_id: str, routes: list[str]) -> wire.WorkerInfo:
        """Bind a worker to these routes instead; what it holds it finishes."""
        path, body = f"/v1/workers/{segment(worker_id)}/routes", wire.AssignRoutes(routes=routes)
        return await self.request("PUT", path, body=body, type=wire.WorkerInfo)

    async def routes(self) -> list[wire.RouteInfo]:
        """The fleet's queues, with their load and their workers."""
        return (await self.request("GET", "/v1/routes", type=wire.Routes)).data

    async def scaling(
        self, route: str, *, jobs_per_worker: int = 1, least: int = 0, most: int = 50, target_wait: float = 60.0
    ) -> wire.Scaling:
        """How many workers a route should have now."""
        policy = {"jobs_per_worker": jobs_per_worker, "min": least, "max": most, "target_wait": target_wait}
        return await self.request("GET", f"/v1/scaling/{segment(route)}", params=policy, type=wire.Scaling)

    async def move(self, job_id: str, state: str, *, tenant: str | None = None) -> wire.State:
        """Take a job to a state along an arrow of its lifecycle."""
        path = f"/v1/jobs/{segment(job_id)}/move"
        body = wire.Move(state=state)
        return await self.request("POST", path, body=body, params=given({"tenant": tenant}), type=wire.State)

    def audit(self, *, tenant: str | None = None) -> AsyncIterator[wire.AuditEntry]:
        """What operators did, the newest first."""
        return self.pages("/v1/audit", wire.Audit, {"tenant": tenant})

    async def verify(self) -> wire.Verification:
        """Whether every invariant holds."""
        return await self.request("GET", "/v1/verify", type=wire.Verification)
