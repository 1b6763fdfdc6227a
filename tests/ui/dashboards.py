"""A running ``millpond up`` with something to see, and a browser that is signed in to its dashboard."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from playwright.async_api import expect

from tests.acceptance.processes import shell, until
from tests.browsers import opened
from tests.cli.ups import up
from tests.doubles.receivers import receivers
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from playwright.async_api import Browser, Locator, Page, ViewportSize

    from tests.databases import DatabaseServer
    from tests.doubles.receivers import Receivers

PRODUCT = Path(__file__).with_name("product.py")
DESKTOP: ViewportSize = {"width": 1440, "height": 900}
WALL: ViewportSize = {"width": 2560, "height": 1440}
AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
_CREDITS = 1_000
_ENVIRONMENT = {
    "MILLPOND_RATE_LIMIT": "100000",
    "MILLPOND_GRACE": "1s",
    "MILLPOND_SLOTS": "40",
    "MILLPOND_REFRESH": "1s",
}
_numbers = itertools.count(1)


@dataclass(slots=True)
class Caller:
    """Somebody with a key, who speaks plain HTTP."""

    http: httpx2.AsyncClient
    key: str
    tenant: str | None = None
    account: str | None = None

    @property
    def query(self) -> str:
        """Whose jobs the playground shows: the part of its address that names them."""
        return f"for={self.tenant}&account={self.account}"

    async def send(self, method: str, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.key}"} | options.pop("headers", {})
        return await self.http.request(method, f"/v1/{path}", json=body, headers=headers, **options)

    async def act(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = await self.send(method, path, body, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def get(self, path: str, **query: Any) -> Any:
        return await self.act("GET", path, params=query)

    async def submit(self, kind: str, given: Mapping[str, Any] | None = None, **more: Any) -> str:
        """The id of a new job."""
        return (await self.act("POST", "jobs", {"kind": kind, "input": dict(given or {})} | more))["id"]

    async def job(self, job_id: str) -> Any:
        return await self.get(f"jobs/{job_id}")

    async def until(self, job_id: str, state: str) -> Any:
        """The job, once its state, its phase or its outcome is this one; an ended one is not waited for."""
        found: dict[str, Any] = {}

        async def is_there() -> bool:
            nonlocal found
            found = await self.job(job_id)
            now = (found["state"], found["phase"], found["outcome"])
            assert state in now or found["outcome"] is None, f"it is {found['state']}, and was to be {state}: {found}"
            return state in now

        await until(is_there, 20)
        return found

    async def done(self, kind: str, given: Mapping[str, Any] | None = None, **more: Any) -> Any:
        """A job of this kind that has ended, however it did."""
        job_id = await self.submit(kind, given, **more)

        async def is_over() -> bool:
            return (await self.job(job_id))["outcome"] is not None

        await until(is_over, 20)
        return await self.job(job_id)


@dataclass(slots=True)
class Dash:
    """A server that runs, who may do what there, and where its webhooks may go.

    It is one for all tests of the dashboard: whoever wants to count has a tenant of its own (``client()``).
    """

    url: str
    admin_key: str
    http: httpx2.AsyncClient
    there: Receivers
    browser: Browser
    dsn: str
    folder: Path
    """For files that jobs wait for."""
    keys: dict[tuple[str, str | None], str] = field(default_factory=dict)

    @property
    def ui(self) -> str:
        return f"{self.url}/ui"

    @property
    def admin(self) -> Caller:
        return Caller(self.http, self.admin_key)

    async def key(self, scope: str, tenant: str | None = None) -> str:
        """A key of this scope; of all tenants, if none is named."""
        if scope == "admin" and tenant is None:
            return self.admin_key
        if (scope, tenant) not in self.keys:
            whose = {} if tenant is None else {"tenant": tenant}
            made = await self.admin.act("POST", "keys", {"scope": scope, "name": f"test {scope}"} | whose)
            self.keys[scope, tenant] = made["key"]
        return self.keys[scope, tenant]

    async def client(self, name: str = "shop", *, credits: int = _CREDITS) -> Caller:  # noqa: A002 - that is the word
        """A client of a tenant that is new, with credits; its account is ``main``."""
        tenant = f"{name}-{next(_numbers)}"
        await self.admin.act("POST", "tenants", {"tenant": tenant})
        await self.admin.act("POST", f"tenants/{tenant}/accounts", {"account": "main"})
        if credits:
            given = {"tenant": tenant, "account": "main", "amount": credits, "reason": "to begin with"}
            await self.admin.act("POST", "grants", given)
        made = await self.admin.act("POST", "keys", {"scope": "client", "tenant": tenant, "account": "main"})
        return Caller(self.http, made["key"], tenant, "main")

    async def sign_in(self, page: Page, scope: str = "admin", *, tenant: str | None = None) -> None:
        """Give the browser of a page a session; the page itself is loaded again."""
        answer = await page.request.post(f"{self.ui}/session", data={"key": await self.key(scope, tenant)})
        assert answer.status == 201, await answer.text()
        await page.reload()

    @asynccontextmanager
    async def page(
        self,
        path: str = "/",
        scope: str = "admin",
        *,
        tenant: str | None = None,
        dark: bool = False,
        narrow: bool = False,
        size: ViewportSize = DESKTOP,
    ) -> AsyncIterator[Page]:
        """A page of the dashboard (``/jobs?state=failed``), for one who is signed in with this scope."""
        async with opened(self.browser, f"{self.ui}/favicon", dark=dark, narrow=narrow, size=size) as page:
            key = await self.key(scope, tenant)
            answer = await page.request.post(f"{self.ui}/session", data={"key": key})
            assert answer.status == 201, await answer.text()
            await page.goto(f"{self.ui}{path}")
            yield page

    @asynccontextmanager
    async def paused(self, *queues: str) -> AsyncIterator[None]:
        """Nobody takes jobs from these queues meanwhile."""
        for queue in queues:
            await self.admin.act("POST", f"queues/{queue}/pause")
        try:
            yield
        finally:
            for queue in queues:
                await self.admin.act("POST", f"queues/{queue}/resume")

    def file(self) -> Path:
        """A name for a file that a job may wait for."""
        return self.folder / f"go-{next(_numbers)}"


@asynccontextmanager
async def running_dash(
    server: DatabaseServer, browser: Browser, folder: Path, *words: str | Path, **environment: str
) -> AsyncIterator[Dash]:
    """``millpond up`` with these words, on a database of its own."""
    async with server.database() as dsn, receivers() as there:
        with shell(folder, dsn) as sh:
            running = await up(sh, *words, **_ENVIRONMENT | environment)
            limits = httpx2.Limits(max_connections=None)
            async with httpx2.AsyncClient(base_url=running.url, timeout=PATIENCE, limits=limits) as http:
                yield Dash(running.url, running.ready["admin_key"], http, there, browser, dsn, folder)


async def shows_traceback(place: Locator) -> None:
    """It is there of the kind `broken`, folded away until somebody asks for it."""
    text = place.locator(".traceback pre")
    await expect(text).to_be_hidden()
    await place.locator(".traceback summary").click()
    await expect(text).to_contain_text("Traceback (most recent call last):")
    await expect(text).to_contain_text('raise ValueError(f"there are {number} bytes left')


async def serious(page: Page) -> list[str]:
    """What axe-core finds on the page as it stands that is serious or worse, in a line each."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text("utf-8"))  # not as a script of the page, which its policy would forbid
    found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{each['id']}: {each['help']}: {', '.join(node['html'][:160] for node in each['nodes'][:3])}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
