"""The tree of errors: what is drawn is what there is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from millpond import errors
from millpond.errors import InputError, MillpondError

if TYPE_CHECKING:
    from collections.abc import Iterator


def walk(top: type[MillpondError]) -> Iterator[type[MillpondError]]:
    yield top
    for below in top.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from walk(below)


TREE = list(walk(MillpondError))


def drawn() -> list[tuple[str, int]]:
    """Names and depths of the tree in the module's docstring."""
    lines = (errors.__doc__ or "").splitlines()
    found = [re.match(r"^    ([│├└─ ]*)(\w+Error)\b", line) for line in lines]
    return [(match[2], len(match[1]) // 4) for match in found if match]


def test_the_tree_is_drawn_as_it_is() -> None:
    assert drawn() == [(error.__name__, len(error.__mro__) - len(MillpondError.__mro__)) for error in TREE]


def test_codes_are_unique() -> None:
    codes = [error.code for error in TREE]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
def test_each_says_what_it_means(error: type[MillpondError]) -> None:
    """A docstring that is a sentence is the default message; a code, a status and a flag are there."""
    assert error.__doc__
    assert "code" in vars(error)
    assert re.fullmatch(r"[a-z_]+", error.code)
    assert 400 <= error.status < 600
    raised = error()
    assert raised.message == error.__doc__.splitlines()[0]
    assert raised.message.endswith(".")
    assert raised.as_dict() == {"code": error.code, "message": raised.message}


def test_an_error_reports_its_field_hint_and_details() -> None:
    error = InputError("It is wrong.", field="input.a", hint="Do it right.", given=7)
    assert str(error) == "input.a: It is wrong. Do it right."
    assert error.as_dict() == {
        "code": "invalid_input",
        "message": "It is wrong.",
        "field": "input.a",
        "hint": "Do it right.",
        "given": 7,
    }
