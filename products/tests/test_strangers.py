"""Every read of a product that takes an id, with the id of another tenant: nothing is shown, also without one wall.

The walls are those of the native API (see tests/api/test_strangers.py), and the conditions in the products' own
statements. A route that is added has to be added here, too.
"""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from products.tests.deployments import NOWHERE, Deployment, running_deployment

from millpond.store.db import Database
from millpond_products.catalog import PRODUCTS
from millpond_products.effects import videos
from millpond_products.partner import lease_requests, projects, resources, social_accounts
from tests.api.test_strangers import WALLS, lose_conditions
from tests.factories import ACCOUNT, STRANGER, TENANT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from millpond.store.queries import NamedQuery

LAMP: Final = {"name": "Lumen Desk Lamp", "price": "89", "currency": "EUR"}
THINGS: Final = {
    "projectId": "project",
    "containerId": "container",
    "influencerId": "influencer",
    "assetId": "asset",
    "leaseId": "lease",
    "endpointId": "endpoint",
    "video_id": "video",
    "file_id": "file",
    "rule_id": "rule",
    "id": "job",
    "job_id": "job",
    "jobId": "job",
}
"""What the parameters of paths are the ids of; each product has a job of its own."""
SHARED: Final = {"part", "code", "effect", "workflow", "worker"}
"""The parameters of what belongs to no tenant."""
LISTS: Final = {
    "/actions/api/jobs": "actions job",
    "/effects/api/videos": "video",
    "/effects/api/ai-jobs": "effects job",
    "/effects/api/admin/ai-jobs": "effects job",
    "/guard/v1/rules": "rule",
    "/partner/v1/projects": "project",
    "/partner/v1/jobs": "partner job",
    "/partner/v1/webhook-endpoints": "endpoint",
    "/partner/v1/admin/tiktok-leases": "lease",
    "/studio/api/jobs": "studio job",
}
"""Lists in which an id would appear."""
STATEMENTS: Final = (videos.SQL, projects.SQL, resources.SQL, lease_requests.SQL, social_accounts.SQL)
_CONDITION: Final = re.compile(r"\b[lprsv]\.tenant = c\.tenant\b")
_PARAMETER: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Read:
    """A read of single things of a tenant."""

    product: str
    path: str
    who: frozenset[str]

    def place(self, ids: dict[str, str]) -> str:
        things = {name: self.thing(name) for name in _PARAMETER.findall(self.path)}
        return f"/{self.product}{self.path.format(**{name: ids[thing] for name, thing in things.items()})}"

    def thing(self, parameter: str) -> str:
        thing = THINGS[parameter]
        return f"{self.product} job" if thing == "job" else thing


READS: Final = [
    Read(product.name, route.path, route.who)
    for product in PRODUCTS
    for route in product.routes
    if route.method == "GET" and not SHARED.issuperset(_PARAMETER.findall(route.path))
]


@pytest.fixture(params=WALLS)
async def deployment(
    request: pytest.FixtureRequest, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Deployment]:
    """All products, with one of the walls taken away, or none."""
    async with AsyncExitStack() as stack:
        deployment = await stack.enter_async_context(running_deployment(dsn, tmp_path))
        db = deployment.engine.db
        if request.param == "no condition in the statement":
            await lose_conditions(db)
            _lose_conditions_of_products(monkeypatch)
        if request.param == "no row-level security":
            reader = await Database.open(dsn, size=2)
            stack.push_async_callback(reader.close)
            monkeypatch.setattr(db, "_reader", reader)
            stack.callback(monkeypatch.undo)
        yield deployment


def _lose_conditions_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the conditions out of the statements that clients' reads have, and leave their plans as they are."""
    lost = 0
    for statements in STATEMENTS:
        for name, query in statements.items():
            text, number = _CONDITION.subn("c.tenant is not null", query.text)
            monkeypatch.setitem(cast("dict[str, NamedQuery]", statements), name, replace(query, text=text))
            lost += number
    assert lost == 11


async def things(deployment: Deployment, keys: dict[str, str]) -> dict[str, str]:
    """The ids of one of everything that a tenant may have."""
    engine = deployment.engine

    async def post(path: str, body: Any, scope: str = "client") -> Any:
        answer = await deployment.http.post(path, json=body, headers={"Authorization": f"Bearer {keys[scope]}"})
        assert answer.status_code < 300, answer.text
        return answer.json()

    await engine.grant(TENANT, ACCOUNT, 1_000)
    action = (await post("/actions/api/jobs", {"action": "http-request", "input": {"url": NOWHERE}}))["id"]
    await engine.cancel(TENANT, action)  # its stream ends
    file = await post("/effects/api/videos/uploads", {"filename": "in.png", "mime_type": "image/png", "size": 1})
    put = await deployment.http.put(file["upload_url"], content=b"x", headers=file["upload_headers"])
    assert put.status_code == 200, put.text
    video = (await post("/effects/api/videos", {"original_file_id": file["file"]["id"]}))["id"]
    ordered = {"effect_id": "invert", "video_id": video, "idempotency_key": "one"}
    message = {"message_input": "Hi", "webhook_url": NOWHERE}
    rule = {"name": "No links", "matcher": {"type": "keywords", "words": ["link"]}}
    project = (await post("/partner/v1/projects", {"name": "Lumen"}))["projectId"]
    own = f"/partner/v1/projects/{project}"
    content = await post(f"{own}/content", {"brief": "Summer", "images": 1})
    asset = await engine.artifacts.save(TENANT, ACCOUNT, name="x.png", content_type="image/png", data=b"x")
    return {
        "actions job": action,
        "file": file["file"]["id"],
        "video": video,
        "effects job": (await post("/effects/api/ai-jobs", ordered))["id"],
        "guard job": (await post("/guard/v1/jobs", message))["job_id"],
        "rule": (await post("/guard/v1/rules", rule, "admin"))["id"],
        "project": project,
        "container": content["containerId"],
        "partner job": content["jobId"],
        "influencer": (await post(f"{own}/influencers", {"brief": "A cook"}))["influencerId"],
        "asset": asset.id,
        "lease": (await post(f"{own}/tiktok-leases", {"country": "de"}))["leaseId"],
        "endpoint": (await post("/partner/v1/webhook-endpoints", {"url": NOWHERE}))["endpointId"],
        "studio job": (await post("/studio/api/generate/copy", {"product": LAMP}))["job_id"],
    }


async def test_no_read_of_a_product_shows_a_stranger_another_tenants_things(deployment: Deployment) -> None:
    owners, strangers = [
        {
            scope: await deployment.key(scope=scope, tenant=tenant, account=ACCOUNT if scope == "client" else None)
            for scope in ("client", "viewer", "operator", "admin")
        }
        for tenant in (TENANT, STRANGER)
    ]
    ids = await things(deployment, owners)
    theirs = {"Authorization": f"Bearer {strangers['client']}"}
    made = await deployment.http.post("/partner/v1/projects", json={"name": "Mine"}, headers=theirs)
    mine = ids | {"project": made.json()["projectId"]}
    response: dict[str, Any] = {}

    async def get(place: str, key: str) -> Any:
        return await deployment.http.get(place, headers={"Authorization": f"Bearer {key}"})

    for read in READS:
        owner = owners["client" if "client" in read.who else "admin"]
        answer = await get(read.place(ids), owner)
        assert answer.status_code in (200, 302), (read, answer.text)
        for scope, key in strangers.items():
            for place in {read.place(ids), read.place(mine)}:
                answer = await get(place, key)
                if answer.status_code not in (403, 404) and not _is_own(place, mine, answer):
                    response[f"{scope}: {place}"] = answer.text
    for path, thing in LISTS.items():
        is_admin = "/admin/" in path or path == "/guard/v1/rules"
        assert ids[thing] in (await get(path, owners["admin" if is_admin else "client"])).text, path
        for scope, key in strangers.items():
            answer = await get(path, key)
            if answer.status_code != 403 and ids[thing] in answer.text:
                response[f"{scope}: {path}"] = answer.text
    assert response == {}


def _is_own(place: str, mine: dict[str, str], answer: Any) -> bool:
    """Whether this is of a stranger's own project, and names nothing of the other tenant's."""
    return mine["project"] in place and not any(
        each in answer.text for thing, each in mine.items() if thing != "project"
    )
