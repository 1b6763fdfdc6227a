"""The operator's methods; they require an operator or admin key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from millpond import wire
from millpond.client.requests import Requests, given, length, new_key, segment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from millpond.schedules import CatchUp, Overlap


class Admin(Requests):
    """Tenants, accounts, keys, credits, queues, workers, schedules, webhooks."""

    async def pages(self, path: str, type: Any, params: dict[str, Any]) -> AsyncIterator[Any]:
        """All items of a paginated list."""
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
        """Create a tenant. An existing tenant is not changed."""
        body = wire.MakeTenant(tenant=tenant)
        return await self.request("POST", "/v1/tenants", body=body, type=wire.TenantInfo, is_repeatable=True)

    def accounts(self, tenant: str) -> AsyncIterator[wire.Wallet]:
        """The accounts of a tenant, by name."""
        return self.pages(f"/v1/tenants/{segment(tenant)}/accounts", wire.Wallets, {})

    async def make_account(self, tenant: str, account: str, *, active_max: int | None = None) -> wire.Wallet:
        """Create an account of a tenant. An existing account is not changed."""
        path, body = f"/v1/tenants/{segment(tenant)}/accounts", wire.MakeAccount(account=account, active_max=active_max)
        return await self.request("POST", path, body=body, type=wire.Wallet, is_repeatable=True)

    async def set_cap(self, tenant: str, account: str, active_max: int | None) -> wire.Wallet:
        """Set the limit of active jobs of an account; None removes the limit."""
        path = f"/v1/tenants/{segment(tenant)}/accounts/{segment(account)}/cap"
        return await self.request("PUT", path, body=wire.SetCap(active_max=active_max), type=wire.Wallet)

    async def grant(
        self, tenant: str, account: str, amount: int, *, reference: str | None = None, reason: str | None = None
    ) -> wire.Wallet:
        """Grant credits to an account. Each reference grants once."""
        return await self._post("/v1/grants", tenant, account, amount, reference=reference, reason=reason)

    async def adjust(
        self, tenant: str, account: str, amount: int, *, reference: str | None = None, reason: str | None = None
    ) -> wire.Wallet:
        """Adjust the credits of an account up or down, with a reason."""
        return await self._post("/v1/adjustments", tenant, account, amount, reference=reference, reason=reason)

    async def _post(self, path: str, tenant: str, account: str, amount: int, **why: str | None) -> wire.Wallet:
        body = wire.Post(tenant=tenant, account=account, amount=amount, **why)
        has_reference = why["reference"] is not None
        return await self.request("POST", path, body=body, type=wire.Wallet, is_repeatable=has_reference)

    def keys(self, *, tenant: str | None = None) -> AsyncIterator[wire.KeyInfo]:
        """All keys, newest first, without their secrets."""
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
        """Create a key. The secret is returned only once. Tenant and account are created if missing."""
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
        """Rotate a key. The old key stays valid for the overlap."""
        body = wire.RotateKey(overlap=length(overlap, field="overlap"))
        return await self.request("POST", f"/v1/keys/{segment(key_id)}/rotate", body=body, type=wire.NewKey)

    async def revoke_key(self, key_id: str) -> wire.KeyInfo:
        """Revoke a key immediately."""
        return await self.request("DELETE", f"/v1/keys/{segment(key_id)}", type=wire.KeyInfo)

    async def queues(self) -> list[wire.QueueInfo]:
        """All queues with their status."""
        return (await self.request("GET", "/v1/queues", type=wire.Queues)).data

    async def pause(self, queue: str) -> wire.QueueInfo:
        """Pause a queue: its jobs do not start, running jobs continue."""
        return await self._turn(queue, "pause")

    async def resume(self, queue: str) -> wire.QueueInfo:
        """Resume a paused queue."""
        return await self._turn(queue, "resume")

    async def _turn(self, queue: str, verb: str) -> wire.QueueInfo:
        path = f"/v1/queues/{segment(queue)}/{verb}"
        return await self.request("POST", path, type=wire.QueueInfo, is_repeatable=True)

    async def workers(self) -> list[wire.WorkerInfo]:
        """The fleet workers, and the direct workers that hold leases."""
        return (await self.request("GET", "/v1/workers", type=wire.Workers)).data

    async def worker(self, worker_id: str) -> wire.WorkerInfo:
        """A fleet worker."""
        return await self.request("GET", f"/v1/workers/{segment(worker_id)}", type=wire.WorkerInfo)

    async def approve_worker(self, worker_id: str) -> wire.WorkerInfo:
        """Approve a worker that waits for approval or was revoked."""
        return await self._order(worker_id, "approve")

    async def revoke_worker(self, worker_id: str) -> wire.WorkerInfo:
        """Revoke a worker immediately; its jobs return to the queue."""
        return await self._order(worker_id, "revoke")

    async def drain_worker(self, worker_id: str) -> wire.WorkerInfo:
        """Drain a worker: it finishes its jobs and receives no new ones."""
        return await self._order(worker_id, "drain")

    async def resume_worker(self, worker_id: str) -> wire.WorkerInfo:
        """Resume a draining worker."""
        return await self._order(worker_id, "resume")

    async def _order(self, worker_id: str, verb: str) -> wire.WorkerInfo:
        path = f"/v1/workers/{segment(worker_id)}/{verb}"
        return await self.request("POST", path, type=wire.WorkerInfo, is_repeatable=True)

    async def rotate_worker(
        self, worker_id: str, *, overlap: timedelta | str | float | None = None
    ) -> wire.NewWorkerToken:
        """Rotate the token of a worker. The old token is rejected immediately, or when the overlap ends."""
        body = wire.RotateWorker(overlap=None if overlap is None else length(overlap, field="overlap"))
        path = f"/v1/workers/{segment(worker_id)}/rotate"
        return await self.request("POST", path, body=body, type=wire.NewWorkerToken)

    async def assign_worker(self, worker_id: str, routes: list[str]) -> wire.WorkerInfo:
        """Assign routes to a worker; it finishes the jobs that it holds."""
        path, body = f"/v1/workers/{segment(worker_id)}/routes", wire.AssignRoutes(routes=routes)
        return await self.request("PUT", path, body=body, type=wire.WorkerInfo)

    async def routes(self) -> list[wire.RouteInfo]:
        """The routes of the fleet with their load and workers."""
        return (await self.request("GET", "/v1/routes", type=wire.Routes)).data

    async def scaling(
        self, route: str, *, jobs_per_worker: int = 1, minimum: int = 0, maximum: int = 50, target_wait: float = 60.0
    ) -> wire.Scaling:
        """The desired number of workers of a route."""
        policy = {"jobs_per_worker": jobs_per_worker, "min": minimum, "max": maximum, "target_wait": target_wait}
        return await self.request("GET", f"/v1/scaling/{segment(route)}", params=policy, type=wire.Scaling)

    async def transition(self, job_id: str, state: str, *, tenant: str | None = None) -> wire.State:
        """Move a job to a state along a transition of its lifecycle."""
        path = f"/v1/jobs/{segment(job_id)}/transition"
        body = wire.MakeTransition(state=state)
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
        """Refund an amount of a job's charge, or all that remains. Repeated calls refund once."""
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
        """Change the priority of a waiting job. Jobs with a higher priority start first."""
        path, body = f"/v1/jobs/{segment(job_id)}/priority", wire.SetPriority(priority=priority)
        return await self.request("PUT", path, body=body, params=given({"tenant": tenant}), type=wire.State)

    # Many jobs at once

    def find_jobs(self, wanted: wire.JobFilter | None = None) -> AsyncIterator[wire.JobSummary]:
        """The jobs that match a filter, newest first, without input and output."""
        params: dict[str, Any] = msgspec.to_builtins(wanted or wire.JobFilter())
        return self.pages("/v1/board/jobs", wire.JobSummaries, params)

    async def order(
        self,
        action: wire.BulkOperationAction,
        wanted: wire.JobFilter | None = None,
        *,
        every: bool = False,
        priority: int | None = None,
        format: wire.ExportFormat | None = None,  # noqa: A002 - the name in the API
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> wire.BulkOperation:
        """Start a bulk operation on the jobs that match a filter.

        ``every`` confirms that an empty filter is intended.
        """
        body = wire.MakeBulkOperation(
            action=action,
            filter=wanted or wire.JobFilter(),
            all=every,
            priority=priority,
            format=format,
            reason=reason,
        )
        return await self.request(
            "POST", "/v1/bulk", body=body, type=wire.BulkOperation, idempotency_key=idempotency_key
        )

    async def preview(self, wanted: wire.JobFilter) -> wire.BulkOperationPreview:
        """The number of jobs that match a filter, and some of them."""
        body = wire.PreviewBulkOperation(filter=wanted)
        return await self.request(
            "POST", "/v1/bulk/preview", body=body, type=wire.BulkOperationPreview, is_repeatable=True
        )

    def bulk_operations(
        self, *, state: wire.BulkOperationState | None = None, tenant: str | None = None
    ) -> AsyncIterator[wire.BulkOperation]:
        """The bulk operations, newest first."""
        return self.pages("/v1/bulk", wire.BulkOperations, {"state": state, "tenant": tenant})

    async def bulk_operation(self, operation_id: str) -> wire.BulkOperation:
        """The progress and result of a bulk operation."""
        return await self.request("GET", f"/v1/bulk/{segment(operation_id)}", type=wire.BulkOperation)

    async def abort(self, operation_id: str) -> wire.BulkOperation:
        """Abort a bulk operation before its next job. Changes already made are kept."""
        path = f"/v1/bulk/{segment(operation_id)}/abort"
        return await self.request("POST", path, type=wire.BulkOperation, is_repeatable=True)

    # Limits

    async def limits(self) -> wire.Limits:
        """The limits, with the jobs that run and wait under them."""
        return await self.request("GET", "/v1/limits", type=wire.Limits)

    async def limit(self, name: str) -> wire.LimitInfo:
        """A limit, with the jobs that run and wait under it."""
        return await self.request("GET", f"/v1/limits/{segment(name)}", type=wire.LimitInfo)

    def limit_keys(self, name: str) -> AsyncIterator[wire.LimitKey]:
        """The keys of a limit that were used lately, by value."""
        return self.pages(f"/v1/limits/{segment(name)}/keys", wire.LimitKeys, {})

    async def change_limit(
        self,
        name: str,
        *,
        at_once: int | None = None,
        starts: int | None = None,
        per: timedelta | str | float | None = None,
    ) -> wire.LimitInfo:
        """Change the numbers of a limit, until the app declares others. What is left out has no limit."""
        body = wire.ChangeLimit(at_once=at_once, starts=starts, per=_length(per, "per"))
        path = f"/v1/limits/{segment(name)}"
        return await self.request("PATCH", path, body=body, type=wire.LimitInfo, is_repeatable=True)

    async def reset_limit(self, name: str) -> wire.LimitInfo:
        """Reset a limit to the numbers that the app declares."""
        path = f"/v1/limits/{segment(name)}/reset"
        return await self.request("POST", path, type=wire.LimitInfo, is_repeatable=True)

    async def close_limit(self, name: str, duration: timedelta | str | float, *, value: str = "") -> None:
        """Let no job start under a key of a limit for a while."""
        body = wire.CloseLimit(duration=length(duration, field="duration"), value=value)
        await self.request("POST", f"/v1/limits/{segment(name)}/close", body=body, is_repeatable=True)

    async def open_limit(self, name: str, *, value: str = "") -> None:
        """Let jobs start under a key that was closed."""
        body = wire.OpenLimit(value=value)
        await self.request("POST", f"/v1/limits/{segment(name)}/open", body=body, is_repeatable=True)

    # Schedules

    def schedules(
        self,
        *,
        kind: str | None = None,
        name: str | None = None,
        source: wire.ScheduleSource | None = None,
        state: wire.ScheduleState | None = None,
        account: str | None = None,
        tenant: str | None = None,
    ) -> AsyncIterator[wire.ScheduleInfo]:
        """The schedules, oldest first, without their inputs."""
        params = {"kind": kind, "name": name, "source": source, "state": state, "account": account, "tenant": tenant}
        return self.pages("/v1/schedules", wire.Schedules, params)

    async def schedule(self, schedule_id: str, *, tenant: str | None = None) -> wire.ScheduleDetail:
        """A schedule with its input, its next ten due times and its last fires."""
        return await self.request("GET", _schedule(schedule_id), params={"tenant": tenant}, type=wire.ScheduleDetail)

    async def make_schedule(
        self,
        name: str,
        kind: str,
        input: Mapping[str, Any] | None = None,
        *,
        cron: str | None = None,
        every: timedelta | str | float | None = None,
        at: datetime | None = None,
        zone: str | None = None,
        jitter: timedelta | str | float | None = None,
        due_field: str | None = None,
        overlap: Overlap = "queue",
        catch_up: CatchUp = "last",
        catch_up_max: int = 100,
        priority: int | None = None,
        expires_in: timedelta | str | float | None = None,
        tags: Mapping[str, str] | None = None,
        account: str | None = None,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> wire.ScheduleDetail:
        """Create a schedule that submits jobs by a cron expression in a time zone, at intervals, or once.

        The kind, the input and the timing are checked; nothing is charged until a job is submitted. ``due_field`` is
        the member of the input that is set to the due time.
        """
        body = wire.MakeSchedule(
            name=name,
            kind=kind,
            input=dict(input or {}),
            cron=cron,
            every=_length(every, "every"),
            at=at,
            zone=zone,
            jitter=_length(jitter, "jitter"),
            due_field=due_field,
            overlap=overlap,
            catch_up=catch_up,
            catch_up_max=catch_up_max,
            priority=priority,
            expires_in=_length(expires_in, "expires_in"),
            tags=None if tags is None else dict(tags),
            account=account,
        )
        return await self.request(
            "POST",
            "/v1/schedules",
            body=body,
            params={"tenant": tenant},
            type=wire.ScheduleDetail,
            idempotency_key=idempotency_key or new_key(),
        )

    async def update_schedule(
        self, schedule_id: str, *, tenant: str | None = None, **changes: Any
    ) -> wire.ScheduleDetail:
        """Update a schedule; omitted arguments are not changed. The arguments are those of :meth:`make_schedule`."""
        for name in ("every", "jitter", "expires_in"):
            if changes.get(name) is not None:
                changes[name] = length(changes[name], field=name)
        return await self.request(
            "PATCH", _schedule(schedule_id), body=changes, params={"tenant": tenant}, type=wire.ScheduleDetail
        )

    async def pause_schedule(self, schedule_id: str, *, tenant: str | None = None) -> wire.ScheduleDetail:
        """Pause a schedule. Due times that pass meanwhile are not made up for."""
        return await self._turn_schedule(schedule_id, "pause", tenant)

    async def resume_schedule(self, schedule_id: str, *, tenant: str | None = None) -> wire.ScheduleDetail:
        """Resume a paused schedule with its next due time from now on."""
        return await self._turn_schedule(schedule_id, "resume", tenant)

    async def _turn_schedule(self, schedule_id: str, verb: str, tenant: str | None) -> wire.ScheduleDetail:
        path = _schedule(schedule_id, verb)
        return await self.request("POST", path, params={"tenant": tenant}, type=wire.ScheduleDetail, is_repeatable=True)

    async def delete_schedule(self, schedule_id: str, *, tenant: str | None = None) -> None:
        """Delete a schedule. Its jobs remain."""
        await self.request("DELETE", _schedule(schedule_id), params={"tenant": tenant})

    async def run_schedule(
        self, schedule_id: str, *, tenant: str | None = None, idempotency_key: str | None = None
    ) -> wire.Fire:
        """Submit a job of a schedule now, whatever its due times and its state are."""
        return await self.request(
            "POST",
            _schedule(schedule_id, "run"),
            params={"tenant": tenant},
            type=wire.Fire,
            idempotency_key=idempotency_key or new_key(),
        )

    async def backfill_schedule(
        self,
        schedule_id: str,
        since: datetime | str,
        until: datetime | str | None = None,
        *,
        tenant: str | None = None,
    ) -> wire.Backfilled:
        """Fire the due times of a past period that have no job: they were missed, skipped or refused."""
        body = wire.BackfillSchedule(since=_instant(since), until=None if until is None else _instant(until))
        path = _schedule(schedule_id, "backfill")
        return await self.request(
            "POST", path, body=body, params={"tenant": tenant}, type=wire.Backfilled, is_repeatable=True
        )

    async def preview_backfill(
        self,
        schedule_id: str,
        since: datetime | str,
        until: datetime | str | None = None,
        *,
        tenant: str | None = None,
    ) -> wire.Backfilled:
        """Count the due times that a backfill would fire, without firing them."""
        body = wire.BackfillSchedule(since=_instant(since), until=None if until is None else _instant(until))
        path = _schedule(schedule_id, "backfill/preview")
        return await self.request(
            "POST", path, body=body, params={"tenant": tenant}, type=wire.Backfilled, is_repeatable=True
        )

    def fires(
        self, schedule_id: str, *, outcome: wire.FireOutcome | None = None, tenant: str | None = None
    ) -> AsyncIterator[wire.Fire]:
        """What a schedule did at its due times, the last one first."""
        return self.pages(_schedule(schedule_id, "fires"), wire.Fires, {"outcome": outcome, "tenant": tenant})

    async def preview_schedule(
        self,
        *,
        cron: str | None = None,
        every: timedelta | str | float | None = None,
        at: datetime | None = None,
        zone: str | None = None,
        count: int = 10,
    ) -> list[datetime]:
        """The next due times of a schedule that is not created."""
        body = wire.PreviewSchedule(cron=cron, every=_length(every, "every"), at=at, zone=zone, count=count)
        preview = await self.request(
            "POST", "/v1/schedules/preview", body=body, type=wire.SchedulePreview, is_repeatable=True
        )
        return preview.upcoming

    # Webhooks

    async def endpoints(self, *, tenant: str | None = None) -> list[wire.EndpointInfo]:
        """The webhook endpoints of a tenant, without their secrets."""
        return [found async for found in self.pages("/v1/endpoints", wire.Endpoints, {"tenant": tenant})]

    async def endpoint(self, endpoint_id: str, *, tenant: str | None = None) -> wire.EndpointInfo:
        """A webhook endpoint."""
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
        """Create a webhook endpoint. The secret is returned only once. Without a URL, deliveries are pulled."""
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
        """Update url, events, kinds, description or limit; omitted arguments are not changed."""
        return await self.request(
            "PATCH", _endpoint(endpoint_id), body=changes, params={"tenant": tenant}, type=wire.EndpointInfo
        )

    async def rotate_endpoint(
        self, endpoint_id: str, *, overlap: timedelta | str | float = "24h", tenant: str | None = None
    ) -> wire.NewEndpoint:
        """Rotate the secret of an endpoint. During the overlap, requests are signed with both secrets."""
        body = wire.RotateEndpoint(overlap=length(overlap, field="overlap"))
        path = _endpoint(endpoint_id, "rotate")
        return await self.request("POST", path, body=body, params={"tenant": tenant}, type=wire.NewEndpoint)

    async def disable_endpoint(
        self, endpoint_id: str, reason: str = "by an operator", *, tenant: str | None = None
    ) -> wire.EndpointInfo:
        """Disable an endpoint; nothing is sent until it is enabled."""
        body, path = wire.DisableEndpoint(reason=reason), _endpoint(endpoint_id, "disable")
        return await self.request(
            "POST", path, body=body, params={"tenant": tenant}, type=wire.EndpointInfo, is_repeatable=True
        )

    async def enable_endpoint(self, endpoint_id: str, *, tenant: str | None = None) -> wire.EndpointInfo:
        """Enable a disabled endpoint."""
        path = _endpoint(endpoint_id, "enable")
        return await self.request("POST", path, params={"tenant": tenant}, type=wire.EndpointInfo, is_repeatable=True)

    async def delete_endpoint(self, endpoint_id: str, *, tenant: str | None = None) -> None:
        """Delete an endpoint; its pending deliveries are not sent."""
        await self.request("DELETE", _endpoint(endpoint_id), params={"tenant": tenant})

    async def test_endpoint(
        self, endpoint_id: str, event: str = "job.succeeded", *, tenant: str | None = None
    ) -> wire.Delivery:
        """Send a test event of a fictitious job to an endpoint."""
        body, path = wire.TriggerEvent(event=event), _endpoint(endpoint_id, "test")
        return await self.request("POST", path, body=body, params={"tenant": tenant}, type=wire.Delivery)

    async def endpoint_stats(
        self, endpoint_id: str, *, since: str = "24h", tenant: str | None = None
    ) -> wire.EndpointStats:
        """The delivery statistics of an endpoint over a period."""
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
        """The deliveries, newest first."""
        params = {"endpoint": endpoint, "job": job, "state": state, "tenant": tenant}
        return self.pages("/v1/deliveries", wire.Deliveries, params)

    async def delivery(self, delivery_id: str, *, tenant: str | None = None) -> wire.DeliveryLog:
        """A delivery with its attempts: request, response and duration."""
        path = f"/v1/deliveries/{segment(delivery_id)}"
        return await self.request("GET", path, params={"tenant": tenant}, type=wire.DeliveryLog)

    async def resend(self, delivery_id: str, *, tenant: str | None = None) -> wire.Delivery:
        """Resend a delivery with the same id and body and a new signature."""
        path = f"/v1/deliveries/{segment(delivery_id)}/resend"
        return await self.request("POST", path, params={"tenant": tenant}, type=wire.Delivery)

    async def resend_since(
        self, endpoint_id: str, since: datetime, *, only_failed: bool = True, tenant: str | None = None
    ) -> int:
        """Resend the failed deliveries of an endpoint since a time, or all; returns their number."""
        body, path = wire.ResendSince(since=since, only_failed=only_failed), _endpoint(endpoint_id, "resend")
        resent = await self.request("POST", path, body=body, params={"tenant": tenant}, type=wire.Resent)
        return resent.count

    async def pull(self, endpoint_id: str, limit: int = 10, *, tenant: str | None = None) -> list[wire.SignedRequest]:
        """Pull the pending deliveries of an endpoint without a URL, to send and report them yourself."""
        body, path = wire.PullDeliveries(limit=limit), _endpoint(endpoint_id, "pull")
        pulled = await self.request(
            "POST", path, body=body, params={"tenant": tenant}, type=wire.SignedRequests, is_repeatable=True
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
        """Report the result of a pulled delivery."""
        result = wire.ReportDelivery(
            status=status, error=error, seconds=seconds, headers=dict(headers or {}), body=body
        )
        path = f"/v1/deliveries/{segment(delivery_id)}/report"
        await self.request("POST", path, body=result, params={"tenant": tenant}, is_repeatable=True)

    # Audit log and verification

    def audit(self, *, tenant: str | None = None) -> AsyncIterator[wire.AuditEntry]:
        """The operator actions in the audit log, newest first."""
        return self.pages("/v1/audit", wire.Audit, {"tenant": tenant})

    async def verify(self) -> wire.Verification:
        """Check every invariant."""
        return await self.request("GET", "/v1/verify", type=wire.Verification)


def _endpoint(endpoint_id: str, *verb: str) -> str:
    return "/".join(("/v1/endpoints", segment(endpoint_id), *verb))


def _schedule(schedule_id: str, *verb: str) -> str:
    return "/".join(("/v1/schedules", segment(schedule_id), *verb))


def _length(given: timedelta | str | float | None, field: str) -> str | float | None:
    return None if given is None else length(given, field=field)


def _instant(given: datetime | str) -> str:
    return given if isinstance(given, str) else given.isoformat()
