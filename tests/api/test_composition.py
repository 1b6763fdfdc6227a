"""Children and questions of jobs over HTTP: who sees them, how they are paged, and who may answer."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from millpond import ids
from millpond.api.jobs.jobs import PART_MAX
from millpond.engine.reads.views import BYTES_MAX
from millpond.values import encode
from millpond.work import ChildRequest, SpawnRequest, StepRequest
from tests.factories import ACCOUNT, OWNER, STRANGER, TENANT, Factory

if TYPE_CHECKING:
    import httpx2

    from millpond.work import Lease
    from tests.api.sites import Site
    from tests.clocks import Clock


# Children


async def spawned(make: Factory, lease: Lease, count: int, name: str = "parts", **options: Any) -> list[str]:
    """Children of a leased job, as one batch; the ids in order."""
    kind, number = options.pop("kind", "free"), options.pop("number", "n")
    given = options.pop("given", {"name": name})
    children = [ChildRequest(kind, given | {number: n}) for n in range(count)]
    step = await make.engine.spawn(SpawnRequest(lease, name, None, children, total=count, **options))
    assert step.batch_id is not None
    return [job.id for job in await make.engine.members(TENANT, step.batch_id, limit=200)]


async def children_of(site: Site, job_id: str, **query: Any) -> dict[str, Any]:
    answer = await site.get(f"/v1/jobs/{job_id}/children", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def pages(site: Site, job_id: str, limit: int) -> list[list[str]]:
    found: list[list[str]] = []
    cursor: dict[str, Any] = {}
    while not found or cursor:
        page = await children_of(site, job_id, limit=limit, **cursor)
        found.append([job["id"] for job in page["data"]])
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
    return found


async def test_children_are_listed_page_by_page(site: Site, make: Factory) -> None:
    """Batch by batch in the order of the code, also if a batch got its last children after the next one."""
    lease = await make.leased("free", {"film": 1})
    engine = make.engine
    parts = [ChildRequest("free", {"n": n}) for n in range(5)]
    await engine.spawn(SpawnRequest(lease, "shots", 1, parts[:3], total=5))
    second = await spawned(make, lease, 2, "takes")
    step = await engine.spawn(SpawnRequest(lease, "shots", 1, parts[3:], total=5, first=3))
    assert step.batch_id is not None
    first = [job.id for job in await engine.members(TENANT, step.batch_id, limit=200)]
    job_id = ids.text("job", lease.job_id)
    assert await pages(site, job_id, 200) == [first + second]
    assert await pages(site, job_id, 3) == [first[:3], first[3:] + second[:1], second[1:]]
    assert await pages(site, job_id, 7) == [first + second], "no empty page at the end"
    (child, *_) = (await children_of(site, job_id))["data"]
    assert (child["parent_id"], child["batch_id"]) == (job_id, ids.text("batch", step.batch_id))
    assert child["input"] == {"n": 0}
    assert (child["tenant"], child["account"], child["waits_for"]) == (TENANT, ACCOUNT, None)
    own = (await site.get(f"/v1/jobs/{job_id}")).json()
    assert (own["parent_id"], own["batch_id"], own["waits_for"]) == (None, None, None)
    await engine.suspend(lease, "takes")
    waiting = (await site.get(f"/v1/jobs/{job_id}")).json()
    assert (waiting["phase"], waiting["waits_for"]) == ("parked", "children")
    assert [job["waits_for"] for job in (await site.get("/v1/jobs?phase=parked")).json()["data"]] == ["children"]


async def test_children_are_counted_and_those_with_children_are_named(site: Site, make: Factory) -> None:
    lease = await make.leased("free")
    children = await spawned(make, lease, 5)
    first, second, third = await make.claimed("free", want=3)
    await make.finish(first)
    await make.finish(second, "failed")
    await site.post(f"/v1/jobs/{children[4]}/cancel")
    grandchildren = await spawned(make, third, 2, "frames")
    page = await children_of(site, ids.text("job", lease.job_id), limit=4)
    assert page["counts"] == {"submitted": 5, "ended": 3, "succeeded": 1, "failed": 1, "canceled": 1}
    assert page["parents"] == [ids.text("job", third.job_id)] == [children[2]]
    assert [job["outcome"] for job in page["data"]] == ["succeeded", "failed", None, None]
    below = await children_of(site, children[2])
    assert ([job["id"] for job in below["data"]], below["parents"]) == (grandchildren, [])
    assert below["counts"]["submitted"] == 2
    leaf = await children_of(site, grandchildren[0])
    assert leaf == {
        "data": [],
        "parents": [],
        "counts": {"submitted": 0, "ended": 0, "succeeded": 0, "failed": 0, "canceled": 0},
        "budget": None,
        "next_cursor": None,
    }


async def test_a_budget_is_shown_with_what_is_spent_and_reserved(site: Site, make: Factory) -> None:
    await make.credits(50)
    lease = await make.leased("budgeted")
    job_id = ids.text("job", lease.job_id)
    assert (await children_of(site, job_id))["budget"] == {"amount": 50, "spent": 0, "reserved": 0}
    children = [ChildRequest("priced", {"size": n}) for n in range(3)]
    await make.engine.spawn(SpawnRequest(lease, "shots", 1, children, total=3))
    await make.serve("priced")
    assert (await children_of(site, job_id))["budget"] == {"amount": 50, "spent": 5, "reserved": 10}


async def test_the_detail_of_a_job_has_what_it_is_composed_of(site: Site, make: Factory, clock: Clock) -> None:
    await make.credits(50)
    lease = await make.leased("budgeted")
    job_id = ids.text("job", lease.job_id)
    await spawned(make, lease, 3, kind="priced", given={}, number="size")
    await make.engine.record(question(lease, "take", "operator"))
    await make.engine.record(StepRequest(lease, "sleep", 3, "sleep", wait=timedelta(hours=1)))
    detail = (await site.order("GET", f"/v1/board/jobs/{job_id}")).json()["composition"]
    assert detail["counts"] == {"submitted": 3, "ended": 0, "succeeded": 0, "failed": 0, "canceled": 0}
    assert detail["budget"] == {"amount": 50, "spent": 0, "reserved": 15}
    assert [asked["name"] for asked in detail["questions"]] == ["take"]
    assert detail["wakes_at"] is not None
    await make.engine.suspend(lease, "sleep")
    await clock.advance(timedelta(hours=2))
    assert (await site.order("GET", f"/v1/board/jobs/{job_id}")).json()["composition"]["wakes_at"] is None
    plain = await site.submitted()
    assert (await site.order("GET", f"/v1/board/jobs/{plain}")).json()["composition"] is None


async def test_only_the_account_and_its_operators_see_the_children(site: Site, make: Factory) -> None:
    lease = await make.leased("free")
    (child,) = await spawned(make, lease, 1)
    job_id = ids.text("job", lease.job_id)
    keys = {
        "neighbor": await site.key(account="bob"),
        "stranger": await site.key(tenant=STRANGER),
        "foreign admin": await site.key(scope="admin", tenant=STRANGER, account=None),
        "viewer": await site.key(scope="viewer", account=None),
        "tenant": await site.key(scope="operator", account=None),
        "everywhere": site.admin_key,
    }
    for path in (f"/v1/jobs/{job_id}/children", f"/v1/jobs/{job_id}/questions", f"/v1/jobs/{child}/children"):
        statuses = {who: (await site.get(path, key=key)).status_code for who, key in keys.items()}
        assert statuses == {
            "neighbor": 404,
            "stranger": 404,
            "foreign admin": 404,
            "viewer": 200,
            "tenant": 200,
            "everywhere": 200,
        }, path
        assert (await site.get(f"{path}?tenant={STRANGER}", key=site.admin_key)).status_code == 404
        assert (await site.get(f"{path}?tenant={STRANGER}")).status_code == 403


async def test_a_token_for_one_job_does_not_open_its_children(site: Site, make: Factory) -> None:
    """Their inputs and outputs are made by the handler, and a browser need not know them."""
    lease = await make.leased("free")
    (child,) = await spawned(make, lease, 1)
    job_id = ids.text("job", lease.job_id)
    token = (await site.post(f"/v1/jobs/{job_id}/tokens", {"scopes": ["read"]})).json()["token"]
    assert (await site.get(f"/v1/jobs/{job_id}", key=token)).status_code == 200
    for path in (f"/v1/jobs/{job_id}/children", f"/v1/jobs/{job_id}/questions"):
        assert (await site.get(path, key=token)).status_code == 403
        assert (await site.get(f"{path}?token={token}", key=None)).status_code == 401
    assert (await site.get(f"/v1/jobs/{child}", key=token)).status_code == 404


async def test_the_cursor_of_another_list_shows_nothing_of_it(site: Site, make: Factory) -> None:
    """A cursor that is no child of the job is a place in time."""
    lease, other = await make.leased("free", {"n": 1}), await make.leased("free", {"n": 2}, account="bob")
    mine = await spawned(make, lease, 2)
    theirs = await spawned(make, other, 2, "theirs")
    job_id = ids.text("job", lease.job_id)
    assert [job["id"] for job in (await children_of(site, job_id, cursor=job_id))["data"]] == mine
    assert (await children_of(site, job_id, cursor=theirs[0]))["data"] == []
    unborn = ids.text("job", uuid4())
    assert (await children_of(site, job_id, cursor=unborn))["next_cursor"] is None


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("cursor=nonsense", "cursor"),
        ("cursor=key_01k9abcdefghjkmnpqrstvwxyz", "cursor"),
        ("cursor=", "cursor"),
        ("cursor=job_%00", "cursor"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("colour=red", "colour"),
        ("tenant=%00", "tenant"),
    ],
)
async def test_a_wrong_query_is_refused_by_name(site: Site, query: str, field: str) -> None:
    job_id = await site.submitted()
    answer = await site.get(f"/v1/jobs/{job_id}/children?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_a_job_that_is_not_there_has_no_children(site: Site) -> None:
    for job_id in ("job_x", "%00", ids.text("job", uuid4())):
        for what in ("children", "questions"):
            answer = await site.get(f"/v1/jobs/{job_id}/{what}")
            assert (answer.status_code, answer.json()["field"]) == (404, "id")


async def test_a_page_of_children_ends_at_its_size(site: Site, make: Factory) -> None:
    lease = await make.leased("free")
    size = PART_MAX - 1_000
    made = await spawned(make, lease, BYTES_MAX // size * 3 // 2, given={"text": "x" * size})
    job_id = ids.text("job", lease.job_id)
    found = await pages(site, job_id, 200)
    assert [child for page in found for child in page] == made, "each once, and none is missing"
    assert len(found) > 1
    answer = await site.get(f"/v1/jobs/{job_id}/children?limit=200")
    assert len(answer.content) <= BYTES_MAX * 1.05 + PART_MAX


# Questions


async def asked(make: Factory, *questions: tuple[str, str], kind: str = "free", **details: Any) -> str:
    """A parked job that asks: names of questions, and who answers each."""
    lease = await make.leased(kind)
    for name, who in questions:
        await make.engine.record(question(lease, name, who, **details))
    await make.engine.suspend(lease, questions[-1][0])
    return ids.text("job", lease.job_id)


def question(lease: Lease, name: str, who: str, wait: timedelta | None = None, **details: Any) -> StepRequest:
    text = encode({"question": f"{name}?", "schema": None, "who": who} | details, field="question")
    return StepRequest(lease, name, None, "question", details=text, wait=wait)


async def names(site: Site, job_id: str, key: str = "") -> list[str]:
    answer = await site.get(f"/v1/jobs/{job_id}/questions", key=key)
    assert answer.status_code == 200, answer.text
    return [found["name"] for found in answer.json()["data"]]


async def replied(site: Site, job_id: str, given: Any, name: str | None = None, key: str = "") -> httpx2.Response:
    body = {"answer": given} | ({} if name is None else {"question": name})
    return await site.post(f"/v1/jobs/{job_id}/answer", body, key=key)


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def named_key(site: Site, **options: Any) -> tuple[str, str]:
    """The id of a client key, and the key."""
    options = OWNER | {"scope": "client", "actor": "test"} | options
    record, secret = await site.engine.access.make_key(**options)
    return record.id, secret


async def test_a_client_sees_the_questions_that_it_may_answer(site: Site, make: Factory) -> None:
    key_id, key = await named_key(site)
    job_id = await asked(make, ("take", "client"), ("legal", "operator"), ("boss", key_id))
    assert await names(site, job_id) == ["take"]
    assert await names(site, job_id, key) == ["take", "boss"]
    assert await names(site, job_id, site.admin_key) == ["take", "legal", "boss"]
    assert await names(site, job_id, await site.key(scope="viewer", account=None)) == ["take", "legal", "boss"]
    (shown,) = (await site.get(f"/v1/jobs/{job_id}/questions")).json()["data"]
    assert (shown["question"], shown["who"], shown["answered_at"], shown["due_at"]) == ("take?", "client", None, None)


async def test_an_operators_question_is_refused_to_clients(site: Site, make: Factory) -> None:
    job_id = await asked(make, ("legal", "operator"))
    for name in (None, "legal"):
        refused = await replied(site, job_id, "yes", name)
        assert (*code(refused), refused.json()["needed"]) == (403, "forbidden", "operator")
    assert code(await replied(site, job_id, "yes", key=await site.key(scope="viewer", account=None)))[0] == 403
    operator = await site.key(scope="operator", account=None)
    assert (await replied(site, job_id, "yes", "legal", operator)).json() == {"id": job_id, "state": "queued"}


async def test_a_question_to_a_key_is_answered_by_it_alone(site: Site, make: Factory) -> None:
    key_id, key = await named_key(site)
    job_id = await asked(make, ("boss", key_id))
    for other in ("", site.admin_key):
        refused = await replied(site, job_id, 1, "boss", other)
        assert (*code(refused), refused.json()["needed"]) == (403, "forbidden", key_id)
    assert (await replied(site, job_id, 1, "boss", key)).status_code == 200
    (shown,) = (await site.get(f"/v1/jobs/{job_id}/questions", key=key)).json()["data"]
    assert (shown["answer"], shown["answered_by"]) == (1, key_id)


async def test_the_key_of_another_account_does_not_answer_even_if_named(site: Site, make: Factory) -> None:
    key_id, key = await named_key(site, account="bob")
    job_id = await asked(make, ("boss", key_id))
    assert code(await replied(site, job_id, 1, "boss", key)) == (404, "not_found")


async def test_one_of_several_open_questions_is_named(site: Site, make: Factory) -> None:
    job_id = await asked(make, ("first", "client"), ("second", "client"), ("legal", "operator"))
    for key, hint in (("", "first, second"), (site.admin_key, "first, second, legal")):
        unnamed = await replied(site, job_id, 1, key=key)
        assert (*code(unnamed), unnamed.json()["field"]) == (422, "invalid", "question")
        assert unnamed.json()["hint"] == f"Open questions: {hint}."
    assert (await replied(site, job_id, 1, "second")).status_code == 200
    assert (await replied(site, job_id, 2)).status_code == 200, "one is left that a client may answer"
    shown = (await site.get(f"/v1/jobs/{job_id}/questions", key=site.admin_key)).json()["data"]
    assert {each["name"]: each["answer"] for each in shown} == {"first": 2, "second": 1, "legal": None}
    unknown = await replied(site, job_id, 1, "third")
    assert (*code(unknown), unknown.json()["field"]) == (404, "not_found", "question")


async def test_a_wrong_answer_is_refused_by_name(site: Site, make: Factory) -> None:
    schema = {
        "type": "object",
        "properties": {"take": {"type": "integer", "minimum": 1}},
        "required": ["take"],
        "additionalProperties": False,
    }
    job_id = await asked(make, ("take", "client"), schema=schema)
    for given, field in (
        ({"take": "two"}, "answer.take"),
        ({"take": 0}, "answer.take"),
        ({}, "answer"),
        ("x", "answer"),
        ({"take": 1, "x" * 5_000: 2}, "answer"),
        ({"take": "\0"}, "answer"),
        ({"take": 2**80}, "answer"),
        ("x" * 300_000, "answer"),
    ):
        refused = await replied(site, job_id, given, "take")
        assert refused.status_code == 422, refused.text
        assert refused.json()["field"].startswith(field), given
        assert len(refused.content) < 4_000
    for body, field in (({}, "answer"), ({"answer": 1, "question": ""}, "question"), ({"answer": 1, "who": 1}, "who")):
        refused = await site.post(f"/v1/jobs/{job_id}/answer", body)
        assert (refused.status_code, refused.json()["field"]) == (422, field)
    assert (await replied(site, job_id, {"take": 1}, "a\0b")).status_code == 404
    assert (await replied(site, job_id, {"take": 1})).status_code == 200


async def test_an_answer_that_comes_late_is_a_conflict(site: Site, make: Factory, clock: Clock) -> None:
    job_id = await asked(make, ("take", "client"), wait=timedelta(hours=1))
    await clock.advance(timedelta(hours=2))
    for name in (None, "take"):
        assert code(await replied(site, job_id, 1, name)) == (409, "answer_unavailable")


async def test_an_answer_can_be_repeated_but_not_changed(site: Site, make: Factory) -> None:
    job_id = await asked(make, ("take", "client"))
    assert [(await replied(site, job_id, 1, "take")).status_code for _ in range(2)] == [200, 200]
    assert code(await replied(site, job_id, 2, "take")) == (409, "answer_unavailable")
    assert code(await replied(site, job_id, 2)) == (409, "answer_unavailable")


async def test_a_job_that_waits_for_something_else_takes_no_answer(site: Site, make: Factory) -> None:
    lease = await make.leased("free")
    await spawned(make, lease, 1)
    await make.engine.suspend(lease, "parts")
    job_id = ids.text("job", lease.job_id)
    assert code(await replied(site, job_id, 1)) == (409, "answer_unavailable")
    assert code(await replied(site, job_id, 1, "take")) == (404, "not_found")


async def test_a_canceled_job_takes_no_answer(site: Site, make: Factory) -> None:
    job_id = await asked(make, ("take", "client"))
    await site.post(f"/v1/jobs/{job_id}/cancel")
    assert code(await replied(site, job_id, 1, "take")) == (409, "answer_unavailable")


async def test_answers_of_operators_are_audited(site: Site, make: Factory) -> None:
    key_id, key = await named_key(site, scope="operator", account=None)
    job_id = await asked(make, ("take", "client"), ("legal", "operator"))
    await replied(site, job_id, "secret", "take")
    await replied(site, job_id, "secret", "legal", key)
    plain = ids.text("job", (await make.parked("vetted")).job_id)
    assert (await replied(site, plain, 1, key=key)).status_code == 200
    entries = (await site.order("GET", "/v1/audit?action=job.answered")).json()["data"]
    assert [(entry["actor"], entry["subject"], entry["data"]) for entry in entries] == [
        (key_id, plain, None),
        (key_id, job_id, {"question": "legal"}),
    ]


async def test_the_newest_of_very_many_questions_is_found(site: Site, make: Factory) -> None:
    lease = await make.leased("free")
    job_id = ids.text("job", lease.job_id)
    for n in range(205):
        await make.engine.record(question(lease, f"q{n}", "client"))
        if n < 204:
            await make.engine.answer_question(TENANT, job_id, f"q{n}", n, actor="test")
    await make.engine.suspend(lease, "q204")
    shown = await names(site, job_id)
    assert (len(shown), shown[0], shown[-1]) == (200, "q5", "q204")
    assert (await replied(site, job_id, 1)).status_code == 200
