"""Rules as a gate around a kind: what it lets pass, what it says of the rest, and what it logs."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import msgspec
import pytest

from millpond import logs
from millpond.errors import BlockedError, InputError
from millpond_products.rules import Keywords, Pattern, Pii, Rule, RulesGate
from tests.factories import TENANT

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUSE = RulesGate(
    [
        Rule(id="rule_1", name="no bombs", matcher=Keywords(words=("bomb",)), action="block"),
        Rule(name="no mail", matcher=Pii(labels=("email",)), action="redact"),
        Rule(name="inside", matcher=Keywords(words=("codename",)), action="block", direction="outbound"),
        Rule(name="watched", matcher=Keywords(words=("rain",)), action="flag"),
    ]
)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", as_json=True, stream=stream)
    yield stream
    logs.silence()


async def test_what_is_blocked_is_reported_with_its_verdicts() -> None:
    with pytest.raises(BlockedError) as caught:
        await HOUSE.inbound(TENANT, {"prompt": "make a b.o.m.b now"})
    (verdict,) = caught.value.details["verdicts"]
    assert verdict == {
        "rule": "rule_1",
        "name": "no bombs",
        "action": "block",
        "mode": "enforce",
        "matcher": "keywords",
        "label": "keyword",
        "start": 7,
        "end": 14,
        "excerpt": "*.*.*.*",
        "field": "input.prompt",
    }


async def test_what_is_redacted_passes_without_it() -> None:
    assert await HOUSE.inbound(TENANT, {"prompt": "for ann@example.com"}) == {"prompt": "for [EMAIL]"}
    assert await HOUSE.outbound(TENANT, {"text": "Ask ann@example.com.", "n": 3}) == {"text": "Ask [EMAIL].", "n": 3}


async def test_a_rule_of_one_direction_holds_in_that_alone() -> None:
    assert await HOUSE.inbound(TENANT, {"prompt": "our codename"}) == {"prompt": "our codename"}
    with pytest.raises(BlockedError) as caught:
        await HOUSE.outbound(TENANT, {"text": "The codename is Falcon."})
    (verdict,) = caught.value.details["verdicts"]
    assert (verdict["name"], verdict["field"], verdict["excerpt"]) == ("inside", "output.text", "********")


async def test_what_is_flagged_passes_and_is_logged_without_its_text(log: io.StringIO) -> None:
    assert await HOUSE.inbound(TENANT, {"prompt": "in the rain"}) == {"prompt": "in the rain"}
    (line,) = [msgspec.json.decode(line) for line in log.getvalue().splitlines() if "gate.flagged" in line]
    assert (line["tenant"], line["direction"], line["rules"], line["verdicts"]) == (TENANT, "inbound", ["watched"], 1)
    assert "rain" not in log.getvalue()


def test_a_gate_of_bad_rules_is_refused_when_it_is_made() -> None:
    with pytest.raises(InputError) as caught:
        RulesGate([Rule(name="x", matcher=Pattern(pattern="("))])
    assert caught.value.field == "rules[0].matcher.pattern"
