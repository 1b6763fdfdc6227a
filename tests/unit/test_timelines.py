"""Timelines: how a job spent its time, read from what happened to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from millpond.engine.reads.timelines import Standing, Timeline, TimelineEvent, timeline

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def made(phase: str, *events: tuple[float, str], run: int = 1) -> Timeline:
    """A timeline of these events; a stage stands behind a colon."""
    happened = [
        TimelineEvent(n, at(second), word.partition(":")[0], stage=word.partition(":")[2] or None)
        for n, (second, word) in enumerate(events, 1)
    ]
    epoch = sum(event.type == "started" for event in happened)
    return timeline(Standing(phase, run, epoch), happened)


def spans(found: Timeline) -> list[tuple[str, str | None, int, float, float | None]]:
    def second(instant: datetime | None) -> float | None:
        return None if instant is None else (instant - NOON).total_seconds()

    return [(s.phase, s.stage, s.attempt, second(s.start) or 0.0, second(s.end)) for s in found.spans]


def test_a_job_that_could_start_at_once_did_not_wait_for_its_time() -> None:
    found = made("ended", (0, "submitted"), (0, "queued"), (2, "started"), (5, "succeeded"))
    assert spans(found) == [("ready", None, 0, 0, 2), ("leased", None, 1, 2, 5)]
    (attempt,) = found.attempts
    assert (attempt.number, attempt.start, attempt.end, attempt.outcome) == (1, at(2), at(5), "succeeded")


def test_a_job_that_stood_in_line_at_once_was_not_queued_later() -> None:
    assert spans(made("leased", (0, "submitted"), (2, "started")))[0] == ("ready", None, 0, 0, 2)
    assert spans(made("waiting", (0, "submitted"))) == [("waiting", None, 0, 0, None)]
    early = timeline(
        Standing("ended", 1, 0, at(60)), [TimelineEvent(1, at(0), "submitted"), TimelineEvent(2, at(9), "canceled")]
    )
    assert spans(early) == [("waiting", None, 0, 0, 9)]


def test_stages_part_an_attempt_and_what_is_open_has_no_end() -> None:
    found = made("leased", (0, "submitted"), (1, "queued"), (2, "started"), (3, "stage:a"), (4, "log"), (6, "stage:b"))
    assert spans(found) == [
        ("waiting", None, 0, 0, 1),
        ("ready", None, 0, 1, 2),
        ("leased", None, 1, 2, 3),
        ("leased", "a", 1, 3, 6),
        ("leased", "b", 1, 6, None),
    ]
    assert found.attempts[0].end is None
    assert found.attempts[0].outcome is None


def test_what_was_requeued_waits_for_its_time_if_it_is_queued_next() -> None:
    start = ((0, "submitted"), (0, "queued"), (1, "started"), (2, "requeued"))
    paused = made("leased", *start, (5, "queued"), (6, "started"))
    assert spans(paused)[2:] == [("waiting", None, 1, 2, 5), ("ready", None, 1, 5, 6), ("leased", None, 2, 6, None)]
    assert spans(made("leased", *start, (6, "started")))[2] == ("ready", None, 1, 2, 6)
    assert spans(made("waiting", *start))[2] == ("waiting", None, 1, 2, None)
    assert spans(made("ready", *start))[2] == ("ready", None, 1, 2, None)
    assert [attempt.outcome for attempt in paused.attempts] == ["requeued", None]


def test_a_parked_job_is_in_nobodys_hands_unless_its_answer_was_there() -> None:
    start = ((0, "submitted"), (0, "queued"), (1, "started"))
    parked = made("leased", *start, (2, "parked"), (7, "answered"), (8, "started"))
    assert spans(parked)[2:] == [("parked", None, 1, 2, 7), ("ready", None, 1, 7, 8), ("leased", None, 2, 8, None)]
    kept = made("ended", *start, (2, "answered"), (3, "succeeded"))
    assert spans(kept)[1:] == [("leased", None, 1, 1, 3)]
    assert [attempt.outcome for attempt in kept.attempts] == ["succeeded"]


def test_a_delivered_job_and_one_that_runs_once_more() -> None:
    found = made(
        "waiting",
        *((0, "submitted"), (0, "queued"), (1, "started"), (2, "delivering"), (9, "failed"), (20, "retried")),
        run=2,
    )
    assert spans(found)[2:] == [("delivering", None, 1, 2, 9), ("waiting", None, 1, 20, None)]
    again = made(
        "leased",
        *(
            (0, "submitted"),
            (0, "queued"),
            (1, "started"),
            (2, "failed"),
            (5, "retried"),
            (5, "queued"),
            (6, "started"),
        ),
        run=2,
    )
    assert [(attempt.number, attempt.run) for attempt in again.attempts] == [(1, 1), (2, 2)]


def test_one_attempt_goes_on_across_what_was_left_out() -> None:
    head = [TimelineEvent(1, at(0), "submitted"), TimelineEvent(2, at(0), "queued"), TimelineEvent(3, at(1), "started")]
    tail = [
        TimelineEvent(9_000, at(90), "log"),
        TimelineEvent(9_001, at(95), "stage", "b"),
        TimelineEvent(9_002, at(99), "succeeded"),
    ]
    found = timeline(Standing("ended", 1, 1), head + tail)
    assert found.left_out == 8_996
    assert spans(found) == [("ready", None, 0, 0, 1), ("leased", None, 1, 1, 95), ("leased", "b", 1, 95, 99)]
    assert [attempt.end for attempt in found.attempts] == [at(99)]


def test_of_attempts_that_were_left_out_nothing_is_said() -> None:
    head = [TimelineEvent(1, at(0), "submitted"), TimelineEvent(2, at(0), "queued"), TimelineEvent(3, at(1), "started")]
    tail = [
        TimelineEvent(9_000, at(90), "log"),
        TimelineEvent(9_001, at(95), "requeued"),
        TimelineEvent(9_002, at(99), "started"),
    ]
    found = timeline(Standing("leased", 1, 7), head + tail)
    assert [(each.number, each.outcome) for each in found.attempts] == [(1, None), (6, "requeued"), (7, None)]
    assert [each.end for each in found.attempts] == [at(1), at(95), None]
    assert spans(found)[1:] == [
        ("leased", None, 1, 1, 1),
        ("leased", None, 6, 90, 95),
        ("ready", None, 6, 95, 99),
        ("leased", None, 7, 99, None),
    ]


def test_a_job_of_which_nothing_is_known_has_no_timeline() -> None:
    assert timeline(Standing("ended", 1, 0), []) == Timeline()
