"""The verbs of an operator; they need an admin key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from millpond import wire
from millpond.client.requests import Requests, given, length, segment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime, timedelta


class Admin(Requests):
    """Tenants, accounts, keys, credits, queues, workers, webhooks."""

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

    async def refund(
        self,
        job_id: str,
        reason: str,
        *,
        amount: int | None = None,
        idempotency_key: str | None = None,
        tenant: str | None = None,
    ) -> wire.Refund:
        """Give back what an ended job has cost: so much, or all that is left. Sent again, it is done once."""
        path, body = f"/v1/jobs/{segment(job_id)}/refund", wire.MakeRefund(reason=reason, amount=amount)
        return await self.request(
            "POST",
            path,
            body=body,
            params=given({"tenant": tenant}),
            type=wire.Refund,
            idempotency_key=idempotency_key,
            is_repeatable=True,
        )

    async def set_priority(self, job_id: str, priority: int, *, tenant: str | None = None) -> wire.State:
        """Give a job that waits for its turn another priority; the highest goes first."""
        path, body = f"/v1/jobs/{segment(job_id)}/priority", wire.SetPriority(priority=priority)
        return await self.request("PUT", path, body=body, params=given({"tenant": tenant}), type=wire.State)

    # Many jobs at once

    def find_jobs(self, wanted: wire.JobFilter | None = None) -> AsyncIterator[wire.JobLine]:
        """The jobs that fit a filter, the newest first, without what they were given and what they made."""
        params: dict[str, Any] = msgspec.to_builtins(wanted or wire.JobFilter())
        return self.pages("/v1/board/jobs", wire.JobLines, params)

    async def order(
        self,
        action: wire.ErrandAction,
        wanted: wire.JobFilter | None = None,
        *,
        every: bool = False,
        priority: int | None = None,
        format: wire.ExportFormat | None = None,  # noqa: A002 - the wire's word
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> wire.Errand:
        """Have something done to the jobs that fit a filter, in the background. ``every``: an empty one is meant."""
        body = wire.MakeErrand(
            action=action,
            filter=wanted or wire.JobFilter(),
            all=every,
            priority=priority,
            format=format,
            reason=reason,
        )
        return await self.request("POST", "/v1/errands", body=body, type=wire.Errand, idempotency_key=idempotency_key)

    async def preview(self, wanted: wire.JobFilter) -> wire.ErrandPreview:
        """How many jobs fit a filter, and some of them."""
        body = wire.PreviewErrand(filter=wanted)
        return await self.request("POST", "/v1/errands/preview", body=body, type=wire.ErrandPreview, is_repeatable=True)

    def errands(self, *, tenant: str | None = None) -> AsyncIterator[wire.Errand]:
        """What was ordered, the newest first."""
        return self.pages("/v1/errands", wire.Errands, {"tenant": tenant})

    async def errand(self, errand_id: str) -> wire.Errand:
        """How far an errand has come, and what came of it."""
        return await self.request("GET", f"/v1/errands/{segment(errand_id)}", type=wire.Errand)

    async def abort(self, errand_id: str) -> wire.Errand:
        """Stop an errand before its next job; what is done stays done."""
        path = f"/v1/errands/{segment(errand_id)}/abort"
        return await self.request("POST", path, type=wire.Errand, is_repeatable=True)

    # Webhooks

    async def endpoints(self, *, tenant: str | None = None) -> list[wire.EndpointInfo]:
        """The URLs that are told of a tenant's jobs, without their secrets."""
        return [found async for found in self.pages("/v1/endpoints", wire.Endpoints, {"tenant": tenant})]

    async def endpoint(self, endpoint_id: str, *, tenant: str | None = None) -> wire.EndpointInfo:
        """One endpoint."""
        return await self.request("GET", _endpoint(endpoint_id), params={"tenant": tenant}, type=wire.EndpointInfo)

    async def make_endpoint(
        self,
        url: str | None = None,
        *,
        events: Sequence[str] | None = None,
        kinds: Sequence[str] = (),
        description: str = "",
        secret: str | None = None,
        limit: int | None = None,
        tenant: str | None = None,
    ) -> wire.NewEndpoint:
        """Have a URL told of a tenant's jobs; the secret is told this once. Without a URL, what is due is pulled."""
        body = wire.MakeEndpoint(
            url=url,
            events=None if events is None else list(events),
            kinds=list(kinds),
            description=description,
            secret=secret,
            limit=limit,
        )
        return await self.request("POST", "/v1/endpoints", body=body, params={"tenant": tenant}, type=wire.NewEndpoint)

    async def change_endpoint(
        self, endpoint_id: str, *, tenant: str | None = None, **changes: Any
    ) -> wire.EndpointInfo:
        """Change its url, events, kinds, description or limit; what is not named stays as it is."""
        return await self.request(
            "PATCH", _endpoint(endpoint_id), body=changes, params={"tenant": tenant}, type=wire.EndpointInfo
        )

    async def rotate_endpoint(
        self, endpoint_id: str, *, overlap: timedelta | str | float = "24h", tenant: str | None = None
    ) -> wire.NewEndpoint:
        """Give an endpoint a new secret; for the overlap, what is sent is signed with both."""
        body = wire.RotateEndpoint(overlap=length(overlap, field="overlap"))
        path = _endpoint(endpoint_id, "rotate")
        return await self.request("POST", path, body=body, params={"tenant": tenant}, type=wire.NewEndpoint)

    async def disable_endpoint(
        self, endpoint_id: str, reason: str = "by an operator", *, tenant: str | None = None
    ) -> wire.EndpointInfo:
        """Send nothing to an endpoint until it is enabled again."""
        body, path = wire.DisableEndpoint(reason=reason), _endpoint(endpoint_id, "disable")
        return await self.request(
            "POST", path, body=body, params={"tenant": tenant}, type=wire.EndpointInfo, is_repeatable=True
        )

    async def enable_endpoint(self, endpoint_id: str, *, tenant: str | None = None) -> wire.EndpointInfo:
        """Send to an endpoint that was disabled."""
        path = _endpoint(endpoint_id, "enable")
        return await self.request("POST", path, params={"tenant": tenant}, type=wire.EndpointInfo, is_repeatable=True)

    async def delete_endpoint(self, endpoint_id: str, *, tenant: str | None = None) -> None:
        """Remove an endpoint; what was not sent yet is not sent any more."""
        await self.request("DELETE", _endpoint(endpoint_id), params={"tenant": tenant})

    async def test_endpoint(
        self, endpoint_id: str, event: str = "job.succeeded", *, tenant: str | None = None
    ) -> wire.Delivery:
        """Send an endpoint an event of a job that never was."""
        body, path = wire.TriggerEvent(event=event), _endpoint(endpoint_id, "test")
        return await self.request("POST", path, body=body, params={"tenant": tenant}, type=wire.Delivery)

    async def endpoint_stats(
        self, endpoint_id: str, *, since: str = "24h", tenant: str | None = None
    ) -> wire.EndpointStats:
        """How an endpoint fared within this time."""
        params = {"since": since, "tenant": tenant}
        return await self.request("GET", _endpoint(endpoint_id, "stats"), params=params, type=wire.EndpointStats)

    def deliveries(
        self,
        *,
        endpoint: str | None = None,
        job: str | None = None,
        state: wire.DeliveryState | None = None,
        tenant: str | None = None,
    ) -> AsyncIterator[wire.Delivery]:
        """What was told to whom, the newest first."""
        params = {"endpoint": endpoint, "job": job, "state": state, "tenant": tenant}
        return self.pages("/v1/deliveries", wire.Deliveries, params)

    async def delivery(self, delivery_id: str, *, tenant: str | None = None) -> wire.DeliveryLog:
        """A delivery with every try: what was sent, what was answered, how long it took."""
        path = f"/v1/deliveries/{segment(delivery_id)}"
        return await self.request("GET", path, params={"tenant": tenant}, type=wire.DeliveryLog)

    async def resend(self, delivery_id: str, *, tenant: str | None = None) -> wire.Delivery:
        """Send a delivery once more: the same id and body, signed anew."""
        path = f"/v1/deliveries/{segment(delivery_id)}/resend"
        return await self.request("POST", path, params={"tenant": tenant}, type=wire.Delivery)

    async def resend_since(
        self, endpoint_id: str, since: datetime, *, only_failed: bool = True, tenant: str | None = None
    ) -> int:
        """Send an endpoint once more what failed since a time, or everything; tells how many those are."""
        body, path = wire.ResendSince(since=since, only_failed=only_failed), _endpoint(endpoint_id, "resend")
        resent = await self.request("POST", path, body=body, params={"tenant": tenant}, type=wire.Resent)
        return resent.count

    async def pull(self, endpoint_id: str, most: int = 10, *, tenant: str | None = None) -> list[wire.Parcel]:
        """What is due at an endpoint without a URL, to be delivered by oneself and reported."""
        body, path = wire.PullDeliveries(most=most), _endpoint(endpoint_id, "pull")
        pulled = await self.request(
            "POST", path, body=body, params={"tenant": tenant}, type=wire.Parcels, is_repeatable=True
        )
        return pulled.data

    async def report(
        self,
        delivery_id: str,
        *,
        status: int | None = None,
        error: str | None = None,
        seconds: float = 0,
        headers: Mapping[str, str] | None = None,
        body: str = "",
        tenant: str | None = None,
    ) -> None:
        """Tell what came of a delivery that was pulled."""
        told = wire.ReportDelivery(status=status, error=error, seconds=seconds, headers=dict(headers or {}), body=body)
        path = f"/v1/deliveries/{segment(delivery_id)}/report"
        await self.request("POST", path, body=told, params={"tenant": tenant}, is_repeatable=True)

    # What was done, and whether all is well

    def audit(self, *, tenant: str | None = None) -> AsyncIterator[wire.AuditEntry]:
        """What operators did, the newest first."""
        return self.pages("/v1/audit", wire.Audit, {"tenant": tenant})

    async def verify(self) -> wire.Verification:
        """Whether every invariant holds."""
        return await self.request("GET", "/v1/verify", type=wire.Verification)


def _endpoint(endpoint_id: str, *verb: str) -> str:
    return "/".join(("/v1/endpoints", segment(endpoint_id), *verb))
