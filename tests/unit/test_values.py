"""What may come in from outside, and what is refused with the place where it stands."""

from __future__ import annotations

import json
import math
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import values
from millpond.errors import AmountError, IdempotencyKeyError, InputError, InvalidError, MillpondError

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20),
    lambda child: (
        st.lists(child, max_size=4) | st.dictionaries(st.from_regex(r"\w{1,5}", fullmatch=True), child, max_size=4)
    ),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    """As many lists around nothing."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@given(json_values)
def test_json_goes_through_unchanged(value: Any) -> None:
    assert json.loads(values.encode(value, field="input")) == value


REFUSED = {
    "a NUL": ({"a": "x\x00y"}, "input.a", "NUL"),
    "a NUL in a name": ({"a": {"b\x00": 1}}, "input.a", "NUL"),
    "lone surrogate": ({"a": ["\ud800"]}, "input.a[0]", "surrogate"),
    "lone surrogate in a name": ({"\udfff": 1}, "input", "surrogate"),
    "NaN": ({"a": [1, math.nan]}, "input.a[1]", "not a JSON number"),
    "infinity": ({"a": math.inf}, "input.a", "not a JSON number"),
    "minus infinity": (-math.inf, "input", "not a JSON number"),
    "2**63": ({"a": {"b": 2**63}}, "input.a.b", "64 bits"),
    "-2**63": (-(2**63), "input", "64 bits"),
    "a number of a thousand digits": (10**1000, "input", "64 bits"),
    "33 levels": (nested(33), "input" + "[0]" * 32, "32 levels"),
    "a thousand levels": (nested(1_000), "input" + "[0]" * 32, "32 levels"),
    "a name that is no text": ({"a": {1: 2}}, "input.a", "Member names must be text"),
    "a thing": ({"a": object()}, "input.a", "not a JSON value"),
    "a thing that hides a NUL": ({"a": {"b\x00"}}, "input.a[0]", "NUL"),
    "a thing that hides NaN": ([{math.nan}], "input[0][0]", "not a JSON number"),
    "a function": (len, "input", "not a JSON value"),
    "too many bytes": ("x" * (256 * 1024 - 1), "input", r"262,145 bytes of JSON; the limit is 262,144"),
}


@pytest.mark.parametrize(("value", "field", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_json_or_the_database_cannot_hold_is_refused(value: Any, field: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        values.encode(value, field="input")
    assert caught.value.field == field


ACCEPTED = {
    "the largest number": 2**63 - 1,
    "the smallest number": -(2**63) + 1,
    "the longest float": 1.7976931348623157e308,
    "32 levels": nested(32),
    "all the bytes": "x" * (256 * 1024 - 2),
    "an emoji": "🙂",
    "nothing": None,
    "an empty name": {"": 1},
}


@pytest.mark.parametrize("value", ACCEPTED.values(), ids=ACCEPTED)
def test_the_limits_themselves_are_allowed(value: Any) -> None:
    assert json.loads(values.encode(value, field="input")) == value


def test_what_has_a_json_form_is_written_in_it() -> None:
    instant = datetime(2026, 1, 2, tzinfo=UTC)
    assert (
        values.encode({"at": instant, "parts": (1, 2)}, field="output") == '{"at":"2026-01-02T00:00:00Z","parts":[1,2]}'
    )


def test_a_place_far_inside_is_reported_in_few_words() -> None:
    with pytest.raises(InputError) as caught:
        values.encode({"n" * 1_000: "\x00"}, field="input")
    assert len(str(caught.value.field)) <= 200


@pytest.mark.parametrize("name", ["a", "acme", "Acme-1", "a.b:c@d+e/f_g", "x" * 128])
def test_a_name_is_short_and_printable(name: str) -> None:
    assert values.check_name(name, field="tenant") == name


@pytest.mark.parametrize("name", ["", "a b", "é", "a\n", "\x00", "x" * 129, None, 7, b"a", "a;b"])
def test_any_other_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidError) as caught:
        values.check_name(name, field="tenant")
    assert caught.value.field == "tenant"


@pytest.mark.parametrize("key", ["k", "order-7 ".strip(), '!"#$%&~', "k" * 255])
def test_a_key_is_printable_ascii(key: str) -> None:
    assert values.check_key(key) == key


@pytest.mark.parametrize("key", ["", " ", "a b", "k" * 256, "é", "a\x00", "a\n", "\ud800", None, 7])
def test_any_other_key_is_refused(key: Any) -> None:
    with pytest.raises(IdempotencyKeyError) as caught:
        values.check_key(key)
    assert caught.value.field == "idempotency_key"


@pytest.mark.parametrize("amount", [0, 1, 10**12])
def test_an_amount_is_a_whole_number_of_credits(amount: int) -> None:
    assert values.check_amount(amount, field="amount") == amount


@pytest.mark.parametrize("amount", [-1, 10**12 + 1, 2**63, 1.0, math.nan, True, "5", None])
def test_any_other_amount_is_refused(amount: Any) -> None:
    with pytest.raises(AmountError) as caught:
        values.check_amount(amount, field="amount")
    assert caught.value.field == "amount"


@pytest.mark.parametrize("priority", [-100, 0, 100])
def test_a_priority_has_two_hundred_and_one_steps(priority: int) -> None:
    assert values.check_priority(priority) == priority


@pytest.mark.parametrize("priority", [-101, 101, 0.5, True, "1", None])
def test_any_other_priority_is_refused(priority: Any) -> None:
    with pytest.raises(InvalidError) as caught:
        values.check_priority(priority)
    assert caught.value.field == "priority"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("250ms", 0.25),
        ("90s", 90),
        ("15m", 900),
        ("1.5h", 5_400),
        ("2d", 172_800),
        (timedelta(minutes=1), 60),
        (timedelta(days=3650), 3650 * 86_400),
    ],
)
def test_a_length_of_time_has_many_spellings(given: Any, seconds: float) -> None:
    assert values.duration(given, field="expires_in") == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "given",
    [
        *(0, -1, "0s", timedelta(0), timedelta(seconds=-1), "3651d", timedelta(days=3651)),
        *("", "1", "1w", "s", "1 h", "-1s", "1h30m", None, True, [], "x" * 1_000),
        *(math.nan, math.inf, -math.inf, 1e300, "9" * 400 + "d", "99999999999999d"),
    ],
)
def test_any_other_length_of_time_is_refused(given: Any) -> None:
    with pytest.raises(InvalidError) as caught:
        values.duration(given, field="expires_in")
    assert caught.value.field == "expires_in"
    assert len(str(caught.value)) < 300


@given(st.text() | st.binary().map(repr) | st.just("\ud800\x00"))
def test_text_from_a_worker_is_always_made_storable(text: str) -> None:
    clean = values.printable(text, 10)
    assert len(clean) <= 11
    values.check(clean, field="log")


@given(st.one_of(json_values, st.floats(), st.binary(), st.sets(st.floats()), st.text(), st.dates()))
def test_whatever_is_refused_is_refused_in_our_own_words(value: Any) -> None:
    try:
        text = values.encode(value, field="input")
    except MillpondError:
        return
    assert "\x00" not in json.loads(f"[{text}]")


def test_where_each_thing_stands_is_not_kept_for_all_of_them() -> None:
    """A name of 20,000 characters above 5,000 numbers: their paths, written out, would be 200 MB."""
    wide = {"ü" * 20_000: [[0] * 5_000], "bad": "\x00"}
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            values.check(wide, field="input")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.field == "input.bad"
    assert peak < 10_000_000


def test_a_place_is_reported_with_its_names_cut() -> None:
    with pytest.raises(InputError) as caught:
        values.encode({"n" * 1_000: [{"a": math.nan}]}, field="input")
    assert caught.value.field == f"input.{'n' * 60}[0].a"


def test_what_is_too_long_is_not_looked_through() -> None:
    with pytest.raises(InputError, match="the limit is 100"):
        values.encode({"a": ["ü" * 200, "\x00"]}, field="input", limit=100)
