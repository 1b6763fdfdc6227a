"""Two members of one name are found at any depth, and nothing else is taken for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.api.members import check_unique
from millpond.errors import InvalidError

names = st.sampled_from(["a", "b", ":", '"', "\\", "é", "\u003a:", "long name"])
leaves = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | names
)
values = st.recursive(leaves, lambda below: st.lists(below) | st.dictionaries(names, below), max_leaves=20)


@given(values, st.booleans())
def test_objects_with_members_of_different_names_pass(value: Any, is_ascii: bool) -> None:  # noqa: FBT001 - drawn
    check_unique(json.dumps(value, ensure_ascii=is_ascii).encode())


@given(st.lists(names, min_size=1), values, st.booleans())
def test_a_member_that_is_given_twice_is_found(path: list[str], value: Any, is_ascii: bool) -> None:  # noqa: FBT001
    dump = json.JSONEncoder(ensure_ascii=is_ascii).encode
    text = f'{{"twice": {dump(value)}, "colon": "\\u003a", "twice": "::"}}'
    for name in path:
        text = f"[{dump(value)}, {{{dump(name)}: {text}}}]"
    with pytest.raises(InvalidError, match="more than once"):
        check_unique(text.encode())


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"kind": "a", "kind": "b"}', "kind"),
        ('{"kind": "a", "input": {"x": 1, "x": 1}}', "input.x"),
        ('{"jobs": [{}, {"input": {"a": [[], {"b": 1, "c": 2, "b": 3}]}}]}', "jobs[1].input.a[1].b"),
        ('{"k\\u0069nd": 1, "kind": 2}', "kind"),
        ('{"a": 1, "a": 2, "b": "\\u003a"}', "a"),
        ('{"a": 1, "a": 2, "b": "\\u003A"}', "a"),
        ('{"a": {"x": 1, "x": 2}, "a": 3}', "a"),
        ('{"a": ":", "a": "::"}', "a"),
        ('{"": 1, "": 2}', ""),
    ],
)
def test_the_error_names_the_member(text: str, field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        check_unique(text.encode())
    assert caught.value.field == field


def test_a_name_that_is_not_printable_is_made_so() -> None:
    with pytest.raises(InvalidError) as caught:
        check_unique(b'{"a\\u0000": 1, "a\\u0000": 2}')
    assert caught.value.field == "a\ufffd"
