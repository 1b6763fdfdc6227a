"""``@app.schedule``: what is declared beside a kind, and what is refused when the module is loaded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millpond.app import Millpond
from millpond.errors import InvalidError, LifecycleError
from millpond.schedules import Schedule, Timing


def app_with(*schedules: dict[str, Any], name: str | None = None) -> Millpond:
    app = Millpond(name)

    @app.kind("report")
    def report(job: Any, days: int = 1) -> None:
        """Writes a report."""

    for options in schedules:
        app.schedule(**options)(report)
    return app


def test_the_decorator_stands_above_or_below_the_kind() -> None:
    app = Millpond()

    @app.schedule("@daily", name="above")
    @app.kind("first")
    def first(job: Any) -> None:
        """A kind."""

    @app.kind("second")
    @app.schedule("@daily", name="below")
    def second(job: Any) -> None:
        """A kind."""

    app.schedule("@daily", kind="second", name="apart")
    assert [(each.name, each.kind) for each in app.schedules] == [
        ("above", "first"),
        ("below", "second"),
        ("apart", "second"),
    ]
    assert first(None) is None


def test_a_declaration_has_every_option() -> None:
    (schedule,) = app_with(
        {
            "cron": "0 3 * * *",
            "zone": "Europe/Berlin",
            "jitter": "5m",
            "tenant": "acme",
            "account": "ann",
            "input": {"days": 7},
            "due_field": "day",
            "overlap": "skip",
            "catch_up": "all",
            "catch_up_max": 7,
            "priority": 5,
            "expires_in": "1h",
            "tags": {"team": "ads"},
        }
    ).schedules
    assert schedule == Schedule(
        "report",
        "report",
        Timing("0 3 * * *", zone="Europe/Berlin", jitter=timedelta(minutes=5)),
        tenant="acme",
        account="ann",
        input={"days": 7},
        due_field="day",
        overlap="skip",
        catch_up="all",
        catch_up_max=7,
        priority=5,
        expires_in=timedelta(hours=1),
        tags={"team": "ads"},
    )


def test_without_a_name_and_an_owner_there_are_defaults() -> None:
    (schedule,) = app_with({"every": timedelta(minutes=1)}).schedules
    assert (schedule.name, schedule.tenant, schedule.account, schedule.input) == ("report", "default", "default", {})


REFUSED = [
    ({"cron": "61 * * * *"}, "cron"),
    ({"cron": "0 0 30 2 *"}, "cron"),
    ({"cron": "@daily", "zone": "Nowhere"}, "zone"),
    ({}, "cron"),
    ({"every": "often"}, "every"),
    ({"at": datetime(2026, 1, 1)}, "at"),  # noqa: DTZ001 - that is what is refused
    ({"cron": "@daily", "overlap": "wait"}, "overlap"),
    ({"cron": "@daily", "tags": {"a b": "c"}}, "tags"),
    ({"cron": "@daily", "input": {"a": float("nan")}}, "input.a"),
    ({"cron": "@daily", "tenant": "not a name"}, "tenant"),
]


@pytest.mark.parametrize(("options", "field"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_mistake_is_refused_when_it_is_declared(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        app_with(options)
    assert caught.value.field == field


def test_a_name_is_given_once_in_a_tenant() -> None:
    app = app_with({"cron": "@daily"}, {"cron": "@hourly"})
    with pytest.raises(LifecycleError, match="declared more than once"):
        _ = app.schedules
    assert len(app_with({"cron": "@daily"}, {"cron": "@daily", "tenant": "acme"}).schedules) == 2


def test_a_function_that_is_no_kind_or_several_is_refused() -> None:
    app = Millpond()

    def plain(job: Any) -> None:
        """Is no kind."""

    app.schedule("@daily")(plain)
    with pytest.raises(LifecycleError, match="'plain' is the handler of no kind"):
        _ = app.schedules
    app.kind("one")(plain)
    assert [each.kind for each in app.schedules] == ["one"]
    app.kind("two")(plain)
    with pytest.raises(LifecycleError, match="the kinds one, two"):
        _ = app.schedules


def test_a_name_of_an_app_is_checked() -> None:
    assert Millpond("shop").name == "shop"
    with pytest.raises(InvalidError):
        Millpond("not a name")


def test_an_app_takes_schedules_that_were_created_elsewhere() -> None:
    app = app_with()
    schedule = Schedule("once", "report", Timing(at=datetime(2030, 1, 1, tzinfo=UTC)))
    app.add_schedule(schedule)
    assert app.schedules == (schedule,)
