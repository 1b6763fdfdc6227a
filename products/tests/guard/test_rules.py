"""Rules: GRD-7, over HTTP; and the gate that they are around other kinds."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
import re2

from millpond.errors import ContentBlockedError
from millpond_products.guard import sets
from millpond_products.rules import RULES_MAX
from millpond_products.rules.patterns import PROGRAMS_MAX
from tests.checks import snapshot, until
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from products.tests.guard.deployments import Customer, Deployment

SECRET = {"type": "keywords", "words": ["secret"]}
EMAIL = {"type": "pii", "labels": ["email"]}


async def dry_run(customer: Customer, text: str, *matchers: dict[str, Any], **more: Any) -> Any:
    rules = [{"name": f"rule {n}", "matcher": matcher} | more for n, matcher in enumerate(matchers)]
    return await customer.operate("POST", "/v1/rules/dry-run", {"text": text, "direction": "inbound", "rules": rules})


async def test_grd_07_rules_are_made_listed_changed_and_deleted(customer: Customer) -> None:
    first = await customer.rule(SECRET, name="No secrets", direction="inbound")
    second = await customer.rule(EMAIL, name="No mail", action="redact", mode="monitor")
    assert (first["name"], first["direction"], first["action"], first["mode"]) == (
        "No secrets",
        "inbound",
        "block",
        "enforce",
    )
    assert first["matcher"]["words"] == ["secret"]
    assert (first["position"], second["position"]) == (1, 2)
    assert (await customer.operate("GET", "/v1/rules"))["data"] == [first, second]
    assert await customer.operate("GET", f"/v1/rules/{first['id']}") == first
    change = {"name": "None", "matcher": {"type": "length", "max": 5}, "direction": "both", "action": "flag"}
    changed = await customer.operate("PATCH", f"/v1/rules/{first['id']}", change)
    assert changed["updated_at"] > first["updated_at"]
    assert {name: changed[name] for name in ("name", "direction", "action", "mode", "id", "created_at")} == {
        "name": "None",
        "direction": "both",
        "action": "flag",
        "mode": "enforce",
        "id": first["id"],
        "created_at": first["created_at"],
    }
    assert changed["matcher"]["max"] == 5
    assert await customer.operate("DELETE", f"/v1/rules/{first['id']}") is None
    await customer.refused("GET", f"/v1/rules/{first['id']}", status=404, key=customer.admin_key)
    await customer.refused("DELETE", f"/v1/rules/{first['id']}", status=404, key=customer.admin_key)
    await customer.refused("PATCH", f"/v1/rules/{first['id']}", {}, status=404, key=customer.admin_key)
    assert [rule["id"] for rule in (await customer.operate("GET", "/v1/rules"))["data"]] == [second["id"]]


async def test_grd_07_rules_stand_in_the_order_that_they_are_given(customer: Customer) -> None:
    word = {"type": "keywords", "words": ["word"]}
    made = [(await customer.rule(word, action="flag"))["id"] for _ in range(4)]
    wished = [made[2], made[0], made[3], made[1]]
    ordered = await customer.operate("POST", "/v1/rules/reorder", {"ids": wished})
    assert [rule["id"] for rule in ordered["data"]] == wished
    assert [rule["position"] for rule in ordered["data"]] == [1, 2, 3, 4]
    found = await customer.operate("POST", "/v1/rules/dry-run", {"text": "A word.", "direction": "inbound"})
    assert [verdict["rule"] for verdict in found["verdicts"]] == wished
    last = await customer.rule(SECRET)
    assert last["position"] == 5
    wished = [*wished, last["id"]]
    for wrong, field in (
        (wished[:-1], "ids"),
        ([*wished, wished[0]], "ids[5]"),
        ([*wished[:-1], "rule_nothing"], "ids[4]"),
        ([*wished[:-1], "rule_01k9w3v6m2f4tb8r0e5s7q1xzc"], "ids[4]"),
    ):
        answer = await customer.refused("POST", "/v1/rules/reorder", {"ids": wrong}, status=422, key=customer.admin_key)
        assert answer["field"] == field
    assert [rule["id"] for rule in (await customer.operate("GET", "/v1/rules"))["data"]] == wished


async def test_grd_07_rules_changed_by_many_at_once_are_all_there(customer: Customer) -> None:
    made = await asyncio.gather(*(customer.rule(SECRET) for _ in range(20)))
    assert sorted(rule["position"] for rule in made) == list(range(1, 21))
    named = [rule["id"] for rule in made]
    orders = [named, named[::-1], [*named[10:], *named[:10]]] * 3
    await asyncio.gather(*(customer.operate("POST", "/v1/rules/reorder", {"ids": order}) for order in orders))
    after = [rule["id"] for rule in (await customer.operate("GET", "/v1/rules"))["data"]]
    assert after in orders
    changes = await asyncio.gather(
        *(customer.send("PATCH", f"/v1/rules/{named[0]}", {"name": f"n{n}"}, key=customer.admin_key) for n in range(10))
    )
    assert {answer.status_code for answer in changes} <= {200, 409}
    name = (await customer.operate("GET", f"/v1/rules/{named[0]}"))["name"]
    assert name in {answer.json()["name"] for answer in changes if answer.status_code == 200}


async def copy_rule(deployment: Deployment, customer: Customer, count: int) -> None:
    """As many more of the one rule that there is, without the checks."""
    async with deployment.engine.database(customer.name).transaction() as tx:
        await tx.execute(
            "insert into millpond.guard_rules"
            " select gen_random_uuid(), tenant, n, name, direction, action, mode, matcher, created_at, updated_at"
            " from millpond.guard_rules, generate_series(1, $2) n where tenant = $1",
            customer.name,
            count,
        )
        await tx.execute("update millpond.guard_sets set version = version + 1 where tenant = $1", customer.name)


async def test_grd_07_rules_have_a_limit(deployment: Deployment, customer: Customer) -> None:
    await customer.rule(SECRET)
    await copy_rule(deployment, customer, RULES_MAX - 1)
    await customer.when(await customer.submit("A secret."), "inbound_blocked")
    rule = {"name": "one more", "matcher": SECRET}
    refused = await customer.refused("POST", "/v1/rules", rule, status=409, key=customer.admin_key)
    assert refused["code"] == "conflict"


async def test_grd_07_rules_that_are_too_much_together_are_refused_by_the_last(
    deployment: Deployment, customer: Customer
) -> None:
    """Otherwise they would be kept, and could not be applied: nothing would pass any more."""
    heavy = {"type": "pattern", "pattern": r"\pL{2}", "folded": True}
    await customer.rule(heavy, mode="monitor")
    await copy_rule(deployment, customer, PROGRAMS_MAX // re2.compile(heavy["pattern"]).programsize - 1)
    await customer.when(await customer.submit("Hello!"), "awaiting_response")
    rule = {"name": "one more", "matcher": heavy}
    refused = await customer.refused("POST", "/v1/rules", rule, status=422, key=customer.admin_key)
    assert refused["field"] == "matcher.pattern"
    await customer.when(await customer.submit("Hello!"), "awaiting_response")


async def test_grd_07_a_kept_rule_that_cannot_be_applied_is_named_and_can_be_mended(
    deployment: Deployment, customer: Customer
) -> None:
    rule = await customer.rule(SECRET, name="Old")
    async with deployment.engine.database(customer.name).transaction() as tx:
        await tx.execute(
            "update millpond.guard_rules set matcher = $2 where tenant = $1",
            customer.name,
            '{"type": "classifier", "name": "gone"}',
        )
        await tx.execute("update millpond.guard_sets set version = version + 1 where tenant = $1", customer.name)
    other = {"name": "New", "matcher": EMAIL}
    refused = await customer.refused("POST", "/v1/rules", other, status=422, key=customer.admin_key)
    assert "'Old'" in refused["detail"]
    await customer.when(await customer.submit("Hello!"), "inbound_blocked")
    assert (await customer.operate("GET", "/v1/rules"))["data"][0]["matcher"]["name"] == "gone"
    await customer.operate("PATCH", f"/v1/rules/{rule['id']}", {"matcher": SECRET})
    await customer.when(await customer.submit("Hello!"), "awaiting_response")


async def test_grd_07_rules_are_a_tenants_own(deployment: Deployment, customer: Customer) -> None:
    rule = await customer.rule(SECRET)
    stranger = await deployment.customer()
    assert (await stranger.operate("GET", "/v1/rules"))["data"] == []
    for method in ("GET", "PATCH", "DELETE"):
        body = {} if method == "PATCH" else None
        await stranger.refused(method, f"/v1/rules/{rule['id']}", body, status=404, key=stranger.admin_key)
    ids = {"ids": [rule["id"]]}
    await stranger.refused("POST", "/v1/rules/reorder", ids, status=422, key=stranger.admin_key)
    job = await stranger.submit("A secret.")
    await stranger.when(job, "awaiting_response")
    operator = await deployment.key(scope="admin")
    assert (await customer.refused("GET", "/v1/rules", status=422, key=operator))["field"] == "tenant"
    named = await customer.get(f"/v1/rules?tenant={customer.name}", key=operator)
    assert [one["id"] for one in named["data"]] == [rule["id"]]


async def test_grd_07_rules_are_for_operators(customer: Customer) -> None:
    """Who can read the rules knows how to get around them."""
    for method, path, body in (
        ("GET", "/v1/rules", None),
        ("POST", "/v1/rules", {"name": "x", "matcher": SECRET}),
        ("POST", "/v1/rules/dry-run", {"text": "x", "direction": "inbound"}),
        ("POST", "/v1/rules/reorder", {"ids": []}),
    ):
        await customer.refused(method, path, body, status=403)


async def test_grd_07_changes_of_rules_are_audited_without_what_they_look_for(
    deployment: Deployment, customer: Customer
) -> None:
    rule = await customer.rule({"type": "keywords", "words": ["xyzzy"]})
    await customer.operate("PATCH", f"/v1/rules/{rule['id']}", {"action": "flag"})
    await customer.operate("POST", "/v1/rules/reorder", {"ids": [rule["id"]]})
    await customer.operate("DELETE", f"/v1/rules/{rule['id']}")
    written = [
        row for row in (await snapshot(deployment.engine.db))["audit"] if customer.name in row and "guard." in row
    ]
    for action in ("guard.rule.made", "guard.rule.changed", "guard.rules.reordered", "guard.rule.removed"):
        assert len([row for row in written if action in row]) == 1
    assert not [row for row in written if "xyzzy" in row]


async def test_grd_07_a_change_of_rules_holds_for_the_next_message(customer: Customer) -> None:
    for _ in range(2):
        rule = await customer.rule(SECRET)
        await customer.when(await customer.submit("A secret."), "inbound_blocked")
        await customer.operate("PATCH", f"/v1/rules/{rule['id']}", {"mode": "monitor"})
        response = await customer.when(await customer.submit("A secret."), "awaiting_response")
        assert [verdict["mode"] for verdict in response["inbound"]["verdicts"]] == ["monitor"]
        await customer.operate("DELETE", f"/v1/rules/{rule['id']}")
        response = await customer.when(await customer.submit("A secret."), "awaiting_response")
        assert response["inbound"]["verdicts"] == []


async def test_grd_07_each_direction_has_rules_of_its_own(customer: Customer) -> None:
    await customer.rule({"type": "keywords", "words": ["question"]}, direction="inbound", action="redact")
    await customer.rule({"type": "keywords", "words": ["answer"]}, direction="outbound", action="redact")
    await customer.rule({"type": "keywords", "words": ["word"]}, direction="both", action="flag")
    text = "A question, an answer, a word."
    response = await customer.when(await customer.submit(text, message_output=text), "completed")
    assert response["inbound"]["text"] == "A [KEYWORD], an answer, a word."
    assert response["outbound"]["text"] == "A question, an [KEYWORD], a word."
    assert [len(response[way]["verdicts"]) for way in ("inbound", "outbound")] == [2, 2]


MATCHERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "words": (SECRET, "Tell me the S\u0415CRET.", "Tell me the secretary."),  # the second letter is Cyrillic
    "pattern": ({"type": "pattern", "pattern": r"\border-\d{6}\b"}, "See order-123456.", "See order-12345."),
    "e-mail": (EMAIL, "I am ann@example.com.", "I am ann at home."),
    "phone": ({"type": "pii", "labels": ["phone"]}, "Call +44 20 7946 0958.", "Call 12."),
    "IBAN": ({"type": "pii", "labels": ["iban"]}, "DE89 3704 0044 0532 0130 00", "DE88 3704 0044 0532 0130 00"),
    "card": ({"type": "pii", "labels": ["card"]}, "4111 1111 1111 1111", "4111 1111 1111 1112"),
    "IP": ({"type": "pii", "labels": ["ip"]}, "From 192.0.2.17.", "From 192.0.2.300."),
    "secrets": ({"type": "secrets"}, f"Use {'AKIA'}{'IOSFODNN7EXAMPLE'} today.", "Use a key today."),
    "domain": (
        {"type": "urls", "deny": ["bad.example"]},
        "See https://www.bad.example/x",
        "See https://good.example/x",
    ),
    "length": ({"type": "length", "max": 10}, "Eleven char", "Ten chars!"),
    "profanity": ({"type": "profanity"}, "What the fuck.", "I live in Scunthorpe."),
}


@pytest.mark.parametrize("what", MATCHERS)
async def test_grd_07_rules_find_what_they_look_for(customer: Customer, what: str) -> None:
    matcher, found, clean = MATCHERS[what]
    await customer.rule(matcher)
    blocked = await customer.submit(found)
    passed = await customer.submit(clean)
    response = await customer.when(blocked, "inbound_blocked")
    assert response["inbound"]["verdicts"]
    assert (await customer.when(passed, "awaiting_response"))["inbound"]["verdicts"] == []


async def rows_of(deployment: Deployment, customer: Customer) -> dict[str, list[str]]:
    """All that is kept of a customer, but for when its keys were used."""
    whole = await snapshot(deployment.engine.db)
    found = {table: [row for row in rows if customer.name in row] for table, rows in whole.items() if table != "keys"}
    return {table: rows for table, rows in found.items() if rows}


async def test_grd_07_a_dry_run_of_rules_changes_nothing(deployment: Deployment, customer: Customer) -> None:
    rule = await customer.rule(EMAIL, action="redact", direction="inbound")
    text = "I am ann@example.com."
    before = await rows_of(deployment, customer)
    stored = await customer.operate("POST", "/v1/rules/dry-run", {"text": text, "direction": "inbound"})
    other = await customer.operate("POST", "/v1/rules/dry-run", {"text": text, "direction": "outbound"})
    given = await dry_run(customer, text, {"type": "keywords", "words": ["am"]})
    assert await rows_of(deployment, customer) == before
    assert {"guard_rules", "guard_sets", "audit"} <= before.keys()
    assert (stored["outcome"], stored["text"]) == ("passed", "I am [EMAIL].")
    assert stored["verdicts"][0]["rule"] == rule["id"]
    assert (other["text"], other["verdicts"]) == (text, [])
    assert (given["outcome"], given["text"]) == ("blocked", None)
    assert (given["verdicts"][0]["start"], given["verdicts"][0]["end"]) == (2, 4)


async def test_grd_07_block_redact_and_flag_of_rules(customer: Customer) -> None:
    text = "I am ann@example.com."
    assert (await dry_run(customer, text, EMAIL))["outcome"] == "blocked"
    assert (await dry_run(customer, text, EMAIL, action="redact"))["text"] == "I am [EMAIL]."
    flagged = await dry_run(customer, text, EMAIL, action="flag")
    assert (flagged["outcome"], flagged["text"], len(flagged["verdicts"])) == ("passed", text, 1)
    watched = await dry_run(customer, text, EMAIL, mode="monitor")
    assert (watched["outcome"], watched["text"], len(watched["verdicts"])) == ("passed", text, 1)


async def test_grd_07_rules_that_make_a_text_too_long_block_it(customer: Customer) -> None:
    await customer.rule({"type": "keywords", "words": ["ab"], "label": "x" * 40}, action="redact")
    much = await customer.submit("ab " * 100_000)
    response = await customer.when(much, "inbound_blocked")
    assert len(response["inbound"]["verdicts"]) == 100
    assert response["inbound"]["more"] == 99_900
    (came,) = await customer.deployment.receiver.wait(customer.name, 1)
    assert came.payload["event"] == "job.blocked"


async def test_grd_07_a_pattern_that_would_run_for_ever_elsewhere_does_not(customer: Customer) -> None:
    found = await dry_run(customer, "a" * 100_000 + "!", {"type": "pattern", "pattern": "^(a+)+$"})
    assert found["outcome"] == "passed"


@pytest.mark.parametrize(
    ("matcher", "field"),
    [
        ({"type": "keywords", "words": []}, "matcher.words"),
        ({"type": "keywords", "words": [""]}, "matcher.words[0]"),
        ({"type": "keywords"}, "matcher.words"),
        ({"type": "pattern", "pattern": "("}, "matcher.pattern"),
        ({"type": "pattern", "pattern": "(?=x)"}, "matcher.pattern"),
        ({"type": "pattern", "pattern": "x" * 5_000}, "matcher.pattern"),
        ({"type": "pii", "labels": ["shoe size"]}, "matcher.labels[0]"),
        ({"type": "pattern", "pattern": "a[ab]{1000}[ab]{1000}[ab]{1000}c"}, "matcher.pattern"),
        ({"type": "pattern", "pattern": r"\b"}, "matcher.pattern"),
        ({"type": "pattern", "pattern": r"\C"}, "matcher.pattern"),
        ({"type": "keywords", "words": ["a\0"]}, "matcher.words[0]"),
        ({"type": "secrets", "labels": []}, "matcher.labels"),
        ({"type": "length"}, "matcher.max"),
        ({"type": "classifier", "name": "nobody"}, "matcher.name"),
        ({"type": "magic"}, "matcher.type"),
        ({}, "matcher.type"),
        ({"type": "keywords", "words": ["x"], "colour": "red"}, "matcher.colour"),
    ],
)
async def test_grd_07_a_rule_that_cannot_work_is_refused_by_its_field(
    customer: Customer, matcher: dict[str, Any], field: str
) -> None:
    rule = {"name": "x", "matcher": matcher}
    assert (await customer.refused("POST", "/v1/rules", rule, status=422, key=customer.admin_key))["field"] == field
    body = {"text": "x", "direction": "inbound", "rules": [{"name": "y", "matcher": SECRET}, rule]}
    refused = await customer.refused("POST", "/v1/rules/dry-run", body, status=422, key=customer.admin_key)
    assert refused["field"] == f"rules[1].{field}"
    assert (await customer.operate("GET", "/v1/rules"))["data"] == []


async def test_grd_07_rules_have_names_directions_actions_and_modes(customer: Customer) -> None:
    for member, value in (("name", ""), ("name", "a\0b"), ("direction", "up"), ("action", "praise"), ("mode", "off")):
        rule = {"name": "x", "matcher": SECRET} | {member: value}
        refused = await customer.refused("POST", "/v1/rules", rule, status=422, key=customer.admin_key)
        assert refused["field"] == member


# What is kept compiled


async def test_the_rules_of_one_tenant_do_not_wait_for_those_of_another(
    deployment: Deployment, customer: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Theirs may take seconds to compile."""
    other = await deployment.customer()
    await customer.rule(SECRET)
    await other.rule({"type": "keywords", "words": ["other"]})
    go_on = threading.Event()
    compiled = sets._compiled

    def held(given: Any) -> Any:
        if any("other" in str(rule["matcher"]) for rule in given.values()):
            assert go_on.wait(20)
        return compiled(given)

    monkeypatch.setattr(sets, "_compiled", held)
    fresh = sets.Sets(deployment.engine)
    waiting = [asyncio.create_task(fresh.of(other.name)) for _ in range(3)]
    try:
        decision = await asyncio.wait_for(fresh.decide(customer.name, "inbound", "A secret."), PATIENCE)
        assert decision.outcome == "blocked"
        async with fresh.changing(other.name):
            assert not fresh.changing(customer.name).locked()
            assert fresh.changing(other.name).locked()
    finally:
        go_on.set()
    found = await asyncio.gather(*waiting)
    assert found[0] is found[1] is found[2], "it was compiled once"


async def test_only_so_many_rules_are_compiled_at_once(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[int] = []
    limit = 0
    compiled = sets._compiled

    def counted(given: Any) -> Any:
        nonlocal limit
        running.append(1)
        limit = max(limit, len(running))
        try:
            return compiled(given)
        finally:
            running.pop()

    monkeypatch.setattr(sets, "_compiled", counted)
    fresh = sets.Sets(deployment.engine)
    await asyncio.gather(*(fresh.of(f"nobody-{n}") for n in range(30)))
    assert 1 <= limit <= sets.COMPILED_AT_ONCE
    assert len(fresh._kept) == 30


async def test_compiled_rules_are_kept_up_to_a_size(
    deployment: Deployment, customer: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await deployment.customer()
    for one in (customer, other):
        await one.rule({"type": "keywords", "words": [f"word{n}" for n in range(100)]})
    monkeypatch.setattr(sets, "KEPT_SIZE_MAX", 300)
    fresh = sets.Sets(deployment.engine)
    first = await fresh.of(customer.name)
    assert first.size >= 200
    assert await fresh.of(customer.name) is first
    second = await fresh.of(other.name)
    assert list(fresh._kept) == [other.name]
    assert fresh._size == second.size
    assert await fresh.of(customer.name) is not first


# Around other kinds


async def test_the_rules_are_a_gate_for_any_kind(deployment: Deployment, customer: Customer) -> None:
    await customer.rule(SECRET, direction="inbound")
    await customer.rule(EMAIL, direction="inbound", action="redact")
    await customer.rule({"type": "keywords", "words": ["answer"]}, direction="outbound")
    engine, name = deployment.engine, customer.name
    await engine.grant(name, "app", 100)
    with pytest.raises(ContentBlockedError) as refused:
        await engine.submit("gated", {"text": "A secret."}, tenant=name, account="app")
    assert refused.value.details["verdicts"][0]["name"].startswith("rule")
    job = await engine.submit("gated", {"text": "I am ann@example.com."}, tenant=name, account="app")
    held = await engine.submit("gated", {"text": "The answer."}, tenant=name, account="app")

    async def are_over() -> bool:
        return all([(await engine.read(name, one.job_id)).outcome is not None for one in (job, held)])

    await until(are_over)
    record = await engine.read(name, job.job_id)
    assert (record.outcome, record.input, record.output) == (
        "succeeded",
        {"text": "I am [EMAIL]."},
        {"text": "I am [EMAIL]."},
    )
    blocked = await engine.read(name, held.job_id)
    assert (blocked.outcome, blocked.output, blocked.captured) == ("blocked", None, 0)
    assert (await engine.balance(name, "app")).available == 95
