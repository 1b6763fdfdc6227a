"""Bounds: twice the text is twice the work, whatever stands in it. Work is counted, not timed."""

from __future__ import annotations

import random
import sys
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.rules.deciding import decide
from products.tests.rules.deciding import ruleset as made_of

from millpond.errors import InputError
from millpond_products.rules import (
    Keywords,
    Matcher,
    Pattern,
    Pii,
    Profanity,
    Rule,
    RuleSet,
    Secrets,
    Urls,
    keywords,
    secrets,
)
from millpond_products.rules import compile as compiled
from millpond_products.rules.folding import View
from millpond_products.rules.keywords import CHAIN_MAX, WORDS_MAX, Lexicon
from millpond_products.rules.patterns import (
    HITS_MAX,
    PROGRAM_MAX,
    PROGRAMS_MAX,
    WORK_MAX,
    Sieve,
    WorkBudget,
    expression,
    places,
)

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
    "::1 ",
    "é.com ",
    "key=key:",
    "be10de89",
    "8.8.8.8-",
    "http://a!",
    "@a.co",
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
        hits = rules._find(text, WorkBudget())
        return _counted(lambda: rules._decision(text, rules._find(text, WorkBudget()))) + len(hits)

    work(SMALL)  # tables are filled
    small, large = work(SMALL), work(SMALL * FACTOR)
    assert large <= small * FACTOR * SLACK + 1_000


class _Counting:
    """A pattern that counts how far it could have looked."""

    def __init__(self, pattern: str) -> None:
        self._pattern = expression(pattern)
        self.programsize = self._pattern.programsize
        self.looked = 0

    def search(self, data: bytes, here: int) -> Any:
        self.looked += len(data) - here
        return self._pattern.search(data, here)


def test_a_pattern_that_looks_to_the_end_each_time_is_stopped_by_its_budget() -> None:
    nasty, data = _Counting("a.*b|a"), b"a" * 4_000
    found = list(places(nasty, data, WorkBudget(100_000 * nasty.programsize)))
    assert nasty.looked < 100_000 + 2 * len(data)
    assert found[-1][1] == len(data), "the rest is taken whole"
    assert len(found) < 100
    assert [start for start, _ in found] == list(range(len(found)))


def test_a_budget_is_for_the_whole_decision() -> None:
    budget = WorkBudget(1_000 * expression("a").programsize)
    data = b"a" * 100
    assert len(list(places(expression("a"), data, budget))) < 100
    assert list(places(expression("a"), data, budget)) == [(0, 1), (1, 100)], "nothing is left but the first place"


async def test_what_is_beyond_the_budget_is_redacted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "millpond_products.rules.ruleset.WorkBudget", lambda: WorkBudget(50_000 * expression("a.*b|a").programsize)
    )
    text = "a" * 2_000 + " and the end"
    decision = await decide(text, Pattern(pattern="a.*b|a"), action="redact")
    assert decision.text.startswith("[PATTERN][PATTERN]")
    assert "end" not in decision.text
    assert decision.text.count("[PATTERN]") < 100


async def test_four_kilobytes_never_meet_the_budget() -> None:
    assert WORK_MAX // expression("a.*b|a").programsize // 4_096 > 4_096
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


# Patterns that somebody gave


def _heavy(number: int) -> Pattern:
    """One that has RE2 follow as many beginnings at once as it has steps."""
    return Pattern(pattern=f"a[ab]{{900}}{number}c")


def test_the_steps_of_patterns_are_bounded_alone_and_together() -> None:
    assert (PROGRAM_MAX, PROGRAMS_MAX) == (3_000, 20_000)
    with pytest.raises(InputError) as caught:
        made_of(Pattern(pattern="a[ab]{1000}[ab]{1000}[ab]{1000}c"))
    assert caught.value.field == "rules[0].matcher.pattern"
    made_of(*map(_heavy, range(20)))
    with pytest.raises(InputError) as caught:
        made_of(*map(_heavy, range(25)))
    assert "20,000" in caught.value.message


async def test_patterns_are_looked_for_here_only_where_that_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """RE2 takes seconds for patterns like these, and the loop is everybody's."""
    threads: list[threading.Thread] = []
    find = RuleSet._find

    def noted(self: RuleSet, text: str, budget: WorkBudget) -> Any:
        threads.append(threading.current_thread())
        return find(self, text, budget)

    monkeypatch.setattr(RuleSet, "_find", noted)
    await made_of(Pattern(pattern="order-[0-9]{6}")).decide("x" * 16_000)
    await made_of(*map(_heavy, range(3))).decide("ab" * 1_000)
    await made_of(*map(_heavy, range(3))).decide("xy" * 16_000)
    await made_of(_heavy(1)).decide_value(["ab" * 1_000, "ba" * 1_000])
    names = [thread.name.rpartition("_")[0] for thread in threads]
    assert names == ["", "millpond-rules", "millpond-rules-long", "millpond-rules", "millpond-rules"]
    assert threads[0] is threading.main_thread()


async def test_what_would_be_too_much_work_is_not_done_and_blocks() -> None:
    rules = [Rule(name=str(n), matcher=_heavy(n), action="redact") for n in range(20)]
    text = "xy" * 100_000
    assert len(text) * sum(expression(f"a[ab]{{900}}{n}c").programsize for n in range(20)) > WORK_MAX
    decision = await compiled(rules, "inbound").decide(text)
    assert (decision.outcome, decision.text) == ("blocked", "")
    assert {(v.label, v.action, v.start, v.end) for v in decision.verdicts} == {("too_much_work", "block", 0, 200_000)}
    assert (await compiled(rules, "inbound").decide(text[:100_000])).outcome == "passed"
    flags = [Rule(name=str(n), matcher=_heavy(n), action="flag") for n in range(20)]
    decision = await compiled(flags, "inbound").decide(text)
    assert (decision.outcome, decision.text, len(decision.verdicts)) == ("passed", text, 20)


async def test_a_value_has_one_budget_for_all_its_texts() -> None:
    rules = [Rule(name=str(n), matcher=_heavy(n)) for n in range(20)]
    texts = [f"{n}" + "xy" * 20_000 for n in range(5)]
    assert (await compiled(rules, "inbound").decide_value(texts[:3])).outcome == "passed"
    assert (await compiled(rules, "inbound").decide_value(texts)).outcome == "blocked"


# Words


def test_phrases_with_the_same_first_word_cost_no_more_than_one() -> None:
    def work(count: int) -> int:
        lexicon = Lexicon()
        lexicon.add(0, [f"the w{n}x" for n in range(count)], whole_words=True, leet=False, field="words")
        ((_, find),) = lexicon.close()
        view = View("the the fox and the w1x dog " * 50)
        assert len(list(find(view))) == 50
        return _counted(lambda: list(find(view)))

    few, many = work(10), work(4_000)
    assert many <= few * 1.1


def test_a_word_that_is_pulled_apart_is_followed_letter_by_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as a word goes on so, and never farther than a word that anybody would pull apart."""
    steps = 0
    step = keywords._Tree.step

    def counted(self: keywords._Tree, node: int, part: str) -> int:
        nonlocal steps
        steps += 1
        return step(self, node, part)

    monkeypatch.setattr(keywords._Tree, "step", counted)
    for length, limit in ((3, 4), (CHAIN_MAX - 1, CHAIN_MAX), (CHAIN_MAX + 30, 0)):
        lexicon = Lexicon()
        lexicon.add(0, ["a" * length + "b"], whole_words=True, leet=False, field="words")
        ((_, find),) = lexicon.close()
        steps = 0
        assert list(find(View("a." * 500))) == []
        assert steps <= 2 * 500 * limit


def test_words_of_all_rules_are_bounded_together_but_for_our_own() -> None:
    chance = random.Random(3)
    words = tuple("".join(chance.choices("abcdefgh", k=9)) for _ in range(5_000))
    made_of(*(Keywords(words=words) for _ in range(WORDS_MAX // 5_000)), *(Profanity() for _ in range(80)))
    with pytest.raises(InputError) as caught:
        made_of(*(Keywords(words=words) for _ in range(WORDS_MAX // 5_000)), Keywords(words=("one",)))
    assert caught.value.field == "rules[4].matcher.words"
    assert "20,000" in caught.value.message


# Places


@pytest.mark.parametrize(
    ("matcher", "unit", "label"),
    [
        (Pii(labels=("ip",)), "::1 ", "ip"),
        (Profanity(), "fuck ", "profanity"),
        (Keywords(words=("ab", "ab c")), "ab ", "keyword"),
        (Urls(), "a.co ", "url"),
    ],
    ids=["addresses", "profanity", "words", "urls"],
)
async def test_of_too_many_places_the_whole_text_is_made_one(
    monkeypatch: pytest.MonkeyPatch, matcher: Matcher, unit: str, label: str
) -> None:
    monkeypatch.setattr("millpond_products.rules.ruleset.WorkBudget", lambda: WorkBudget(hits=50))
    assert HITS_MAX == 100_000
    few = await decide(unit * 20, matcher, action="redact")
    assert few.text.count(f"[{label.upper()}]") == 20
    text = unit * 200
    decision = await decide(text, matcher, action="redact")
    assert (decision.text, decision.more) == (f"[{label.upper()}]", 0)
    assert [(v.start, v.end, v.label) for v in decision.verdicts] == [(0, len(text), label)]


def test_names_within_names_are_not_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(text: str, start: int, end: int) -> Any:
        looks.append(start)
        return secrets._assigned(text, start, end)

    (shape,) = (shape for shape in secrets.SHAPES if shape.label == "secret")
    noted = type(shape)(shape.label, shape.pattern, look, shape.view)
    text = "key=" * 5_000 + "password=hunter22"
    spans = list(noted.find(View(text)))
    assert len(looks) <= len(text) // 512 + 20
    assert spans[-1][1] >= len(text) - len("hunter22")
    covered = sum(end - start for start, end in spans)
    assert covered > len(text) * 0.95, "a wall of names is taken whole"


# Values


async def test_a_long_name_is_not_copied_for_all_that_stands_below_it() -> None:
    value = {"k" * 120_000: ["a"] * 5_000}
    rules = made_of(Pii(labels=("email",)))
    await rules.decide_value({"k": ["a"]})
    tracemalloc.start()
    try:
        assert (await rules.decide_value(value)).outcome == "passed"
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


async def test_names_that_become_the_same_are_numbered_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    class Name(str):
        """One that counts how often it is held against another."""

        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            return super().__eq__(other)

        def __format__(self, spec: str) -> str:
            return Name(super().__format__(spec))

    monkeypatch.setattr("millpond_products.rules.ruleset._labelled", lambda text, _: Name("x") if "@" in text else text)
    value = {f"a{n}@example.com": 1 for n in range(300)}
    judged = await made_of(Pii(labels=("email",)), action="redact").decide_value(value)
    assert list(judged.value) == ["x", *(f"x {n}" for n in range(2, 301))]
    assert looks < 300 * 8
