"""The fleet in a real browser: who is there and what each is at; drained, resumed, bound, rotated, revoked, approved.

Pictures of what is seen lie in build/ui afterwards.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from playwright.async_api import expect

from millpond import ids
from tests.ui.actions import confirm, pictures, shown_once
from tests.ui.dashboards import serious

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.ui.dashboards import Dash

pytestmark = pytest.mark.slow

BEAT = 0.5
"""Seconds; the server's leases are short."""


@dataclass(slots=True)
class Machine:
    """A worker of the fleet that speaks plain HTTP, as one in another language would."""

    dash: Dash
    id: str
    name: str
    token: str
    held: list[dict[str, Any]]

    async def call(self, verb: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = await self.dash.http.post(f"/v1/worker/{verb}", json=body or {}, headers=headers)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def poll(self) -> dict[str, Any]:
        (job,) = (await self.call("poll", {"want": 1, "wait": 10}))["jobs"]
        self.held.append({"job_id": job["job_id"], "lease_token": job["lease_token"]})
        return job

    async def note(self, job: dict[str, Any], *notes: dict[str, Any]) -> None:
        named = {"job_id": job["job_id"], "lease_token": job["lease_token"]}
        numbered = [{"number": number, **note} for number, note in enumerate(notes, 1)]
        await self.call("note", {**named, "notes": numbered})

    async def complete(self, job: dict[str, Any]) -> None:
        self.held.clear()
        await self.call("complete", {"job_id": job["job_id"], "lease_token": job["lease_token"], "output": {}})

    async def beat(self) -> None:
        while True:
            with suppress(AssertionError):  # It may have been thrown out meanwhile.
                await self.call("heartbeat", {"jobs": self.held})
            await asyncio.sleep(BEAT)


@asynccontextmanager
async def machine(dash: Dash, name: str, *, route: str = "gpu", slots: int = 2) -> AsyncIterator[Machine]:
    secret = (await dash.admin.act("POST", "keys", {"scope": "worker", "name": "gpu fleet"}))["key"]
    about = {"gpu": "NVIDIA L4", "vram_gb": 24, "models": ["flux-dev", "sdxl"], "version": "1.4.2"}
    body = {"worker": name, "routes": [route], "slots": slots, "capabilities": about}
    answer = await dash.http.post("/v1/worker/register", json=body, headers={"X-Fleet-Secret": secret})
    assert answer.status_code == 201, answer.text
    response = answer.json()
    made = Machine(dash, response["id"], name, response["token"], [])
    beating = asyncio.create_task(made.beat())
    try:
        yield made
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
        await dash.admin.send("POST", f"workers/{made.id}/approve")
        with suppress(AssertionError):
            await made.call("deregister")


async def status(dash: Dash, worker: Machine) -> str:
    return (await dash.admin.get(f"workers/{worker.id}"))["status"]


async def test_a_worker_is_watched_and_steered(dash: Dash) -> None:
    client = await dash.client("scenes")
    async with machine(dash, "gpu-7") as worker, dash.page("/fleet") as page:
        row = page.get_by_role("row").filter(has_text="gpu-7")
        await expect(row).to_contain_text("idle")
        # It is given a job, and is at it.
        job_id = await client.submit("render", {"scene": "a pier"})
        job = await worker.poll()
        assert job["job_id"] == job_id
        await worker.note(job, {"type": "stage", "stage": "sampling"}, {"type": "progress", "value": 0.6})
        await expect(row).to_contain_text("sampling")
        await expect(row.get_by_role("link", name="render")).to_be_visible()
        await expect(row).to_contain_text("1 / 2")
        assert await serious(page) == []
        await pictures(page, "fleet-full")
        # Its own page says more.
        await row.get_by_role("link", name="gpu-7").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("gpu-7")
        await expect(page.get_by_role("group", name="capabilities")).to_contain_text("NVIDIA L4")
        await expect(page.get_by_role("table", name="Current jobs")).to_contain_text("sampling")
        # Drain: what it holds it finishes.
        await page.get_by_role("button", name="Drain", exact=True).click()
        await expect(page.get_by_role("dialog")).to_contain_text("It holds 1 job: it finishes them.")
        await confirm(page, "Drain")
        await expect(page.locator(".page-aside")).to_contain_text("draining")
        assert await status(dash, worker) == "draining"
        await worker.complete(job)
        assert (await client.until(job_id, "succeeded"))["captured"] == 5
        await expect(page.get_by_role("table", name="Recent jobs")).to_contain_text("completed")
        await expect(page.get_by_role("table", name="Operator actions")).to_contain_text("drained")
        assert await serious(page) == []
        await pictures(page, "fleet-worker")
        await page.get_by_role("button", name="Resume", exact=True).click()
        await confirm(page, "Resume")
        await expect(page.locator(".page-aside")).to_contain_text("idle")
        # Other routes; one that is unknown is refused in the dialog.
        await page.get_by_role("button", name="Routes", exact=True).click()
        await page.get_by_label("Other routes").fill("nowhere")
        await confirm(page, "Assign")
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("nowhere")
        await page.get_by_label("Other routes").fill("")
        await page.get_by_label("upscale", exact=True).check()
        await confirm(page, "Assign")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert (await dash.admin.get(f"workers/{worker.id}"))["routes"] == ["gpu", "upscale"]


async def test_a_token_is_rotated_and_a_worker_thrown_out_and_let_in_again(dash: Dash) -> None:
    async with machine(dash, "gpu-8") as worker, dash.page(f"/fleet/{worker.id}") as page:
        await page.get_by_role("button", name="Rotate token").click()
        await confirm(page, "Rotate")
        token = await shown_once(page, "New token of gpu-8")
        assert token != worker.token
        await worker.call("heartbeat")  # the old one is good for a while
        worker.token = token
        await worker.call("heartbeat")
        await page.get_by_role("button", name="Revoke").click()
        await expect(page.get_by_role("dialog")).to_contain_text("It holds no jobs.")
        await confirm(page, "Revoke")
        await expect(page.locator(".page-aside")).to_contain_text("revoked")
        assert await status(dash, worker) == "revoked"
        with pytest.raises(AssertionError, match="worker_revoked"):
            await worker.call("heartbeat")
        await page.get_by_role("button", name="Approve").click()
        await confirm(page, "Approve")
        await expect(page.locator(".page-aside")).to_contain_text("idle")
        await worker.call("heartbeat")
        done = [entry["action"] for entry in (await dash.admin.get("audit", subject=worker.id))["data"]]
        assert done[:3] == ["worker.approved", "worker.revoked", "worker.rotated"]


async def test_a_worker_that_is_heard_from_and_asks_for_nothing_is_deaf(dash: Dash) -> None:
    client = await dash.client("unheard")
    async with machine(dash, "gpu-5", route="upscale") as other, machine(dash, "gpu-6") as worker:
        job_id = await client.submit("render")
        connection = await asyncpg.connect(dash.dsn)
        try:  # as if both had been there for long; what is written is written, unless one says so
            await connection.execute("set session_replication_role = replica")
            earlier = "update millpond.events set at = at - interval '2 minutes' where job_id = $1"
            await connection.execute(earlier, ids.parse("job", job_id))
            await connection.execute("update millpond.workers set registered_at = registered_at - interval '1 hour'")
        finally:
            await connection.close()
        async with dash.page("/fleet") as page:
            row = page.get_by_role("row").filter(has_text="gpu-6")
            await expect(row).to_contain_text("not polling")
            await expect(page.get_by_role("row").filter(has_text="gpu-5")).not_to_contain_text("not polling")
            await expect(page.get_by_role("alert")).to_contain_text("Its poll loop may hang")
            await pictures(page, "fleet-deaf")
            await worker.complete(await worker.poll())
            await client.until(job_id, "succeeded")
            await expect(row).not_to_contain_text("not polling")
            assert await status(dash, other) == "idle"


async def test_workers_beside_the_database_are_there_too(dash: Dash) -> None:
    client = await dash.client("near")
    async with dash.page("/fleet") as page:
        await expect(page.get_by_text("millpond worker app.py", exact=True)).to_be_attached()
        await pictures(page, "fleet-empty")
        job_id = await client.submit("slow")
        row = page.get_by_role("row").filter(has_text="direct")
        await expect(row).to_contain_text("working")
        await row.get_by_role("link").first.click()
        await expect(page.get_by_role("table", name="Current jobs")).to_contain_text(client.tenant or "")
        await expect(page.get_by_role("button", name="Drain")).to_have_count(1)
        await expect(page.get_by_role("button", name="Revoke")).to_have_count(0)  # it has no token
        await client.act("POST", f"jobs/{job_id}/cancel")
        await client.until(job_id, "canceled")


async def test_a_viewer_sees_what_it_may_not_do(dash: Dash) -> None:
    async with machine(dash, "gpu-9") as worker, dash.page("/fleet", "viewer") as page:
        row = page.get_by_role("row").filter(has_text="gpu-9")
        await expect(row.get_by_role("button", name="Drain")).to_be_disabled()
        await row.focus()
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{dash.ui}/fleet/{worker.id}")
        for name in ("Drain", "Routes", "Rotate token", "Revoke"):
            button = page.get_by_role("button", name=name, exact=True)
            await expect(button).to_be_disabled()
            await expect(button).to_have_attribute("title", "This requires a key of scope operator.")
        # Nobody who was there is there for ever.
        await page.goto(f"{dash.ui}/fleet/worker_00000000000000000000000000")
        await expect(page.get_by_text("Worker not found.")).to_be_visible()
