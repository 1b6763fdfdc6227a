"""Classifiers: somebody else's code, with a time limit; where it fails, nothing passes that should not."""

# ruff: noqa: ARG002 - what a classifier is asked is for the protocol to say
from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from millpond_products.rules import Classified, Finding, Rule
from millpond_products.rules import compile as compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond_products.rules import Decision, Direction


class Shouting:
    """Finds capitals."""

    async def classify(self, text: str) -> Sequence[Finding]:
        return [Finding("Shouting!", 0.9, n, n + 1) for n, letter in enumerate(text) if letter.isupper()]


class Blocking:
    """Does not await, and says in which thread it was."""

    thread: int | None = None

    def classify(self, text: str) -> Sequence[Finding]:
        self.thread = threading.get_ident()
        return [Finding("loud", 0.4), Finding("rude", 0.8)]


class Failing:
    async def classify(self, text: str) -> Sequence[Finding]:
        raise RuntimeError(f"cannot bear {text}")


class Endless:
    async def classify(self, text: str) -> Sequence[Finding]:
        await asyncio.Event().wait()
        return []


KNOWN = {"shouting": Shouting(), "blocking": Blocking(), "failing": Failing(), "endless": Endless()}


async def _decide(
    text: str, direction: Direction = "inbound", *, rule: dict[str, Any] | None = None, **matcher: Any
) -> Decision:
    made = Rule(name="c", matcher=Classified(**matcher), **(rule or {}))
    return await compiled([made], direction, classifiers=KNOWN).decide(text)


async def test_what_it_finds_is_a_verdict_with_its_place() -> None:
    decision = await _decide("a B c", name="shouting", rule={"action": "redact"})
    assert decision.text == "a [SHOUTING] c"
    assert [(v.label, v.start, v.end, v.matcher) for v in decision.verdicts] == [("shouting", 2, 3, "classifier")]


async def test_one_that_blocks_runs_in_a_thread_and_its_scores_count() -> None:
    decision = await _decide("abc", name="blocking", rule={"action": "flag"})
    assert [(v.label, v.start, v.end) for v in decision.verdicts] == [("rude", 0, 3)]
    assert KNOWN["blocking"].thread not in (None, threading.get_ident())
    assert (await _decide("abc", name="blocking", threshold=0.9)).outcome == "passed"
    assert (await _decide("abc", name="blocking", threshold=0.1, labels=("loud",))).verdicts[0].label == "loud"


@pytest.mark.parametrize("name", ["failing", "endless"])
@pytest.mark.parametrize("direction", ["inbound", "outbound"])
async def test_one_that_fails_or_takes_too_long_blocks(name: str, direction: Direction) -> None:
    for action in ("block", "redact"):
        decision = await _decide("secret", direction, name=name, seconds=0.01, rule={"action": action})
        assert (decision.outcome, decision.text) == ("blocked", "")
        (verdict,) = decision.verdicts
        assert (verdict.label, verdict.action, verdict.excerpt) == ("classifier_failed", "block", "******")


async def test_only_what_comes_in_may_pass_a_classifier_that_failed() -> None:
    assert (await _decide("x", "inbound", name="failing", on_error="open")).outcome == "passed"
    assert (await _decide("x", "outbound", name="failing", on_error="open")).outcome == "blocked"


async def test_a_rule_that_could_not_have_blocked_does_not_for_that() -> None:
    assert (await _decide("x", "outbound", name="failing", rule={"action": "flag"})).outcome == "passed"
    decision = await _decide("x", "outbound", name="failing", rule={"mode": "monitor"})
    assert (decision.outcome, [v.label for v in decision.verdicts]) == ("passed", ["classifier_failed"])


async def test_it_looks_at_every_text_of_a_value() -> None:
    rules = compiled(
        [Rule(name="c", matcher=Classified(name="shouting"), action="redact")], "inbound", classifiers=KNOWN
    )
    judged = await rules.decide_value({"a": "xY", "b": ["Z"]})
    assert judged.value == {"a": "x[SHOUTING]", "b": ["[SHOUTING]"]}


async def test_a_place_outside_of_the_text_is_all_of_it() -> None:
    class Confused:
        def classify(self, text: str) -> Sequence[Finding]:
            return [Finding("x", 1, 5, 99), Finding("y", 1, -3, 0)]

    rules = compiled(
        [Rule(name="c", matcher=Classified(name="it"), action="redact")], "inbound", classifiers={"it": Confused()}
    )
    assert (await rules.decide("abc")).text == "[X]"
