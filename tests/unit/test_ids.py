"""Ids: the same thing inside and outside, in the same order."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import ids
from millpond.errors import NotFoundError

uuids = st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))


@given(uuids)
def test_text_and_back_is_the_same_id(value: UUID) -> None:
    assert ids.parse("job", ids.text("job", value)) == value


@given(uuids, uuids)
def test_text_sorts_as_ids_do(one: UUID, other: UUID) -> None:
    assert (ids.text("job", one) < ids.text("job", other)) == (one < other)


@given(st.text(max_size=60))
def test_what_is_no_id_of_ours_is_simply_not_found(given: str) -> None:
    try:
        found = ids.parse("job", given)
    except NotFoundError:
        return
    assert ids.text("job", found) == given


@pytest.mark.parametrize(
    "given",
    [
        "",
        "job_",
        "job",
        "01k9zzzzzzzzzzzzzzzzzzzzzz",
        "account_00000000000000000000000000",
        "job_0000000000000000000000000",  # a character short
        "job_000000000000000000000000000",  # a character long
        "job_0000000000000000000000000u",  # not in the alphabet
        "job_8zzzzzzzzzzzzzzzzzzzzzzzzz",  # beyond 128 bits
        "job_zzzzzzzzzzzzzzzzzzzzzzzzzz",
        "job_\x00000000000000000000000000",
    ],
)
def test_a_malformed_id_is_not_found(given: str) -> None:
    with pytest.raises(NotFoundError, match="is not the id of a job"):
        ids.parse("job", given)


@pytest.mark.parametrize("given", [None, 7, b"job_00000000000000000000000000", ["job"]])
def test_a_thing_that_is_no_text_is_not_found(given: object) -> None:
    with pytest.raises(NotFoundError, match="is not the id of a job"):
        ids.parse("job", given)  # pyright: ignore[reportArgumentType]


def test_an_id_that_is_one_already_is_taken_as_it_is() -> None:
    value = ids.new()
    assert ids.parse("job", value) is value


def test_new_ids_grow_with_time() -> None:
    made = [ids.new() for _ in range(1_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {value.version for value in made} == {7}


def test_an_id_has_one_spelling() -> None:
    start, _, letters = ids.text("job", ids.new()).partition("_")
    for other in (f"{start}_{letters.upper()}", f"{start.upper()}_{letters}", f"job_{'0' * 25}\u0661"):
        with pytest.raises(NotFoundError):
            ids.parse("job", other)
