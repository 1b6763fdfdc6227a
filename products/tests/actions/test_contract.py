"""The contract, over real HTTP: each number has its tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from products.tests.actions.deployments import ENDED, FIELDS, GRACE, Deployment, User, check_times, gate, ran

from millpond.store.db import connect
from millpond_products.actions.kinds import ACTIONS
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from millpond.store.db import Connection

GREETING = {"action": "greet", "input": {"name": "Ada"}}


def key() -> dict[str, str]:
    return {"Idempotency-Key": uuid4().hex}


# ACT-1, ACT-2


def test_act_01_the_states_and_arrows_are_those_of_the_contract_and_no_other() -> None:
    assert set(ACTIONS.states) == {"pending", "running", "success", "failed", "cancelled"}
    assert ACTIONS.pairs == {
        ("pending", "running"),
        ("pending", "cancelled"),
        ("running", "success"),
        ("running", "failed"),
        ("running", "cancelled"),
    }


async def test_act_02_a_submit_answers_202_with_the_pending_job(user: User) -> None:
    answer = await user.send("POST", "/api/jobs", GREETING)
    response = answer.json()
    assert answer.status_code == 202
    assert list(response) == ["id", "state", "createdAt"]
    assert answer.headers["location"] == f"/actions/api/jobs/{response['id']}"
    job = await user.until(response["id"], "success")
    assert list(job) == FIELDS
    assert (job["action"], job["input"], job["output"]) == ("greet", {"name": "Ada"}, {"text": "Hello, Ada!"})
    assert (job["error"], job["createdAt"]) == (None, response["createdAt"])


async def test_act_02_an_input_may_be_left_out(user: User) -> None:
    problem = await user.refused("POST", "/api/jobs", {"action": "greet"}, status=422)
    assert (problem["code"], problem["field"]) == ("invalid_input", "input.name")


async def test_act_02_an_unknown_action_is_refused_with_the_known_ones(user: User) -> None:
    problem = await user.refused("POST", "/api/jobs", {"action": "dance"}, status=422)
    known = [each["name"] for each in (await user.get("/api/actions"))["data"]]
    assert problem["field"] == "action"
    assert problem["actions"] == known
    assert {"greet", "http-request", "run-command", "trigger-github-workflow"} <= set(known)
    assert "elsewhere" not in known
    assert all(name in problem["hint"] for name in known)
    assert (await user.get("/api/jobs"))["data"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"action": "greet", "input": {"name": 7}}, "input.name"),
        ({"action": "greet", "input": {"name": "a", "colour": "red"}}, "input.colour"),
        ({"action": "greet", "inptu": {}}, "inptu"),
        ({"input": {}}, "action"),
        ({"action": "greet", "input": []}, "input"),
        (
            {"action": "http-request", "input": {"url": "http://127.0.0.1:9", "timeoutSeconds": 0}},
            "input.timeoutSeconds",
        ),
    ],
)
async def test_act_02_bad_input_names_its_field(user: User, body: dict[str, Any], field: str) -> None:
    assert (await user.refused("POST", "/api/jobs", body, status=422))["field"] == field
    assert (await user.get("/api/jobs"))["data"] == []


async def test_act_02_every_action_reports_what_it_takes(user: User) -> None:
    response = {each["name"]: each for each in (await user.get("/api/actions"))["data"]}
    schema = response["greet"]["inputSchema"]["$defs"]["actions_greet"]
    assert response["greet"]["summary"] == "Say hello."
    assert schema["required"] == ["name"]
    assert "timeoutSeconds" in response["run-command"]["inputSchema"]["$defs"]["RunCommand"]["properties"]


# ACT-3


async def test_act_03_each_time_is_set_once_on_its_entry_and_in_order(deployment: Deployment, user: User) -> None:
    async with deployment.paused("talk"):
        job_id = await user.submit("talk", name=(name := uuid4().hex))
        pending = await user.job(job_id)
        assert (pending["startedAt"], pending["completedAt"]) == (None, None)
    running = await user.until(job_id, "running")
    assert running["completedAt"] is None
    gate(name).set()
    ended = await user.until(job_id, "success")
    assert [ended[name] for name in ("createdAt", "startedAt")] == [running[n] for n in ("createdAt", "startedAt")]
    assert ended["completedAt"] is not None
    events = await deployment.engine.events("acme", job_id)
    at = {event.type: event.at.isoformat().replace("+00:00", "Z") for event in events}
    assert (ended["startedAt"], ended["completedAt"]) == (at["started"], at["succeeded"])
    await user.refused("POST", f"/api/jobs/{job_id}/cancel", status=409)
    assert await user.job(job_id) == ended


# ACT-4, ACT-5


async def by_hand(deployment: Deployment, statement: str, *arguments: Any) -> Exception | None:
    """A statement as the role of the application, by itself; tells why the database refused it."""
    connection: Connection = await connect(deployment.engine.db.dsn)
    try:
        await connection.execute(statement, *arguments)
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return error
    finally:
        await connection.close()
    return None


@pytest.mark.parametrize("end", ENDED)
async def test_act_04_nothing_leaves_an_end(deployment: Deployment, user: User, end: str) -> None:
    job_id = await ended_as(deployment, user, end)
    job = await user.job(job_id)
    number = (await deployment.engine.read("acme", job_id)).job_id
    for state in ACTIONS.states:
        if state != end:
            refused = await by_hand(deployment, "update millpond.jobs set state = $2 where id = $1", number, state)
            assert "transition denied" in str(refused), (state, refused)
    for column in ("created_at", "started_at", "finished_at"):
        refused = await by_hand(deployment, f"update millpond.jobs set {column} = now() where id = $1", number)
        assert refused is not None, column
    answer = await user.send("POST", f"/api/jobs/{job_id}/cancel")
    assert answer.status_code == (200 if end == "cancelled" else 409)
    assert await user.job(job_id) == job


async def ended_as(deployment: Deployment, user: User, end: str) -> str:
    match end:
        case "success":
            return (await user.done("greet", name="Ada"))["id"]
        case "failed":
            return (await user.done("break", how="badly"))["id"]
        case _:
            async with deployment.paused("greet"):
                job_id = await user.submit("greet", name="Ada")
                assert (await user.send("POST", f"/api/jobs/{job_id}/cancel")).status_code == 200
            return job_id


async def test_act_04_a_failed_job_says_why(user: User) -> None:
    job = await user.done("break", how="badly")
    assert (job["state"], job["output"]) == ("failed", None)
    assert job["error"] == {"code": "permanent", "message": "badly", "why": "because"}


async def test_act_05_a_log_is_append_only_and_stays_readable(deployment: Deployment, user: User) -> None:
    job = await user.done("greet", name="Ada", times=3)
    lines = await user.lines(job["id"])
    number = (await deployment.engine.read("acme", job["id"])).job_id
    changed = await by_hand(
        deployment, "update millpond.events set data = '{\"text\": \"no\"}' where job_id = $1 and type = 'log'", number
    )
    removed = await by_hand(deployment, "delete from millpond.events where job_id = $1 and type = 'log'", number)
    assert all("append-only" in str(error) for error in (changed, removed)), (changed, removed)
    assert [line["text"] for line in lines] == [f"Hello, Ada, for the {n}. time" for n in (1, 2, 3)]
    assert await user.lines(job["id"]) == lines
    assert list(lines[0]) == ["seq", "at", "level", "text"]


async def test_act_05_a_log_comes_in_pages(user: User) -> None:
    job = await user.done("greet", name="Ada", times=5)
    first = await user.get(f"/api/jobs/{job['id']}/logs?limit=2")
    rest = await user.get(f"/api/jobs/{job['id']}/logs?limit=3&after={first['next']}")
    assert first["data"] + rest["data"] == await user.lines(job["id"])
    assert rest["next"] is None


# ACT-8


async def test_act_08_a_pending_job_is_cancelled_at_once_and_no_worker_hears_of_it(
    deployment: Deployment, user: User
) -> None:
    async with deployment.paused("greet"):
        job_id = await user.submit("greet", name="Ada")
        answer = await user.send("POST", f"/api/jobs/{job_id}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
        again = await user.send("POST", f"/api/jobs/{job_id}/cancel")
        assert (again.status_code, again.json()) == (200, answer.json())
    assert [event.type for event in await deployment.engine.events("acme", job_id)] == ["submitted", "canceled"]
    job = await user.job(job_id)
    assert (job["startedAt"], job["error"]) == (None, None)
    assert await user.lines(job_id) == []


async def test_act_08_a_running_job_ends_at_its_next_safe_point(user: User) -> None:
    job_id = await user.submit("talk", name=uuid4().hex)
    await user.until(job_id, "running")
    answer = await user.send("POST", f"/api/jobs/{job_id}/cancel")
    assert answer.status_code in (200, 202)
    job = await user.until(job_id, "cancelled")
    assert job["startedAt"] is not None
    assert (job["output"], job["error"]) == (None, None)


async def test_act_08_one_that_ignores_the_flag_is_cut_off_and_what_it_says_later_is_refused(
    deployment: Deployment, user: User
) -> None:
    job_id = await user.submit("ignore", name=(name := uuid4().hex))
    async with asyncio.timeout(PATIENCE):
        while await user.texts(job_id) != ["begun"]:
            await asyncio.sleep(0.02)
    answer = await user.send("POST", f"/api/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "running")
    job = await user.until(job_id, "cancelled")
    events = await deployment.engine.events("acme", job_id)
    gate(name).set()
    async with asyncio.timeout(PATIENCE):
        while name not in ran:
            await asyncio.sleep(0.02)
    assert await user.job(job_id) == job
    assert await user.texts(job_id) == ["begun"]
    assert await deployment.engine.events("acme", job_id) == events
    check_times(job)
    asked = next(event.at for event in events if event.type == "started")
    assert events[-1].at - asked >= GRACE


async def test_act_08_what_has_ended_cannot_be_cancelled(user: User) -> None:
    job = await user.done("greet", name="Ada")
    problem = await user.refused("POST", f"/api/jobs/{job['id']}/cancel", status=409)
    assert (problem["code"], problem["state"]) == ("cancel_unavailable", "success")


# ACT-9, ACT-10


async def test_act_09_a_retry_is_a_new_job_that_names_the_old_one(user: User) -> None:
    old = await user.done("break", how="badly")
    answer = await user.send("POST", f"/api/jobs/{old['id']}/retry")
    new = answer.json()
    assert answer.status_code == 202
    assert list(new) == [*FIELDS, "retryOf"]
    assert (new["retryOf"], new["state"], new["input"]) == (old["id"], "pending", old["input"])
    assert new["id"] != old["id"]
    ended = await user.until(new["id"], "failed")
    assert ended["retryOf"] == old["id"]
    assert await user.job(old["id"]) == old


async def test_act_09_a_job_that_has_not_ended_is_not_retried(user: User) -> None:
    job_id = await user.submit("talk", name=(name := uuid4().hex))
    problem = await user.refused("POST", f"/api/jobs/{job_id}/retry", status=409)
    assert problem["code"] == "retry_unavailable"
    gate(name).set()
    await user.until(job_id, "success")


async def test_act_10_a_key_makes_one_job_and_its_answer_comes_again_byte_for_byte(user: User) -> None:
    same = key()
    first = await user.send("POST", "/api/jobs", GREETING, same)
    await user.until(first.json()["id"], "success")
    again = await asyncio.gather(*(user.send("POST", "/api/jobs", GREETING, same) for _ in range(20)))
    assert {(answer.status_code, answer.content) for answer in again} == {(202, first.content)}
    assert {answer.headers["idempotency-replayed"] for answer in again} == {"true"}
    assert "idempotency-replayed" not in first.headers
    assert len((await user.get("/api/jobs"))["data"]) == 1


async def test_act_10_another_request_with_the_key_is_refused(user: User) -> None:
    same = key()
    await user.send("POST", "/api/jobs", GREETING, same)
    for other in ({"action": "greet", "input": {"name": "Bob"}}, {"action": "break", "input": {"how": "so"}}):
        problem = await user.refused("POST", "/api/jobs", other, status=409, headers=same)
        assert problem["code"] == "idempotency_conflict"
    assert len((await user.get("/api/jobs"))["data"]) == 1


async def test_act_10_of_many_at_once_with_one_key_one_is_made(user: User) -> None:
    same = key()
    answers = await asyncio.gather(*(user.send("POST", "/api/jobs", GREETING, same) for _ in range(30)))
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    assert len((await user.get("/api/jobs"))["data"]) == 1


async def test_act_10_a_key_makes_one_retry_too(user: User) -> None:
    one, two = await user.done("greet", name="Ada"), await user.done("greet", name="Ada")
    same = key()
    answers = await asyncio.gather(
        *(user.send("POST", f"/api/jobs/{one['id']}/retry", headers=same) for _ in range(10))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    await user.until(answers[0].json()["id"], "success")
    again = await user.send("POST", f"/api/jobs/{one['id']}/retry", headers=same)
    assert (again.content, again.headers["idempotency-replayed"]) == (answers[0].content, "true")
    for path, body in ((f"/api/jobs/{two['id']}/retry", None), ("/api/jobs", GREETING)):
        problem = await user.refused("POST", path, body, status=409, headers=same)
        assert problem["code"] == "idempotency_conflict"
    assert len((await user.get("/api/jobs"))["data"]) == 3


async def test_act_10_a_key_that_is_none_is_refused(user: User) -> None:
    for path, body in (
        ("/api/jobs", GREETING),
        (f"/api/jobs/{(await user.done('greet', name='Ada'))['id']}/retry", None),
    ):
        problem = await user.refused("POST", path, body, status=422, headers={"Idempotency-Key": "two words"})
        assert problem["code"] == "invalid_idempotency_key"


# Whose they are


async def test_what_is_anothers_looks_absent(deployment: Deployment, user: User) -> None:
    job = await user.done("greet", name="Ada")
    for other in (await deployment.user(), await deployment.user("globex")):
        for method, path in (
            ("GET", ""),
            ("GET", "/logs"),
            ("GET", "/stream"),
            ("POST", "/cancel"),
            ("POST", "/retry"),
        ):
            problem = await other.refused(method, f"/api/jobs/{job['id']}{path}", status=404)
            assert problem["code"] == "not_found"
        assert (await other.get("/api/jobs"))["data"] == []


async def test_jobs_of_other_products_are_none_of_ours(deployment: Deployment, user: User) -> None:
    other = await deployment.engine.submit("elsewhere", tenant="acme", account=user.name)
    await user.refused("GET", f"/api/jobs/{other.id}", status=404)
    mine = await user.done("greet", name="Ada")
    assert [job["id"] for job in (await user.get("/api/jobs"))["data"]] == [mine["id"]]


async def test_jobs_are_listed_by_action_and_state_in_pages(user: User) -> None:
    made = [(await user.done("greet", name=str(n)))["id"] for n in range(3)]
    bad = await user.done("break", how="so")
    assert [job["id"] for job in (await user.get("/api/jobs?state=failed"))["data"]] == [bad["id"]]
    page = await user.get("/api/jobs?action=greet&limit=2")
    rest = await user.get(f"/api/jobs?action=greet&cursor={page['nextCursor']}")
    assert [job["id"] for job in page["data"] + rest["data"]] == made[::-1]
    assert rest["nextCursor"] is None
    assert (await user.get("/api/jobs?action=dance"))["data"] == []
    assert (await user.refused("GET", "/api/jobs?state=null", status=422))["field"] == "state"
