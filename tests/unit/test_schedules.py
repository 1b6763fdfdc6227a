"""Due times: what a schedule means at the edges of the calendar, as tables; and what it may not mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import InvalidError
from millpond.schedules import Schedule, Timing

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
NUMBER = UUID("019b0000-0000-7000-8000-000000000000")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}Z")


def spelled(times: list[datetime]) -> list[str]:
    return [f"{each:%Y-%m-%d %H:%M}" for each in times]


TABLE = [
    # The last Sunday of March: 02:00 CET becomes 03:00 CEST. What is skipped is due at 03:00 CEST, 01:00 UTC.
    (BERLIN, "30 2 * * *", "2026-03-28T00:00", ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"]),
    (BERLIN, "0 2 * * *", "2026-03-28T00:00", ["2026-03-28 01:00", "2026-03-29 01:00", "2026-03-30 00:00"]),
    (BERLIN, "0 3 * * *", "2026-03-28T00:00", ["2026-03-28 02:00", "2026-03-29 01:00", "2026-03-30 01:00"]),
    (BERLIN, "*/20 2 * * *", "2026-03-28T01:30", ["2026-03-28 01:40", "2026-03-29 01:00", "2026-03-30 00:00"]),
    (BERLIN, "0 */2 * * *", "2026-03-28T22:30", ["2026-03-28 23:00", "2026-03-29 01:00", "2026-03-29 02:00"]),
    (BERLIN, "30 2 29 3 *", "2026-01-01T00:00", ["2026-03-29 01:00", "2027-03-29 00:30", "2028-03-29 00:30"]),
    # The last Sunday of October: 03:00 CEST becomes 02:00 CET. What is repeated is due the first time.
    (BERLIN, "30 2 * * *", "2026-10-24T00:00", ["2026-10-24 00:30", "2026-10-25 00:30", "2026-10-26 01:30"]),
    (BERLIN, "0 2 * * *", "2026-10-24T00:00", ["2026-10-24 00:00", "2026-10-25 00:00", "2026-10-26 01:00"][1:]),
    (BERLIN, "0 3 * * *", "2026-10-24T00:00", ["2026-10-24 01:00", "2026-10-25 02:00", "2026-10-26 02:00"]),
    (BERLIN, "*/20 2 * * *", "2026-10-25T00:10", ["2026-10-25 00:20", "2026-10-25 00:40", "2026-10-26 01:00"]),
    (BERLIN, "0 */2 * * *", "2026-10-24T21:30", ["2026-10-24 22:00", "2026-10-25 00:00", "2026-10-25 03:00"]),
    # Between the two times at which the clock shows 02:30.
    (BERLIN, "30 2 * * *", "2026-10-25T00:30", ["2026-10-26 01:30"]),
    (BERLIN, "30 2 * * *", "2026-10-25T01:10", ["2026-10-26 01:30"]),
    # The second Sunday of March, and the first one of November.
    (NEW_YORK, "30 2 * * *", "2026-03-07T00:00", ["2026-03-07 07:30", "2026-03-08 07:00", "2026-03-09 06:30"]),
    (NEW_YORK, "0 3 * * *", "2026-03-07T00:00", ["2026-03-07 08:00", "2026-03-08 07:00", "2026-03-09 07:00"]),
    (NEW_YORK, "30 1 * * *", "2026-10-31T00:00", ["2026-10-31 05:30", "2026-11-01 05:30", "2026-11-02 06:30"]),
    (NEW_YORK, "0 2 * * *", "2026-10-31T00:00", ["2026-10-31 06:00", "2026-11-01 07:00", "2026-11-02 07:00"]),
    (NEW_YORK, "15,45 1 * * SUN", "2026-10-31T00:00", ["2026-11-01 05:15", "2026-11-01 05:45", "2026-11-08 06:15"]),
    # Half an hour: 02:00 becomes 02:30 in October, and 01:30 in April.
    (LORD_HOWE, "15 2 * * *", "2026-10-02T00:00", ["2026-10-02 15:45", "2026-10-03 15:30", "2026-10-04 15:15"]),
    (LORD_HOWE, "0 2 * * *", "2026-10-02T00:00", ["2026-10-02 15:30", "2026-10-03 15:30", "2026-10-04 15:00"]),
    (LORD_HOWE, "30 2 * * *", "2026-10-02T00:00", ["2026-10-02 16:00", "2026-10-03 15:30", "2026-10-04 15:30"]),
    (LORD_HOWE, "*/10 2 * * *", "2026-10-03T15:00", ["2026-10-03 15:30", "2026-10-03 15:40", "2026-10-03 15:50"]),
    (LORD_HOWE, "45 1 * * *", "2026-04-03T00:00", ["2026-04-03 14:45", "2026-04-04 14:45", "2026-04-05 15:15"]),
    (LORD_HOWE, "30 1 * * *", "2026-04-03T00:00", ["2026-04-03 14:30", "2026-04-04 14:30", "2026-04-05 15:00"]),
    (LORD_HOWE, "0 2 * * *", "2026-04-03T00:00", ["2026-04-03 15:00", "2026-04-04 15:30", "2026-04-05 15:30"]),
    # An expression that names every hour follows the elapsed time through both.
    (BERLIN, "30 * * * *", "2026-03-29T00:00", ["2026-03-29 00:30", "2026-03-29 01:30", "2026-03-29 02:30"]),
    (BERLIN, "30 0-23 * * *", "2026-10-25T00:00", ["2026-10-25 00:30", "2026-10-25 01:30", "2026-10-25 02:30"]),
    (BERLIN, "*/30 * * * *", "2026-10-25T00:10", ["2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30"]),
    (NEW_YORK, "@hourly", "2026-11-01T04:30", ["2026-11-01 05:00", "2026-11-01 06:00", "2026-11-01 07:00"]),
    (LORD_HOWE, "*/15 * * * *", "2026-04-04T14:40", ["2026-04-04 14:45", "2026-04-04 15:00", "2026-04-04 15:15"]),
    (LORD_HOWE, "0 * * * *", "2026-10-03T14:00", ["2026-10-03 14:30", "2026-10-03 16:00", "2026-10-03 17:00"]),
    # Midnight, which the clock skips in Cairo.
    ("Africa/Cairo", "0 0 * * *", "2026-04-22T12:00", ["2026-04-22 22:00", "2026-04-23 22:00", "2026-04-24 21:00"]),
    # The calendar.
    ("UTC", "0 0 29 2 *", "2026-01-01T00:00", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
    (BERLIN, "0 12 29 2 *", "2096-01-01T00:00", ["2096-02-29 11:00", "2104-02-29 11:00", "2108-02-29 11:00"]),
    ("UTC", "0 0 29 2 MON", "2026-01-01T00:00", ["2026-02-02 00:00", "2026-02-09 00:00", "2026-02-16 00:00"]),
    ("UTC", "0 9 31 * *", "2026-01-31T12:00", ["2026-03-31 09:00", "2026-05-31 09:00", "2026-07-31 09:00"]),
    ("UTC", "0 9 L * *", "2026-01-31T12:00", ["2026-02-28 09:00", "2026-03-31 09:00", "2026-04-30 09:00"]),
    ("UTC", "0 9 * * MON#1", "2026-01-31T12:00", ["2026-02-02 09:00", "2026-03-02 09:00", "2026-04-06 09:00"]),
    ("UTC", "59 23 31 12 *", "2026-01-01T00:00", ["2026-12-31 23:59", "2027-12-31 23:59", "2028-12-31 23:59"]),
    ("Asia/Kolkata", "@daily", "2026-01-01T00:00", ["2026-01-01 18:30", "2026-01-02 18:30", "2026-01-03 18:30"]),
]


@pytest.mark.parametrize(("zone", "cron", "start", "expected"), TABLE, ids=lambda value: str(value)[:40])
def test_a_cron_expression_is_due(zone: str, cron: str, start: str, expected: list[str]) -> None:
    assert spelled(Timing(cron=cron, zone=zone).upcoming(utc(start), len(expected))) == expected


CHANGES = [
    (BERLIN, "2026-03-28T20:00"),
    (BERLIN, "2026-10-24T20:00"),
    (NEW_YORK, "2026-03-08T02:00"),
    (NEW_YORK, "2026-11-01T01:00"),
    (LORD_HOWE, "2026-10-03T10:00"),
    (LORD_HOWE, "2026-04-04T10:00"),
    ("Africa/Cairo", "2026-04-23T18:00"),
    ("America/Santiago", "2026-04-04T23:00"),
    ("Pacific/Apia", "2011-12-29T12:00"),
    ("UTC", "2026-03-28T20:00"),
]
CRONS = ["* * * * *", "*/15 * * * *", "45 * * * *", "*/20 1-3 * * *", "30 2 * * *", "0,30 0-5 * * *", "15 23,0,1 * * *"]
SPAN = 12 * HOUR


def expected_times(zone: str, cron: str, start: datetime) -> set[datetime]:
    """Minute by minute: the instants at which a clock of the zone shows a match, or skips one."""
    matching, found, seen = set(walls(cron, start)), set[datetime](), set[datetime]()
    is_elapsing = cron.split()[1] == "*"
    before = start.astimezone(ZoneInfo(zone)).replace(tzinfo=None) - MINUTE
    at = start
    while at < start + SPAN:
        wall = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        if is_elapsing:
            found |= {at} & ({at} if wall in matching else set())
        else:
            passed, each = set[datetime](), before + MINUTE
            while each <= wall:
                passed.add(each)
                each += MINUTE
            found |= {at} if (matching & passed) - seen else set()
            seen |= passed
        before = wall
        at += MINUTE
    return found


def walls(cron: str, start: datetime) -> list[datetime]:
    """The matches as a clock shows them, for two days around."""
    around = Timing(cron=cron).after(start - 36 * HOUR)
    return [each.replace(tzinfo=None) for each in takewhile(lambda each: each < start + 60 * HOUR, around)]


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize(("zone", "start"), CHANGES)
def test_due_times_are_those_that_a_clock_shows_or_skips(zone: str, start: str, cron: str) -> None:
    begin = utc(start)
    timing = Timing(cron=cron, zone=zone)
    found = list(takewhile(lambda each: each < begin + SPAN, timing.after(begin - MINUTE)))
    assert set(found) == expected_times(zone, cron, begin)
    assert found == sorted(set(found))


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize(("zone", "start"), CHANGES)
def test_due_times_are_the_same_from_every_moment_and_in_both_directions(zone: str, start: str, cron: str) -> None:
    begin, timing = utc(start), Timing(cron=cron, zone=zone)
    whole = list(takewhile(lambda each: each < begin + SPAN, timing.after(begin - MINUTE)))
    for number in range(0, 12 * 60, 37):
        at = begin + number * MINUTE + timedelta(seconds=number % 3, microseconds=number % 5)
        later = [each for each in whole if each > at]
        assert list(islice(timing.after(at), len(later))) == later
        earlier = [each for each in reversed(whole) if each <= at]
        assert list(islice(timing.before(at), len(earlier))) == earlier


def test_an_interval_is_counted_from_its_beginning_whatever_the_clock_shows() -> None:
    since = utc("2026-10-25T00:20")
    timing = Timing(every=HOUR, since=since)
    assert spelled(timing.upcoming(since, 3)) == ["2026-10-25 01:20", "2026-10-25 02:20", "2026-10-25 03:20"]
    assert timing.upcoming(since - 5 * HOUR, 1) == [since + HOUR]
    assert timing.upcoming(since + HOUR, 1) == [since + 2 * HOUR]
    assert list(timing.before(since + 2 * HOUR + MINUTE)) == [since + 2 * HOUR, since + HOUR]
    assert list(timing.before(since)) == []


def test_a_single_time_is_due_once() -> None:
    at = datetime(2026, 5, 1, 12, tzinfo=ZoneInfo(BERLIN))
    timing = Timing(at=at)
    assert timing.upcoming(FIRST, 10) == [utc("2026-05-01T10:00")]
    assert timing.upcoming(at, 10) == []
    assert list(timing.before(at)) == [at]
    assert list(timing.before(at - MINUTE)) == []


def test_jitter_delays_each_due_time_by_the_same_amount_in_every_process() -> None:
    timing = Timing(cron="0 * * * *", jitter=timedelta(minutes=10))
    delays = [timing.delayed(due_at, NUMBER) - due_at for due_at in timing.upcoming(FIRST, 50)]
    assert delays == [timing.delayed(due_at, NUMBER) - due_at for due_at in timing.upcoming(FIRST, 50)]
    assert all(timedelta(0) <= delay < timedelta(minutes=10) for delay in delays)
    assert len(set(delays)) == 50
    assert Timing(cron="0 * * * *").delayed(FIRST, NUMBER) == FIRST


REFUSED = [
    ({}, "cron", "Exactly one"),
    ({"cron": "* * * * *", "every": HOUR}, "every", "Exactly one"),
    ({"every": HOUR, "at": FIRST}, "at", "Exactly one"),
    ({"cron": ""}, "cron", "1 to 200"),
    ({"cron": "x" * 201}, "cron", "1 to 200"),
    ({"cron": 5}, "cron", "text"),
    ({"cron": "* * * *"}, "cron", "has 4 fields"),
    ({"cron": "0 * * * * *"}, "cron", "has 6 fields"),
    ({"cron": "61 * * * *"}, "cron", "bad minute"),
    ({"cron": "* 24 * * *"}, "cron", "bad hour"),
    ({"cron": "* * 0 * *"}, "cron", "bad day-of-month"),
    ({"cron": "* * * 13 *"}, "cron", "bad month"),
    ({"cron": "* * * * FOO"}, "cron", "bad day-of-week"),
    ({"cron": "*/0 * * * *"}, "cron", "bad minute"),
    ({"cron": "@reboot"}, "cron", "has 1 fields"),
    ({"cron": "0 0 30 2 *"}, "cron", "never"),
    ({"cron": "0 0 31 4,6,9,11 *"}, "cron", "never"),
    ({"cron": "0 0 */20 * 1L"}, "cron", "never"),
    ({"cron": "0 3 * * *", "zone": "Europe/Berln"}, "zone", "no time zone"),
    ({"cron": "0 3 * * *", "zone": "../../etc/passwd"}, "zone", "no time zone"),
    ({"cron": "0 3 * * *", "zone": "Europe"}, "zone", "no time zone"),
    ({"cron": "0 3 * * *", "zone": "a\0b" * 200}, "zone", "no time zone"),
    ({"cron": "0 3 * * *", "zone": None}, "zone", "no time zone"),
    ({"every": HOUR, "zone": BERLIN}, "zone", "cron expression only"),
    ({"every": timedelta(milliseconds=999)}, "every", "one second"),
    ({"at": datetime(2026, 1, 1)}, "at", "time zone"),  # noqa: DTZ001 - that is what is refused
    ({"cron": "* * * * *", "jitter": timedelta(seconds=61)}, "jitter", "longer"),
    ({"every": HOUR, "jitter": timedelta(hours=2)}, "jitter", "longer"),
]


@pytest.mark.parametrize(("given_", "field", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_never_due_is_refused_by_its_field(given_: dict[str, object], field: str, reason: str) -> None:
    with pytest.raises(InvalidError, match=reason) as caught:
        Timing(**given_)  # pyright: ignore[reportArgumentType] - that is what is refused
    assert caught.value.field == field


def test_a_misspelled_zone_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(InvalidError) as caught:
        Timing(cron="@daily", zone="europe/berlin")
    assert caught.value.hint == "Did you mean 'Europe/Berlin'?"


@given(st.text(alphabet="0123456789*/-,#LWMONSUNJAN ", min_size=1, max_size=40))
@settings(deadline=None, max_examples=300)
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    refused: str | None = None
    try:
        assert Timing(cron=text).upcoming(FIRST, 1)
    except InvalidError as error:
        refused = error.field
    assert refused in {None, "cron"}


DECLARED = [
    ({"name": "a b"}, "name"),
    ({"kind": ""}, "kind"),
    ({"tenant": "ä"}, "tenant"),
    ({"account": "x" * 129}, "account"),
    ({"overlap": "wait"}, "overlap"),
    ({"catch_up": "some"}, "catch_up"),
    ({"catch_up_max": 0}, "catch_up_max"),
    ({"catch_up_max": 1_001}, "catch_up_max"),
    ({"catch_up_max": True}, "catch_up_max"),
    ({"priority": 101}, "priority"),
    ({"tags": {f"t{n}": "" for n in range(16)}}, "tags"),
    ({"due_field": ""}, "due_field"),
    ({"due_field": "x" * 129}, "due_field"),
    ({"due_field": "at", "input": [1]}, "due_field"),
]


@pytest.mark.parametrize(("given_", "field"), DECLARED, ids=lambda value: str(value)[:40])
def test_a_declaration_is_refused_by_its_field(given_: dict[str, object], field: str) -> None:
    valid = {"name": "nightly", "kind": "report", "timing": Timing(cron="@daily")}
    assert Schedule(**valid)  # pyright: ignore[reportArgumentType] - a table
    with pytest.raises(InvalidError) as caught:
        Schedule(**valid | given_)  # pyright: ignore[reportArgumentType] - a table
    assert caught.value.field == field


def test_a_job_is_tagged_with_its_schedule_and_may_learn_its_due_time() -> None:
    made = Schedule("nightly", "report", Timing(cron="@daily"), input={"a": 1}, due_field="day", tags={"team": "ads"})
    assert made.job_tags == {"schedule": "nightly", "team": "ads"}
    assert made.input_at(FIRST) == {"a": 1, "day": "2026-01-01T00:00:00+00:00"}
    assert made.input == {"a": 1}
