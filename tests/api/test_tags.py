"""Tags over HTTP: set at submit, seen in every answer about a job, and looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.factories import STRANGER, TENANT

if TYPE_CHECKING:
    from tests.api.sites import Site
    from tests.factories import Factory

TAGS = {"team": "ads", "note": "a, b: c & d ✓"}


async def found(site: Site, path: str, *tags: str, **query: Any) -> list[str]:
    answer = await site.order("GET", path, params={"tag": list(tags), **query})
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["data"]]


async def test_tags_stand_in_every_answer_about_a_job(site: Site, make: Factory) -> None:
    job_id = await site.submitted(tags=TAGS)
    await make.serve("free")
    again = (await site.post(f"/v1/jobs/{job_id}/retry", {"even_if_succeeded": True})).json()["id"]
    for each in (job_id, again):
        assert (await site.get(f"/v1/jobs/{each}")).json()["tags"] == TAGS
    assert [job["tags"] for job in (await site.get("/v1/jobs")).json()["data"]] == [TAGS, TAGS]
    assert (await site.order("GET", "/v1/board/jobs")).json()["data"][0]["tags"] == TAGS
    detail = (await site.order("GET", f"/v1/board/jobs/{job_id}")).json()
    assert detail["job"]["tags"] == TAGS
    without = await site.submitted()
    assert (await site.get(f"/v1/jobs/{without}")).json()["tags"] == {}


async def test_each_of_many_has_its_own_tags_or_its_own_refusal(site: Site) -> None:
    jobs = [{"kind": "free", "tags": {"n": str(n)}} for n in range(3)] + [{"kind": "free", "tags": {"n": 3}}]
    response = (await site.post("/v1/jobs/bulk", {"jobs": jobs})).json()
    assert (response["accepted"], response["refused"]) == (3, 1)
    assert response["results"][3]["problem"]["field"] == "tags.n"
    for n, result in enumerate(response["results"][:3]):
        assert (await site.get(f"/v1/jobs/{result['job']['id']}")).json()["tags"] == {"n": str(n)}


@pytest.mark.parametrize(
    ("tags", "field", "message"),
    [
        ({"team": 5}, "tags.team", "It must be text."),
        ({"team": "a\nb"}, "tags.team", "It must be one line of text without control characters."),
        ({"team": "x" * 257}, "tags.team", "It has 257 characters; the limit is 256."),
        ({"a=b": "x"}, "tags", "The key 'a=b' must be 1 to 64 letters, digits and . _ / - long."),
        ({f"k{n}": "" for n in range(17)}, "tags", "It has 17 tags; the limit is 16."),
    ],
)
async def test_what_is_wrong_with_a_tag_is_reported(site: Site, tags: Any, field: str, message: str) -> None:
    answer = await site.post("/v1/jobs", {"kind": "free", "tags": tags})
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert answer.json()["detail"].startswith(message)


async def test_a_key_that_comes_with_other_tags_is_a_conflict(site: Site) -> None:
    headers = {"Idempotency-Key": "order-1"}
    body: dict[str, Any] = {"kind": "free", "tags": {"team": "ads", "env": "x"}}
    first = await site.post("/v1/jobs", body, headers=headers)
    turned = body | {"tags": {"env": "x", "team": "ads"}}
    assert (await site.post("/v1/jobs", turned, headers=headers)).content == first.content
    for other in ({"team": "ads"}, {}):
        answer = await site.post("/v1/jobs", body | {"tags": other}, headers=headers)
        assert (answer.status_code, answer.json()["job_id"]) == (409, first.json()["id"])


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/board/jobs"])
async def test_jobs_are_found_by_one_tag_or_by_all_of_several(site: Site, make: Factory, path: str) -> None:
    one = await site.submitted(tags=TAGS)
    two = await site.submitted(tags={"team": "ads"})
    await site.submitted(tags={"team": "adsx"})
    other = await make.engine.submit("free", tenant=STRANGER, account="bob", tags={"team": "ads"})
    assert await found(site, path, "team:ads") == [other.id, two, one]
    assert await found(site, path, "team:ads", tenant=TENANT) == [two, one]
    assert await found(site, path, "team:ads", "note:a, b: c & d ✓") == [one]
    assert await found(site, path, "team:ad") == []
    if path == "/v1/jobs":
        assert [job["id"] for job in (await site.get(f"{path}?tag=team:ads")).json()["data"]] == [two, one]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/board/jobs"])
@pytest.mark.parametrize("query", ["tag=team", "tag=", "tag=a%20b:c", "tag=team:a&tag=team:b", "tag=team:%0a"])
async def test_what_is_no_tag_is_refused(site: Site, path: str, query: str) -> None:
    answer = await site.order("GET", f"{path}?{query}")
    assert (answer.status_code, answer.json()["field"].partition(".")[0]) == (422, "tag")


async def test_other_parameters_may_still_stand_there_but_once(site: Site) -> None:
    answer = await site.get("/v1/jobs?tag=team:ads&limit=1&tag=env:x&limit=2")
    assert (answer.status_code, answer.json()["field"]) == (422, "limit")


async def test_bulk_operations_are_about_the_jobs_with_a_tag(site: Site) -> None:
    job_id = await site.submitted(tags=TAGS)
    await site.submitted()
    seen = (await site.order("POST", "/v1/bulk/preview", {"filter": {"tag": ["team:ads"]}})).json()
    assert (seen["matched"], [line["id"] for line in seen["sample"]]) == (1, [job_id])
    answer = await site.order("POST", "/v1/bulk", {"action": "cancel", "filter": {"tag": ["team"]}})
    assert (answer.status_code, answer.json()["field"]) == (422, "filter.tag")
