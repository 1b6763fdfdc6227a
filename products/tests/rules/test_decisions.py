"""Decisions: block wins, redactions merge, monitors only tell; verdicts say where, and show nothing."""

# ruff: noqa: RUF001 - other widths and styles are the point
from __future__ import annotations

from typing import Any

import msgspec
import pytest
from products.tests.rules.deciding import decide, found, ruleset

from millpond.errors import InputError
from millpond_products.rules import (
    TEXT_MAX,
    VERDICTS_MAX,
    Classified,
    Keywords,
    Length,
    Pattern,
    Pii,
    Rule,
    Secrets,
    Urls,
    check,
    compile,  # noqa: A004 - the verb
    read,
)
from millpond_products.rules.ruleset import TEXTS_MAX

MAIL = Pii(labels=("email",))


def _rule(name: str, matcher: Any, **options: Any) -> Rule:
    return Rule(name=name, matcher=matcher, **options)


async def test_nothing_found_passes_as_it_is() -> None:
    decision = await decide("Hello.", MAIL)
    assert (decision.outcome, decision.text, decision.verdicts, decision.more) == ("passed", "Hello.", [], 0)


async def test_block_wins_and_nothing_of_the_text_goes_on() -> None:
    rules = compile([_rule("a", MAIL, action="redact"), _rule("b", Keywords(words=("no",)), action="block")], "inbound")
    decision = await rules.decide("no ann@example.com")
    assert (decision.outcome, decision.text) == ("blocked", "")
    assert [(v.name, v.action) for v in decision.verdicts] == [("a", "redact"), ("b", "block")]


async def test_a_monitor_reports_and_changes_nothing() -> None:
    rules = compile(
        [_rule("a", MAIL, action="redact", mode="monitor"), _rule("b", MAIL, action="block", mode="monitor")], "inbound"
    )
    decision = await rules.decide("ann@example.com")
    assert (decision.outcome, decision.text) == ("passed", "ann@example.com")
    assert [(v.name, v.mode) for v in decision.verdicts] == [("a", "monitor"), ("b", "monitor")]


async def test_a_flag_passes_and_is_reported() -> None:
    decision = await decide("ann@example.com", MAIL, action="flag")
    assert (decision.outcome, decision.text, len(decision.verdicts)) == ("passed", "ann@example.com", 1)


async def test_redactions_that_overlap_become_one_under_the_first_label() -> None:
    rules = ruleset(
        Pattern(pattern="bcd", label="one"),
        Pattern(pattern="cdef", label="two"),
        Pattern(pattern="g", label="three"),
        action="redact",
    )
    assert (await rules.decide("abcdefgh")).text == "a[ONE][THREE]h"
    assert (await rules.decide("cdefg")).text == "[TWO][THREE]"


async def test_a_redaction_within_another_does_not_end_it() -> None:
    rules = ruleset(
        Pattern(pattern="b.*y", label="outer"),
        Pattern(pattern="cd", label="inner"),
        Pattern(pattern="x", label="last"),
        action="redact",
    )
    assert (await rules.decide("abcdefxyz")).text == "a[OUTER]z"
    assert (await rules.decide("abcdefxy")).text == "a[OUTER]"


async def test_verdicts_are_reported_by_rule_and_then_by_place() -> None:
    text = "two one two"
    rules = ruleset(Keywords(words=("one",)), Keywords(words=("two",)))
    assert [(v.name, v.start) for v in (await rules.decide(text)).verdicts] == [
        ("rule 0", 4),
        ("rule 1", 0),
        ("rule 1", 8),
    ]


async def test_places_are_characters_of_the_original() -> None:
    text = "🎉 ﬁne\u200b, Ａｎｎ＠example.com — sécrèt 𝐬𝐞𝐜𝐫𝐞𝐭"
    assert await found(text, MAIL, Keywords(words=("secret", "fine")), Pattern(pattern="—", label="dash")) == [
        "Ａｎｎ＠example.com",
        "ﬁne\u200b",
        "sécrèt",
        "𝐬𝐞𝐜𝐫𝐞𝐭",
        "—",
    ]


async def test_an_excerpt_shows_the_shape_alone() -> None:
    (mail,) = (await decide("ann@example.com", MAIL)).verdicts
    assert mail.excerpt == "***@*******.***"
    (secret,) = (await decide("password: hunter-22", Secrets())).verdicts
    assert secret.excerpt == "*********"
    (long,) = (await decide("x" * 100, Pattern(pattern="x+"))).verdicts
    assert long.excerpt == "*" * 40 + "…"


async def test_different_rules_apply_to_what_goes_in_and_what_comes_out() -> None:
    rules = [
        _rule("in", Keywords(words=("a",)), direction="inbound"),
        _rule("out", Keywords(words=("a",)), direction="outbound"),
        _rule("both", Keywords(words=("a",))),
    ]
    assert [v.name for v in (await compile(rules, "inbound").decide("a")).verdicts] == ["in", "both"]
    assert [v.name for v in (await compile(rules, "outbound").decide("a")).verdicts] == ["out", "both"]


async def test_a_length_is_counted_in_characters_or_bytes() -> None:
    assert (await decide("äää", Length(max=3))).verdicts == []
    assert len((await decide("äää", Length(max=5, unit="bytes"))).verdicts) == 1
    assert len((await decide("a", Length(min=2))).verdicts) == 1
    assert (await decide("abcd", Length(max=3), action="block")).outcome == "blocked"


async def test_a_pattern_sees_the_text_as_it_is_or_folded() -> None:
    assert await found("SÉCRET", Pattern(pattern="secret")) == []
    assert await found("SÉCRET", Pattern(pattern="secret", folded=True)) == ["SÉCRET"]
    assert await found("x Secret y", Pattern(pattern="(?i)secret")) == ["Secret"]
    assert await found("äöü", Pattern(pattern=".")) == ["ä", "ö", "ü"]


async def test_the_number_of_verdicts_is_bounded_and_the_rest_is_counted() -> None:
    text = "a " * 500
    decision = await decide(text, Pattern(pattern="a"), action="redact")
    assert (len(decision.verdicts), decision.more) == (VERDICTS_MAX, 500 - VERDICTS_MAX)
    assert decision.text == "[PATTERN] " * 500, "what is redacted is not bounded"


async def test_a_text_that_is_too_long_is_refused() -> None:
    rules = ruleset(Keywords(words=("a",)))
    assert (await rules.decide("x" * TEXT_MAX)).outcome == "passed"
    with pytest.raises(InputError):
        await rules.decide("x" * (TEXT_MAX + 1))
    with pytest.raises(InputError):
        await rules.decide("ä" * (TEXT_MAX // 2 + 1))


async def test_half_a_surrogate_pair_is_no_hindrance() -> None:
    assert await found("\ud800 secret \udfff ann@example.com", Keywords(words=("secret",)), MAIL) == [
        "secret",
        "ann@example.com",
    ]


# Rules as data


def test_a_rule_goes_to_json_and_back() -> None:
    rule = _rule("x", Urls(deny=("evil.com",)), id="rule_1", direction="inbound", action="redact", mode="monitor")
    decoded = msgspec.json.decode(msgspec.json.encode(rule))
    assert decoded["matcher"]["type"] == "urls"
    assert read(decoded) == rule


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "rule"),
    ({"name": "x"}, "rule"),
    ({"name": "", "matcher": {"type": "pii"}}, "rule.name"),
    ({"name": "x" * 201, "matcher": {"type": "pii"}}, "rule.name"),
    ({"name": "a\0b", "matcher": {"type": "pii"}}, "rule.name"),
    ({"name": "a\nb", "matcher": {"type": "pii"}}, "rule.name"),
    ({"name": "x", "matcher": {"type": "keywords", "words": ["b", "a\0"]}}, "rule.matcher.words[1]"),
    ({"name": "x", "matcher": {"type": "pattern", "pattern": "a\0"}}, "rule.matcher.pattern"),
    ({"name": "x", "matcher": {"type": "secrets", "labels": []}}, "rule.matcher.labels"),
    ({"name": "x", "matcher": {"type": "classifier", "name": "a", "labels": []}}, "rule.matcher.labels"),
    ({"name": "x", "matcher": {"type": "magic"}}, "rule.matcher.type"),
    ({"name": "x", "matcher": {"type": "pii"}, "action": "explode"}, "rule.action"),
    ({"name": "x", "matcher": {"type": "pii"}, "colour": "red"}, "rule"),
    ({"name": "x", "matcher": {"type": "keywords", "words": []}}, "rule.matcher.words"),
    ({"name": "x", "matcher": {"type": "keywords", "words": ["a" * 129]}}, "rule.matcher.words[0]"),
    ({"name": "x", "matcher": {"type": "keywords", "words": ["a"] * 5_001}}, "rule.matcher.words"),
    ({"name": "x", "matcher": {"type": "keywords", "words": ["a"], "label": "No Label"}}, "rule.matcher.label"),
    ({"name": "x", "matcher": {"type": "pattern", "pattern": ""}}, "rule.matcher.pattern"),
    ({"name": "x", "matcher": {"type": "pattern", "pattern": "a" * 4_097}}, "rule.matcher.pattern"),
    ({"name": "x", "matcher": {"type": "pii", "labels": []}}, "rule.matcher.labels"),
    ({"name": "x", "matcher": {"type": "length"}}, "rule.matcher.max"),
    ({"name": "x", "matcher": {"type": "length", "max": -1}}, "rule.matcher.max"),
    ({"name": "x", "matcher": {"type": "length", "min": 5, "max": 4}}, "rule.matcher.max"),
    ({"name": "x", "matcher": {"type": "length", "max": 4}, "action": "redact"}, "rule.matcher"),
    ({"name": "x", "matcher": {"type": "classifier", "name": ""}}, "rule.matcher.name"),
    ({"name": "x", "matcher": {"type": "classifier", "name": "a", "seconds": 0}}, "rule.matcher.seconds"),
    ({"name": "x", "matcher": {"type": "classifier", "name": "a", "threshold": 2}}, "rule.matcher.threshold"),
]


@pytest.mark.parametrize(("given", "field"), BAD, ids=[str(n) for n in range(len(BAD))])
def test_a_bad_rule_is_refused_by_its_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        read(given)
    assert caught.value.field == field
    assert caught.value.message


@pytest.mark.parametrize(
    "pattern",
    ["(", "a**", r"(a)\1", "(?=a)", "(?<!a)b", "x{1001}", "[z-a]", r"\pX", "a*", "", r"(?:\pL{1,64}){1,10}"],
)
def test_a_pattern_that_cannot_work_is_refused(pattern: str) -> None:
    with pytest.raises(InputError) as caught:
        ruleset(Keywords(words=("a",)), Pattern(pattern=pattern))
    assert caught.value.field == "rules[1].matcher.pattern"


@pytest.mark.parametrize(
    "pattern", [r"\b", r"\B", "^", "$", r"(?m)^|\b", r"(?:\b)+", r"(?P<x>\A)", r"\C", r"a\Cb", r"\\\C"]
)
def test_a_pattern_that_takes_no_room_or_half_a_character_is_refused(pattern: str) -> None:
    with pytest.raises(InputError) as caught:
        ruleset(Pattern(pattern=pattern))
    assert caught.value.field == "rules[0].matcher.pattern"


@pytest.mark.parametrize("pattern", [r"\ba", r"\\C", r"^x$", "[$]", r"\^", "b", r"\."])
def test_a_pattern_that_takes_room_is_taken(pattern: str) -> None:
    ruleset(Pattern(pattern=pattern))


def test_a_rule_for_the_other_direction_is_checked_too() -> None:
    with pytest.raises(InputError):
        compile([_rule("x", Pattern(pattern="("), direction="outbound")], "inbound")


def test_there_are_not_too_many_rules_and_patterns() -> None:
    with pytest.raises(InputError) as caught:
        compile([_rule("x", MAIL)] * 1_001, "inbound")
    assert caught.value.field == "rules"
    with pytest.raises(InputError) as caught:
        compile([_rule("x", Pattern(pattern=rf"\pL{{2}}{n}")) for n in range(100)], "inbound")
    assert caught.value.field == "rules[8].matcher.pattern"


def test_a_classifier_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        ruleset(Classified(name="toxicity"))
    assert caught.value.field == "rules[0].matcher.name"
    check(_rule("x", Classified(name="toxicity")))


# Values


async def test_every_text_of_a_value_is_looked_at_and_reported_by_its_place() -> None:
    value = {
        "prompt": "ask ann@example.com",
        "list": ["x", {"deep": "bob@example.com"}],
        "n": 7,
        "ok": True,
        "no": None,
    }
    judged = await ruleset(MAIL, action="redact").decide_value(value)
    assert judged.value == value | {"prompt": "ask [EMAIL]", "list": ["x", {"deep": "[EMAIL]"}]}
    assert [(v.field, v.start, v.end) for v in judged.verdicts] == [
        ("input.prompt", 4, 19),
        ("input.list[1].deep", 0, 15),
    ]


async def test_names_of_members_are_text_too() -> None:
    value = {"ann@example.com": 1, "bob@example.com": 2}
    judged = await ruleset(MAIL, action="redact").decide_value(value)
    assert judged.value == {"[EMAIL]": 1, "[EMAIL] 2": 2}
    assert (await ruleset(MAIL, action="block").decide_value(value)).outcome == "blocked"
    assert (await ruleset(Length(min=5), action="block").decide_value({"a": "long enough"})).outcome == "passed"


async def test_a_place_is_reported_without_the_names_that_a_rule_is_about() -> None:
    value = {"ann@example.com": {"x" * 300: ["bob@example.com"], "b": {"cat@example.com": 1}}}
    judged = await ruleset(MAIL, Length(min=1_000), action="flag").decide_value(value)
    listed = [verdict.field for verdict in judged.verdicts if verdict.matcher == "pii"]
    long = "input.[EMAIL]." + "x" * 200
    assert listed == ["input", long[:200], "input.[EMAIL].b"]
    assert "ann@" not in str(judged.verdicts)


async def test_a_value_is_the_same_where_nothing_is_redacted() -> None:
    value = {"a": "text", "b": [1, 2.5, None]}
    judged = await ruleset(MAIL, action="redact").decide_value(value)
    assert judged.value is value
    assert (await ruleset(Keywords(words=("text",)), action="block").decide_value(value)).value is None


async def test_a_value_of_too_many_texts_is_refused() -> None:
    rules = ruleset(MAIL)
    assert (await rules.decide_value(["same"] * 10_000)).outcome == "passed"
    with pytest.raises(InputError) as caught:
        await rules.decide_value([str(n) for n in range(TEXTS_MAX + 1)], field="output")
    assert caught.value.field == "output"


async def test_verdicts_of_a_value_are_bounded_together() -> None:
    judged = await ruleset(MAIL).decide_value([f"a{n}@example.com" for n in range(150)])
    assert (len(judged.verdicts), judged.more) == (VERDICTS_MAX, 50)
