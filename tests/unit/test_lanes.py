"""Where a claim begins to look: after the last place it came to, and now and then at the head of the line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from millpond.engine.queue.dispatches import Lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

SOON = 10.0
LATER = 100.0


def row(queue: str, number: int, *, rank: int = 0, turn: int = 0) -> Any:
    return {"queue": queue, "rank": rank, "turn": turn, "job_id": UUID(int=number)}


def rows(lanes: Lanes, now: float) -> tuple[bool, list[Sequence[object]]]:
    whole, columns = lanes.columns(now)
    return whole, list(zip(*columns, strict=True))


def after_a_claim(*found: Any) -> Lanes:
    lanes = Lanes(["a", "b"])
    lanes.columns(SOON)
    lanes.claimed(found, whole=True, took=0.0)
    return lanes


def test_the_first_look_is_at_the_whole_line() -> None:
    whole, lanes = rows(Lanes(["a", "b"]), SOON)
    assert whole
    assert lanes == [("a", -32768, 32767, -1, UUID(int=0)), ("b", -32768, 32767, -1, UUID(int=0))]


def test_the_next_begins_after_the_last_job_of_each_queue_and_rank() -> None:
    lanes = after_a_claim(row("a", 1), row("a", 2), row("a", 3, rank=5, turn=9), row("b", 4))
    whole, places = rows(lanes, SOON + 0.5)
    assert not whole
    assert places == [("a", 0, 0, 0, UUID(int=2)), ("a", 5, 5, 9, UUID(int=3)), ("b", 0, 0, 0, UUID(int=4))]


def test_the_whole_line_is_looked_at_again_after_a_second() -> None:
    lanes = after_a_claim(row("a", 1))
    assert not rows(lanes, SOON + 0.99)[0]
    assert rows(lanes, SOON + 1.0)[0]


def test_a_dear_look_is_taken_less_often() -> None:
    lanes = Lanes(["a"])
    lanes.columns(SOON)
    lanes.claimed([row("a", 1)], whole=True, took=0.5)
    assert not rows(lanes, SOON + 10.0)[0]
    assert rows(lanes, SOON + 11.0)[0]


def test_an_empty_line_is_not_looked_at_from_the_places_of_old() -> None:
    lanes = after_a_claim(row("a", 1))
    lanes.columns(LATER)
    lanes.claimed([], whole=True, took=0.0)
    assert rows(lanes, LATER + 0.5) == (False, [])


def test_a_notification_from_a_queue_without_a_place_leads_to_the_head_at_once() -> None:
    lanes = after_a_claim(row("a", 1))
    lanes.notified({"a"})
    assert not rows(lanes, SOON + 0.5)[0]
    lanes.notified({"b"})
    assert rows(lanes, SOON + 0.5)[0]


def test_a_notification_from_behind_our_place_leads_to_the_head_at_once() -> None:
    lanes = after_a_claim(row("a", 1), row("b", 1))
    lanes.rescan()
    assert rows(lanes, SOON + 0.5)[0]


def test_a_notification_while_the_whole_line_is_looked_at_is_not_forgotten() -> None:
    lanes = Lanes(["a"])
    lanes.columns(SOON)
    lanes.notified({"a"})
    lanes.claimed([], whole=True, took=0.0)
    assert rows(lanes, SOON + 0.1)[0]
