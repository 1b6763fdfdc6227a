"""The OpenAPI document of each product says what the server does: schemathesis tries to find where it does not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.deployments import NOWHERE, Deployment, running_deployment

from millpond_products.catalog import PRODUCTS
from tests.api.documents import CONFIG, HOOKS, examined
from tests.factories import TENANT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from tests.databases import DatabaseServer

EXAMPLES = 2
"""For each operation, beside those that its schema itself suggests. By hand, try more of them."""
ORDER = """
[[operations]] # nobody can guess the order of all rules that there are
include-path = "/v1/rules/reorder"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "422"]
"""
PRODUCT_HOOKS = '''
import json
from pathlib import Path

SPARE = {"effect", "worker", "workflow"}  # of which others are needed as they are: the active workflow, the worker
NOWHERE, KNOWN = json.loads(Path("known.json").read_text())
LAMP = {"name": "Lumen Desk Lamp"}
GRAPH = {"1": {"class_type": "LoadImage", "inputs": {"image": "{{input}}"}}}
INPUTS = {
    "http-request": {"url": NOWHERE},
    "run-command": {"command": "echo", "arguments": ["hello"]},
    "trigger-github-workflow": {"repository": "octo-org/hello-world", "workflow": "ci.yml"},
}
MATCHERS = {
    "keywords": {"words": ["hello"]},
    "pattern": {"pattern": "a+b"},
    "secrets": {"labels": None},
    "urls": {"allow": ["example.com"], "deny": []},
    "length": {"min": 1, "max": 10},
    "profanity": {"extra": ["hello"], "allow": []},
}


@schemathesis.hook("before_call")
def fit(context, case, kwargs):
    """What fits the document is made to fit what it cannot tell, too: what is there, and what depends on that."""
    if not case.meta.generation.mode.is_positive:
        return
    is_stateful = case.meta.phase.name.value == "stateful"
    for name, value in (case.path_parameters or {}).items():
        is_taken = name in KNOWN and not is_stateful and sum(map(ord, str(value))) % 2  # a chain has made its own
        if is_taken or (name in SPARE and case.method != "GET"):
            case.path_parameters[name] = KNOWN[name]
    if isinstance(case.body, dict):
        case.body = within(case.body)
        for end, change in CHANGES.items():
            if f"{case.method} {case.path}".endswith(end):
                change(case.body)
    query = case.query or {}
    if "user_id" in query and "tenant_id" not in query:
        case.query["tenant_id"] = "acme"  # a user is one of a tenant


def within(value):
    """No URL leads out of this machine, and a number of free JSON fits into 64 bits."""
    if isinstance(value, dict):
        return {name: within(part) for name, part in value.items()}
    if isinstance(value, list):
        return [within(part) for part in value]
    if isinstance(value, str) and value.startswith("https://apps.apple.com/"):  # which is read, and not called
        return value
    if isinstance(value, (int, float)) and abs(value) >= 2**63:
        return 1
    return f"{NOWHERE}/hooks" if isinstance(value, str) and value.startswith(("http://", "https://")) else value


def action(body):
    """Which there are is the app's to say, and what each takes is its own."""
    body["action"] = [*INPUTS][len(body["action"]) % len(INPUTS)]
    body["input"] = INPUTS[body["action"]]


def product(body):
    """An id must be that of a job which has read or written it, and is done."""
    for name in ("product_id", "copy_id"):
        body.pop(name, None)
    body["product"] = body.get("product") or LAMP


def speech(body):
    body.pop("copy_id", None)
    body["text"] = body.get("text") or "Let there be light."


def rule(body):
    """What can be looked for is more than a form: a pattern of RE2, a word of which something is left, a length."""
    matcher = body.get("matcher")
    if not matcher:
        return
    if matcher["type"] == "classifier":  # none is known
        body["matcher"] = matcher = {"type": "pii"}
    matcher.update(MATCHERS.get(matcher["type"], {}))
    if body.get("action") == "redact" and matcher["type"] == "length":
        body["action"] = "block"


def rules(body):
    for one in body.get("rules") or ():
        rule(one)


def workflow(body):
    """What a property has depends on its type, and no two have one name."""
    body["properties"] = [{"name": one["name"] + "_", "type": "text"} for one in body.get("properties") or ()][:1]


def graph(body):
    body.update(workflow=GRAPH, output_node_id="1")


def effect(body):
    """What it sets must be there in its workflow."""
    body["property_overrides"] = {}


def slugs(body):
    """Of these workflows one must be active."""
    body["workflow_slugs"] = ["invert"]


def tokens(body):
    """The key is for every tenant."""
    body["tenant_id"] = body.get("tenant_id") or "acme"


def job(body):
    """An effect that can be used, on a file that is there."""
    body.update(effect_id="invert", video_id=KNOWN["video_id"], input={})


def clone(body):
    body["sourceContainerId"] = KNOWN["containerId"]


def size(body):
    """How large a file may be is a setting."""
    body["size"] = min(body["size"], 1_000_000)


CHANGES = {
    "POST /api/jobs": action,
    "POST /api/generate/copy": product,
    "POST /api/generate/static-ad": product,
    "POST /api/generate/video": product,
    "POST /api/generate/tts": speech,
    "POST /v1/rules": rule,
    "PATCH /v1/rules/{rule_id}": rule,
    "POST /v1/rules/dry-run": rules,
    "POST /api/admin/workflows": workflow,
    "PATCH /api/admin/workflows/{workflow}": workflow,
    "PUT /api/admin/workflows/{workflow}/workflow": graph,
    "POST /api/admin/effects": effect,
    "PATCH /api/admin/effects/{effect}": effect,
    "POST /api/worker/register": slugs,
    "PUT /api/admin/workers/{worker}/workflows": slugs,
    "POST /api/admin/tokens": tokens,
    "POST /api/ai-jobs": job,
    "POST /v1/projects/{projectId}/content/clone": clone,
    "POST /api/videos/uploads": size,
    "POST /api/admin/workflows/{workflow}/assets": size,
}
'''


ASSET = {"name": "a", "filename": "a.png", "size": 1, "content_hash": "5e" * 32}


@dataclass(frozen=True, slots=True)
class Means:
    """What schemathesis is given: the keys of others than users by their paths, and the ids of what is there."""

    keys: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, "Mapping[str, str]"])
    known: Mapping[str, str] = field(default_factory=dict[str, str])
    options: tuple[str, ...] = ()
    config: str = ""


@pytest.fixture(scope="module")
async def deployment(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("files")
    commands = json.dumps({"echo": ["echo"]})
    async with (
        server.database(template) as dsn,
        running_deployment(
            dsn, folder, roles=("api", "worker"), commands=commands, github_token="secret", repositories="octo-org/*"
        ) as running,
    ):
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("name", [product.name for product in PRODUCTS])
async def test_the_document_is_kept_to(deployment: Deployment, tmp_path: Path, name: str) -> None:
    key = await deployment.key(scope="client", tenant=TENANT, account=name)
    await deployment.engine.grant(TENANT, name, 1_000_000)
    await deployment.engine.set_cap(TENANT, name, 100_000)
    means = await MEANS[name](deployment, key)
    (tmp_path / "known.json").write_text(json.dumps([NOWHERE, {"code": "not_found", **means.known}]))
    found, described = await examined(
        f"{deployment.url}/{name}",
        tmp_path,
        key,
        *("--exclude-tag", "server", "--exclude-tag", "page"),  # which are the same everywhere
        *("--exclude-checks", "ignored_auth"),  # which asks everything thrice; test_mounting asks every route once
        *means.options,
        examples=EXAMPLES,
        keys=means.keys,
        hooks=HOOKS + PRODUCT_HOOKS,
        config=CONFIG + means.config,
    )
    assert found == 0, described


NUL = "a\0b"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/effects/api/admin/workflows", {"slug": "a", "name": NUL}, "name"),
        ("/effects/api/admin/workflows", {"slug": "a", "name": "a", "description": NUL}, "description"),
        ("/effects/api/admin/tokens", {"user_id": "a", "amount": 1, "description": NUL}, "description"),
        ("/effects/api/admin/tokens", {"user_id": "a", "amount": 1}, "tenant_id"),
        ("/effects/api/videos/uploads", {"filename": NUL, "mime_type": "image/png", "size": 1}, "filename"),
        ("/effects/api/videos/uploads", {"filename": "a", "mime_type": "text/plain", "size": 1}, "mime_type"),
        ("/effects/api/admin/workflows/invert/assets", {**ASSET, "mime_type": "png"}, "mime_type"),
        ("/studio/api/generate/copy", {"product": {"name": NUL}}, "product.name"),
        ("/studio/api/generate/tts", {"text": NUL}, "text"),
        ("/partner/v1/projects", {"name": NUL}, "name"),
        ("/partner/v1/projects", {"name": "a", "description": NUL}, "description"),
    ],
)
async def test_what_is_refused_is_named_as_it_was_sent(
    deployment: Deployment, path: str, body: dict[str, Any], field: str
) -> None:
    """With the member of the request, and not with what becomes of it; nor is it left to the database."""
    is_operators = "/admin/" in path
    whose = {"scope": "admin"} if is_operators else {"scope": "client", "tenant": TENANT, "account": "a"}
    answer = await deployment.http.post(path, json=body, headers=bearer(await deployment.key(**whose)))
    response = answer.json()
    assert answer.status_code in (400, 422), response
    assert (response if "field" in response else response["error"]["details"])["field"] == field
    assert "database" not in answer.text


@pytest.mark.parametrize("name", ["ai-jobs", "dispatches"])
async def test_a_user_is_asked_for_with_his_tenant(deployment: Deployment, name: str) -> None:
    admin = bearer(await deployment.key(scope="admin"))
    answer = await deployment.http.get(f"/effects/api/admin/{name}?user_id=a", headers=admin)
    assert (answer.status_code, answer.json()["field"]) == (422, "tenant_id")
    null = await deployment.http.get(f"/effects/api/admin/{name}?status=null", headers=admin)
    assert (null.status_code, null.json()["field"]) == (422, "status")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def made(deployment: Deployment, path: str, key: str, body: Any) -> dict[str, Any]:
    answer = await deployment.http.post(path, json=body, headers=bearer(key))
    assert answer.status_code < 300, answer.text
    return answer.json()


async def actions(deployment: Deployment, key: str) -> Means:
    body = {"action": "run-command", "input": {"command": "echo", "arguments": ["hello"]}}
    job = await made(deployment, "/actions/api/jobs", key, body)
    return Means(known={"id": job["id"]})


async def effects(deployment: Deployment, key: str) -> Means:
    admin = await deployment.key(scope="admin")
    fleet = await deployment.key(scope="worker")
    workers = [
        await made(deployment, "/effects/api/worker/register", fleet, {"worker_id": name, "workflow_slugs": ["invert"]})
        for name in ("first", "second")
    ]
    about = {"filename": "in.png", "mime_type": "image/png", "size": 1}
    upload = await made(deployment, "/effects/api/videos/uploads", key, about)
    await deployment.http.put(upload["upload_url"], content=b"1", headers=upload["upload_headers"])
    video = await made(deployment, "/effects/api/videos", key, {"original_file_id": upload["file"]["id"]})
    await made(deployment, "/effects/api/admin/workflows", admin, {"slug": "spare", "name": "Spare"})
    spare = {"slug": "spare", "name": "Spare", "workflow_id": "spare", "credits_cost": 1}
    await made(deployment, "/effects/api/admin/effects", admin, spare)
    body = {"effect_id": "invert", "video_id": video["id"], "idempotency_key": "first"}
    job = await made(deployment, "/effects/api/ai-jobs", key, body)
    return Means(
        keys={
            "/api/admin/": bearer(admin),
            "/api/worker/register": bearer(fleet),
            "/api/worker/([^r]|requeue)": bearer(workers[0]["token"]),
        },
        known={
            "video_id": video["id"],
            "file_id": upload["file"]["id"],
            "job_id": job["id"],
            "effect": "spare",
            "workflow": "spare",
            "worker": "second",
        },
        options=("--exclude-path", "/api/worker/deregister"),  # after which nobody knows the token
    )


async def guard(deployment: Deployment, key: str) -> Means:
    admin = await deployment.key(scope="admin", tenant=TENANT)
    rule = await made(deployment, "/guard/v1/rules", admin, {"name": "No mail", "matcher": {"type": "pii"}})
    job = await made(deployment, "/guard/v1/jobs", key, {"message_input": "Hello!", "webhook_url": NOWHERE})
    return Means(
        keys={"/v1/rules": bearer(admin)}, known={"rule_id": rule["id"], "job_id": job["job_id"]}, config=ORDER
    )


async def partner(deployment: Deployment, key: str) -> Means:
    admin = await deployment.key(scope="admin", tenant=TENANT)
    project = (await made(deployment, "/partner/v1/projects", key, {"name": "Lumen"}))["projectId"]
    job = await made(deployment, f"/partner/v1/projects/{project}/ingest/website", key, {"url": NOWHERE})
    content = await made(deployment, f"/partner/v1/projects/{project}/content", key, {})
    influencer = await made(deployment, f"/partner/v1/projects/{project}/influencers", key, {})
    lease = await made(deployment, f"/partner/v1/projects/{project}/tiktok-leases", key, {})
    endpoint = await made(deployment, "/partner/v1/webhook-endpoints", key, {"url": NOWHERE})
    asset = await deployment.engine.artifacts.save(
        TENANT, "partner", name="a.txt", content_type="text/plain", data=b"1"
    )
    return Means(
        keys={"/v1/admin/": bearer(admin)},
        known={
            "projectId": project,
            "jobId": job["jobId"],
            "containerId": content["containerId"],
            "influencerId": influencer["influencerId"],
            "leaseId": lease["leaseId"],
            "endpointId": endpoint["endpointId"],
            "assetId": asset.id,
        },
    )


async def studio(deployment: Deployment, key: str) -> Means:
    admin = await deployment.key(scope="admin", tenant=TENANT)
    job = await made(deployment, "/studio/api/generate/copy", key, {"product": {"name": "Lumen Desk Lamp"}})
    return Means(keys={"/api/admin/": bearer(admin)}, known={"job_id": job["job_id"]})


MEANS: Mapping[str, Callable[[Deployment, str], Awaitable[Means]]] = {
    "actions": actions,
    "effects": effects,
    "guard": guard,
    "partner": partner,
    "studio": studio,
}
