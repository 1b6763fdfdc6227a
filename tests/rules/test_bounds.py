"""Bounds: twice the text is twice the work, whatever stands in it. Work is counted, not timed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from penstock.rules import Keywords, Matcher, Pattern, Pii, Profanity, Rule, RuleSet, Secrets, Urls
from penstock.rules import compile as compiled
from penstock.rules.patterns import BUDGET, Budget, Sieve, expression, places
from tests.rules.deciding import decide

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = 600
FACTOR = 6
SLACK = 1.5

ALL: tuple[Matcher, ...] = (
    Pii(labels=("email", "phone", "iban", "card", "ip", "ssn")),
    Secrets(),
    Profanity(),
    Urls(deny=("evil.com",)),
    Urls(allow=("good.com",)),
    Keywords(words=("aaaa", "a b", "secret*", "c++", "坏"), leet=True),
    Keywords(words=("aa",), whole_words=False),
)

# What is repeated to make a text that is as bad as can be for one of them or another.
NASTY = (
    "a",
    "a ",
    "a.",
    "a.a ",
    "1",
    "1 ",
    "4",
    "4 ",
    "4-",
    "0 ",
    "00",
    "+1",
    "(0",
    "0/",
    "@",
    "a@",
    "a@a",
    "a@a.",
    ".",
    "..",
    ":",
    "::",
    "1:",
    "a:",
    "f:f",
    "1.",
    "1.1.1.1.",
    "de89 ",
    "de89",
    "-",
    "--",
    "-----BEGIN PRIVATE KEY-----",
    "key=",
    "key=a",
    "eyJ",
    "eyJa.",
    "http://",
    "//",
    "a/",
    "a.b/",
    "xn--",
    "www.",
    "s e c r e t ",
    "f u c k ",
    "f-u-c-k",
    "fu",
    "uck",
    "!",
    "1!",
    "$",
    "|",
    "'",
    "a'",
    "\u200b",
    "\u0301",
    "a\u0301",
    "é",
    "ß",
    "ﬁ",
    "坏",
    "🎉",
    "\n",
    " ",
    "_",
    "a_",
    "sk-",
    "ghp_",
    "//a:b@",
    "bearer ",
    "password:",
    "aab",
    "ab ba ",
    "444 ",
)


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return compiled([Rule(name=str(n), matcher=m, action="redact") for n, m in enumerate(ALL)], "inbound")


def _counted(call: Callable[[], Any]) -> int:
    """How many calls it makes, of Python's functions and of C's."""
    count = 0

    def count_one(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_one)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("unit", NASTY, ids=ascii)
def test_work_grows_with_the_text_and_not_faster(rules: RuleSet, unit: str) -> None:
    def work(size: int) -> int:
        text = (unit * (size // len(unit) + 1))[:size]
        hits = rules._find(text)
        return _counted(lambda: rules._decision(text, rules._find(text))) + len(hits)

    work(SMALL)  # tables are filled
    small, large = work(SMALL), work(SMALL * FACTOR)
    assert large <= small * FACTOR * SLACK + 1_000


class _Counting:
    """A pattern that counts how far it could have looked."""

    def __init__(self, pattern: str) -> None:
        self._pattern = expression(pattern)
        self.looked = 0

    def search(self, data: bytes, here: int) -> Any:
        self.looked += len(data) - here
        return self._pattern.search(data, here)


def test_a_pattern_that_looks_to_the_end_each_time_is_stopped_by_its_budget() -> None:
    nasty, data = _Counting("a.*b|a"), b"a" * 4_000
    found = list(places(nasty, data, Budget(100_000)))
    assert nasty.looked < 100_000 + 2 * len(data)
    assert found[-1][1] == len(data), "the rest is taken whole"
    assert len(found) < 100
    assert [start for start, _ in found] == list(range(len(found)))


def test_a_budget_is_for_the_whole_decision() -> None:
    budget = Budget(1_000)
    data = b"a" * 100
    assert len(list(places(expression("a"), data, budget))) < 100
    assert list(places(expression("a"), data, budget)) == [(0, 1), (1, 100)], "nothing is left but the first place"


async def test_what_is_beyond_the_budget_is_redacted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.rules.ruleset.Budget", lambda: Budget(50_000))
    text = "a" * 2_000 + " and the end"
    decision = await decide(text, Pattern(pattern="a.*b|a"), action="redact")
    assert decision.text.startswith("[PATTERN][PATTERN]")
    assert "end" not in decision.text
    assert decision.text.count("[PATTERN]") < 100


async def test_four_kilobytes_never_meet_the_budget() -> None:
    assert BUDGET // 4_096 > 4_096
    text = "a" * 4_096
    assert (await decide(text, Pattern(pattern="a.*b|a"), action="redact")).text == "[PATTERN]" * 4_096


def test_a_sieve_that_fails_lets_everything_through() -> None:
    """RE2 tells nothing at all when it runs out of memory: a pattern that is always there tells that it worked."""
    sieve = Sieve(["a", "b"])
    assert list(sieve.sift(b"xb")) == [1]
    assert list(sieve.sift(b"x")) == []

    class Broken:
        def Match(self, data: bytes) -> list[int]:  # noqa: ARG002, N802 - RE2's
            return []

    sieve._set = Broken()
    assert list(sieve.sift(b"x")) == [0, 1]


async def test_a_megabyte_is_decided_with_a_place_in_its_last_line(rules: RuleSet) -> None:
    prose = "Our team has looked at the draft, and we'd like to change 2 or 3 things: it's well-known.\n"
    text = prose * ((1_048_576 - 40) // len(prose)) + "f.u.c.k ann@example.com"
    decision = await rules.decide(text)
    assert decision.text.endswith("[PROFANITY] [EMAIL]")
    assert len(decision.verdicts) == 2
