"""trigger-github-workflow, and the client below it, against a double of GitHub's API."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from products.tests.actions.deployments import GRACE, running_deployment
from products.tests.doubles.github import ENDLESS, TOKEN, Refusal, Repository, Workflow

from millpond.errors import PermanentError, SettingsError, TransientError
from millpond.outbound import Outbound
from millpond_products.actions import trigger_github_workflow
from millpond_products.actions.inputs import TriggerGithubWorkflow
from millpond_products.allowed import Repositories
from millpond_products.github import GitHub
from millpond_products.settings import ProductSettings
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from products.tests.actions.deployments import Deployment, User

    from tests.databases import DatabaseServer

ASKED = {"repository": "octo/hello", "workflow": "ci.yml"}
LATER = {"retry-after": "1"}


def workflow(deployment: Deployment, **options: Any) -> Workflow:
    made = Workflow(id=161335, file="ci.yml", **options)
    deployment.github.repositories["octo/hello"] = Repository("octo/hello", branches=("main", "dev"), workflows=(made,))
    return made


async def trigger(user: User, **given: Any) -> dict[str, Any]:
    return await user.done("trigger-github-workflow", **ASKED, **given)


async def test_act_11_a_workflow_is_dispatched_and_followed_to_the_end_of_its_run(
    deployment: Deployment, user: User
) -> None:
    workflow(deployment, inputs=("environment",))
    job = await trigger(user, inputs={"environment": "staging"})
    (run,) = deployment.github.runs.values()
    assert job["state"] == "success"
    assert job["output"] == {
        "runId": run["id"],
        "url": run["html_url"],
        "conclusion": "success",
        "isSure": True,
        "ref": "main",
        "jobs": [{"name": "build", "conclusion": "success"}],
    }
    assert deployment.github.bodies == [
        {"ref": "main", "inputs": {"environment": "staging"}, "return_run_details": True}
    ]
    assert await user.texts(job["id"]) == [
        "Dispatching ci.yml of octo/hello at main.",
        f"Run {run['id']} is queued: {run['html_url']}",
        f"Run {run['id']} is in_progress.",
        "Job build is in_progress.",
        f"Run {run['id']} is completed (success).",
        "Job build is completed (success).",
    ]
    head = deployment.github.heads[-1]
    assert head["authorization"] == f"Bearer {TOKEN}"
    assert (head["accept"], head["x-github-api-version"]) == ("application/vnd.github+json", "2022-11-28")
    assert head["user-agent"].startswith("Millpond/")


async def test_another_end_than_success_is_a_failure_with_its_url(deployment: Deployment, user: User) -> None:
    workflow(deployment, script=("queued", "completed/timed_out"))
    job = await trigger(user, ref="dev")
    (run,) = deployment.github.runs.values()
    assert run["head_branch"] == "dev"
    assert job["state"] == "failed"
    assert (job["error"]["conclusion"], job["error"]["url"]) == ("timed_out", run["html_url"])


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ({"workflow": "absent.yml"}, "404", "Not Found"),
        ({"repository": "octo/absent"}, "404", "Not Found"),
        ({"ref": "nowhere"}, "422", "No ref found for: nowhere"),
        ({"inputs": {"colour": "red"}}, "422", 'Unexpected inputs provided: ["colour"]'),
    ],
)
async def test_what_github_refuses_fails_in_its_words(
    deployment: Deployment, user: User, given: dict[str, Any], code: str, message: str
) -> None:
    workflow(deployment)
    job = await user.done("trigger-github-workflow", **(ASKED | given))
    assert job["state"] == "failed"
    error = job["error"]
    assert (error["platform"], error["platformCode"], error["platformMessage"]) == ("github", code, message)
    assert deployment.github.runs == {}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"repository": "../../user"}, "input.repository"),
        ({"repository": "octo"}, "input.repository"),
        ({"repository": "octo/.."}, "input.repository"),
        ({"repository": "octo/."}, "input.repository"),
        ({"repository": "octo/hello\n"}, "input.repository"),
        ({"workflow": "ci.yml\n"}, "input.workflow"),
        ({"workflow": "../dispatches"}, "input.workflow"),
        ({"inputs": {"a": 1}}, "input.inputs[...]"),
        ({"inputs": {"id": "x"}, "runNameInput": "id"}, "input.inputs.id"),
    ],
)
async def test_what_is_no_repository_or_workflow_is_refused(user: User, given: dict[str, Any], field: str) -> None:
    body = {"action": "trigger-github-workflow", "input": ASKED | given}
    assert (await user.refused("POST", "/api/jobs", body, status=422))["field"] == field


async def test_without_a_token_nothing_is_asked(server: DatabaseServer, template: str) -> None:
    async with server.database(template) as dsn, running_deployment(dsn, github_token=None) as deployment:
        user = await deployment.user()
        body = {"action": "trigger-github-workflow", "input": ASKED}
        problem = await user.refused("POST", "/api/jobs", body, status=422)
        assert "MILLPOND_GITHUB_TOKEN" in problem["hint"]
        made = await deployment.engine.submit(
            "actions.trigger-github-workflow", ASKED, tenant="acme", account=user.name
        )
        job = await user.until(made.id, "failed")
        assert "MILLPOND_GITHUB_TOKEN" in job["error"]["hint"]
        assert deployment.github.asked == []


async def test_a_cancel_ends_the_run_there_too(deployment: Deployment, user: User) -> None:
    workflow(deployment, script=ENDLESS)
    job_id = await user.submit("trigger-github-workflow", **ASKED)
    await _until_followed(deployment)
    await user.send("POST", f"/api/jobs/{job_id}/cancel")
    await user.until(job_id, "cancelled")
    (run,) = deployment.github.runs.values()
    assert run["conclusion"] == "cancelled"


async def test_so_does_the_end_of_its_time(deployment: Deployment, user: User) -> None:
    workflow(deployment, script=ENDLESS)
    job = await trigger(user, timeoutSeconds=1)
    (run,) = deployment.github.runs.values()
    assert (job["state"], run["conclusion"], job["error"]["runId"]) == ("failed", "cancelled", run["id"])


async def test_a_run_that_cannot_be_looked_at_for_a_while_is_not_given_up(deployment: Deployment, user: User) -> None:
    workflow(deployment, script=ENDLESS)
    job_id = await user.submit("trigger-github-workflow", **ASKED)
    await _until_followed(deployment)
    (run,) = deployment.github.runs.values()
    deployment.github.refusals.extend([Refusal(502)] * 10 + [Refusal(404)] * 3)
    run["script"] = ["completed/success"]
    job = await user.until(job_id, "success", "failed")
    assert (job["state"], job["error"]) == ("success", None)
    assert not deployment.github.refusals
    assert sum("Trying again." in text for text in await user.texts(job_id)) == 1


async def test_one_that_has_gone_fails_with_its_number_and_url(deployment: Deployment, user: User) -> None:
    workflow(deployment, script=ENDLESS)
    job_id = await user.submit("trigger-github-workflow", **ASKED)
    await _until_followed(deployment)
    (run,) = deployment.github.runs.values()
    deployment.github.runs.clear()
    error = (await user.until(job_id, "failed"))["error"]
    assert (error["platformCode"], error["runId"], error["url"]) == ("404", run["id"], run["html_url"])


async def test_the_looks_at_a_run_have_no_end() -> None:
    """A run may take a day: that is some thousand looks."""
    given = TriggerGithubWorkflow(repository="octo/hello", workflow="ci.yml")
    github: Any = None
    await trigger_github_workflow.Triggering(None, given, github, pause=0)._pause(5_000)


async def test_a_cancel_reaches_github_though_the_job_is_cut_off_meanwhile(deployment: Deployment, user: User) -> None:
    workflow(deployment, script=ENDLESS)
    deployment.github.reluctance = GRACE.total_seconds() + 0.6
    job_id = await user.submit("trigger-github-workflow", **ASKED)
    await _until_followed(deployment)
    await user.send("POST", f"/api/jobs/{job_id}/cancel")
    await user.until(job_id, "cancelled")
    (run,) = deployment.github.runs.values()
    async with asyncio.timeout(PATIENCE):
        while run["conclusion"] != "cancelled":
            await asyncio.sleep(0.05)


async def test_a_run_that_may_be_anothers_is_not_cancelled(deployment: Deployment, user: User) -> None:
    workflow(deployment, script=ENDLESS)
    deployment.github.details = "ignored"
    job_id = await user.submit("trigger-github-workflow", **ASKED)
    await _until_followed(deployment)
    await user.send("POST", f"/api/jobs/{job_id}/cancel")
    await user.until(job_id, "cancelled")
    late = await trigger(user, timeoutSeconds=1)
    assert "was not cancelled" in late["error"]["message"]
    assert {run["conclusion"] for run in deployment.github.runs.values()} == {None}
    assert any("it will not be cancelled" in text for text in await user.texts(job_id))


async def test_a_worker_that_goes_leaves_the_run_to_the_next(idle: Deployment) -> None:
    workflow(idle, script=ENDLESS)
    user = await idle.user()
    job_id = await user.submit("trigger-github-workflow", **ASKED)
    stop = asyncio.Event()
    working = asyncio.ensure_future(idle.work(stop))
    await _until_followed(idle)
    stop.set()
    await working
    (run,) = idle.github.runs.values()
    assert run["conclusion"] is None
    run["script"] = ["completed/success"]
    await idle.work()
    assert (await user.job(job_id))["state"] == "success"
    assert idle.github.dispatched() == 1


@pytest.mark.parametrize("name", ["octo/.github", "octo/...", "octo/..a", "octo/.a.", "octo/-"])
def test_the_name_of_a_repository_may_begin_with_a_dot(name: str) -> None:
    assert msgspec.convert(ASKED | {"repository": name}, TriggerGithubWorkflow).repository == name
    assert Repositories.read(name).has(name)


# Where it may be run


async def test_a_repository_that_is_not_on_the_operators_list_is_refused(deployment: Deployment, user: User) -> None:
    """The token is the operator's, and good for more than users may have."""
    asked = ASKED | {"repository": "other/hello"}
    body = {"action": "trigger-github-workflow", "input": asked}
    problem = await user.refused("POST", "/api/jobs", body, status=422)
    assert problem["field"] == "input.repository"
    assert "MILLPOND_REPOSITORIES" in problem["hint"]
    made = await deployment.engine.submit("actions.trigger-github-workflow", asked, tenant="acme", account=user.name)
    assert "MILLPOND_REPOSITORIES" in (await user.until(made.id, "failed"))["error"]["hint"]
    assert deployment.github.asked == []


def test_the_list_names_repositories_and_owners() -> None:
    listed = Repositories.read(" octo/Hello, ada/* ,")
    assert [listed.has(name) for name in ("octo/hello", "OCTO/HELLO", "ada/any")] == [True] * 3
    assert [listed.has(name) for name in ("octo/hello2", "octo/*", "adam/any", "x/ada")] == [False] * 4
    assert not Repositories.read("").has("octo/hello")
    for wrong in ("octo", "*/*", "octo/he*", "octo/a b", "https://github.com/octo/hello", "../x", "octo/..", "octo/."):
        with pytest.raises(SettingsError, match=r"MILLPOND_REPOSITORIES: .* owner/name"):
            ProductSettings.from_env({"MILLPOND_REPOSITORIES": wrong})


async def _until_followed(deployment: Deployment) -> None:
    async with asyncio.timeout(PATIENCE):
        while not any(deployment.github.looks.values()):
            await asyncio.sleep(0.02)


# Which run it is


@pytest.mark.parametrize("details", ["ignored", "refused"])
async def test_a_server_that_does_not_name_the_run_is_looked_through(
    deployment: Deployment, user: User, details: Any
) -> None:
    made = workflow(deployment)
    deployment.github.add_run(deployment.github.repositories["octo/hello"], made, "main")
    deployment.github.details = details
    job = await trigger(user)
    assert (job["state"], job["output"]["isSure"]) == ("success", False)
    assert job["output"]["runId"] == max(deployment.github.runs)
    assert len(deployment.github.runs) == 2


async def test_runs_that_cannot_be_distinguished_are_not_followed(deployment: Deployment, user: User) -> None:
    workflow(deployment)
    deployment.github.details, deployment.github.rivals = "ignored", 1
    job = await trigger(user)
    assert job["state"] == "failed"
    assert job["error"]["runs"] == sorted(deployment.github.runs)
    assert "runNameInput" in job["error"]["hint"]
    assert deployment.github.looks == {}


async def test_a_name_of_its_own_distinguishes_a_run(deployment: Deployment, user: User) -> None:
    workflow(deployment, inputs=("request",), run_name="request")
    deployment.github.details, deployment.github.rivals = "ignored", 3
    jobs = await asyncio.gather(*(trigger(user, runNameInput="request") for _ in range(4)))
    for job in jobs:
        assert (job["state"], job["output"]["isSure"]) == ("success", True)
        assert deployment.github.runs[job["output"]["runId"]]["display_title"] == job["id"]
    assert len({job["output"]["runId"] for job in jobs}) == 4


# Never twice


async def test_a_dispatch_whose_answer_is_lost_is_looked_for_and_not_sent_again(
    deployment: Deployment, user: User
) -> None:
    """Perhaps it was never taken, and the new run is another's: without a name that is no success."""
    workflow(deployment, inputs=("request",), run_name="request")
    deployment.github.losses.extend([True, True])
    unsure = await trigger(user)
    assert (unsure["state"], unsure["error"]["runs"]) == ("failed", sorted(deployment.github.runs))
    named = await trigger(user, runNameInput="request")
    assert (named["state"], named["output"]["isSure"]) == ("success", True)
    assert deployment.github.dispatched() == 2


@pytest.mark.parametrize("has_run", [True, False])
async def test_a_worker_that_takes_over_looks_for_the_run_and_sends_nothing(
    idle: Deployment,
    has_run: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Whether the first one had come to send it is not known: there is a run, or none."""
    made = workflow(idle)
    user = await idle.user()
    job_id = await user.submit("trigger-github-workflow", **ASKED)
    lease = await idle.claimed("trigger-github-workflow")
    await idle.engine.proceed(lease, {"run": None, "epoch": lease.epoch}, {"ref": "main", "last": 0})
    if has_run:
        idle.github.add_run(idle.github.repositories["octo/hello"], made, "main")
    await idle.died(lease)
    await idle.work()
    job = await user.job(job_id)
    assert job["state"] == "failed"
    assert job["error"]["message"].endswith(" not dispatched again.")
    assert job["error"].get("runs", []) == list(idle.github.runs)
    assert idle.github.dispatched() == 0


async def test_one_that_takes_over_from_a_known_run_follows_that(idle: Deployment) -> None:
    made = workflow(idle)
    repository = idle.github.repositories["octo/hello"]
    runs = [idle.github.add_run(repository, made, "main") for _ in range(3)]
    user = await idle.user()
    job_id = await user.submit("trigger-github-workflow", **ASKED)
    lease = await idle.claimed("trigger-github-workflow")
    memo = {"ref": "main", "last": 0, "run": runs[1]["id"], "is_sure": True}
    await idle.engine.proceed(lease, {"run": runs[1]["id"], "epoch": lease.epoch}, memo)
    await idle.died(lease)
    await idle.work()
    job = await user.job(job_id)
    assert (job["state"], job["output"]["runId"], job["output"]["isSure"]) == ("success", runs[1]["id"], True)
    assert idle.github.dispatched() == 0


async def test_limits_and_failures_on_the_way_are_waited_out(deployment: Deployment, user: User) -> None:
    """The first call of each kind is refused, and the dispatch too: nothing is sent twice that was taken."""
    workflow(deployment)
    limited = Refusal(403, "API rate limit exceeded", {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"})
    deployment.github.refusals.extend([Refusal(502), limited])
    job = await trigger(user, ref="main")
    assert job["state"] == "success"
    assert len(deployment.github.runs) == 1
    assert any("requested a pause" in text for text in await user.texts(job["id"]))


async def test_a_limited_dispatch_is_sent_again(idle: Deployment) -> None:
    workflow(idle)
    user = await idle.user()
    job_id = await user.submit("trigger-github-workflow", **ASKED, ref="main")

    async def limit() -> None:
        while not any("/runs" in path for _, path in idle.github.asked):
            await asyncio.sleep(0)
        idle.github.refusals.append(Refusal(429, "secondary rate limit", LATER))

    await asyncio.gather(limit(), idle.work())
    assert (await user.job(job_id))["state"] == "success"
    assert (idle.github.dispatched(), len(idle.github.runs)) == (2, 1)


# The client


@pytest.fixture
async def outbound() -> AsyncIterator[Outbound]:
    """Nothing of the inside is open to it: GitHub's own origin is."""
    made = Outbound()
    yield made
    await made.close()


async def test_the_client_reports_what_may_be_asked_again_and_when(deployment: Deployment, outbound: Outbound) -> None:
    github = GitHub(outbound, deployment.github.url, TOKEN)
    soon = str(int(time.time()) + 60)
    cases: list[tuple[Refusal, type[Exception], timedelta | None]] = [
        (Refusal(500), TransientError, None),
        (Refusal(503, headers={"retry-after": "7"}), TransientError, timedelta(seconds=7)),
        (Refusal(429, headers={"retry-after": "999999"}), TransientError, timedelta(hours=1)),
        (Refusal(403, "You have exceeded a secondary rate limit."), TransientError, timedelta(minutes=1)),
        (Refusal(403, "Resource not accessible by personal access token"), PermanentError, None),
        (Refusal(401, f"Bad credentials {TOKEN}"), PermanentError, None),
        (Refusal(404), PermanentError, None),
    ]
    for refusal, kind, after in cases:
        deployment.github.refusals.append(refusal)
        with pytest.raises(kind) as refused:
            await github.call("GET", "/repos/octo/hello")
        error: Any = refused.value
        assert error.details["platformCode"] == str(refusal.status)
        assert TOKEN not in repr(error.as_dict())
        assert getattr(error, "retry_after", None) == after
    deployment.github.refusals.append(Refusal(403, headers={"x-ratelimit-remaining": "0", "x-ratelimit-reset": soon}))
    with pytest.raises(TransientError) as limited:
        await github.call("GET", "/repos/octo/hello")
    assert timedelta(seconds=50) < (limited.value.retry_after or timedelta()) <= timedelta(seconds=60)


async def test_the_client_follows_a_renamed_repository_and_takes_its_token_nowhere_else(
    deployment: Deployment, outbound: Outbound
) -> None:
    workflow(deployment)
    github = GitHub(outbound, deployment.github.url, TOKEN)
    deployment.github.refusals.append(Refusal(301, headers={"location": f"{deployment.github.url}/repos/octo/hello"}))
    assert (await github.call("GET", "/repos/octo/goodbye"))["full_name"] == "octo/hello"
    deployment.github.refusals.append(Refusal(301, headers={"location": "http://127.0.0.1:1/repos/octo/hello"}))
    with pytest.raises(PermanentError, match="another server"):
        await github.call("GET", "/repos/octo/goodbye")
    assert repr(github) == f"<GitHub at {deployment.github.url}>"


async def test_the_client_says_what_is_wrong_with_its_settings(outbound: Outbound) -> None:
    for url, token, field in (("ftp://x", None, "github_url"), ("https://x.test", "a b\n", "github_token")):
        with pytest.raises(SettingsError) as refused:
            GitHub(outbound, url, token)
        assert refused.value.field == field
    with pytest.raises(TransientError, match="GitHub did not respond"):
        await GitHub(outbound, "http://127.0.0.1:1", None).call("GET", "/")
    assert "ghp_" not in repr(ProductSettings(github_token=TOKEN))
