"""The test kit as its users have it: real tests of a small product, run by a pytest of their own."""

from __future__ import annotations

import textwrap
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.databases import DatabaseServer

Run: TypeAlias = "Callable[..., pytest.RunResult]"

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

PRODUCT = """
    import asyncio

    from millpond import Job, PermanentError, Millpond, TransientError

    app = Millpond()


    @app.kind("count", price=2)
    def count(job: Job, text: str) -> dict:
        if text == "flaky" and job.attempt < 3:
            raise TransientError("Not now.")
        if text == "bad":
            raise PermanentError("Never.")
        return {"words": len(text.split())}


    @app.kind("slow", price=1, expires_in="1h")
    async def slow(job: Job) -> str:
        await asyncio.sleep(0)
        return asyncio.current_task().get_loop().__class__.__name__


    @app.kind("ask", expires_in="1h")
    def ask(job: Job) -> object:
        if job.answer is None:
            job.park({"asked": True})
        return job.answer
"""
SETTINGS = """
    [pytest]
    millpond_app = product:app
    filterwarnings = error
"""


@pytest.fixture
def run(pytester: pytest.Pytester, server: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run tests of the product in a process of its own; tells the outcomes."""
    monkeypatch.setenv("TEST_DATABASE_URL", server.dsn)
    installed = [point for point in entry_points(group="pytest11") if point.value == "millpond.testing.plugin"]

    def tests(text: str, *options: str, settings: str = SETTINGS) -> pytest.RunResult:
        pytester.makepyfile(product=textwrap.dedent(PRODUCT), test_it=textwrap.dedent(text))
        pytester.makeini(textwrap.dedent(settings))
        loaded = () if installed else ("-p", "millpond.testing.plugin")
        return pytester.runpytest_subprocess("-q", *loaded, *options)

    return tests


def passed(result: pytest.RunResult, count: int) -> None:
    result.assert_outcomes(passed=count)
    assert result.ret == 0


def test_pytest_finds_the_plugin_by_itself() -> None:
    (found,) = [point for point in entry_points(group="pytest11") if point.name == "millpond"]
    assert found.value == "millpond.testing.plugin"


# What a test can do


def test_a_plain_test_submits_runs_and_looks(run: Run) -> None:
    passed(
        run(
            """
            def test_words(millpond_app):
                millpond_app.wallet().grant(10)
                submitted = millpond_app.submit("count", {"text": "one two"})
                assert millpond_app.wallet().held == 2
                assert millpond_app.drain() == 1
                job = millpond_app.job(submitted)
                assert (job.state, job.output, job.captured) == ("succeeded", {"words": 2}, 2)
                assert millpond_app.job(job.id) == millpond_app.job(job) == millpond_app.job(job.job_id) == job
                assert [event.type for event in millpond_app.events(job)] == ["submitted", "started", "succeeded"]
                wallet = millpond_app.wallet()
                assert (wallet.available, wallet.held, wallet.balance.active) == (8, 0, 0)
                assert [entry.type for entry in wallet.entries()] == ["capture", "hold", "grant"]
                millpond_app.assert_ledger_balanced()


            def test_each_test_has_a_database_of_its_own(millpond_app):
                assert millpond_app.jobs() == []
                assert millpond_app.wallet().available == 0
            """
        ),
        2,
    )


def test_an_async_test_awaits_the_drain_and_its_handlers_run_on_its_loop(run: Run) -> None:
    passed(
        run(
            """
            import asyncio

            import pytest

            from millpond import Engine
            from product import app

            seen = []

            @pytest.fixture
            def anyio_backend():
                return "asyncio"

            @app.kind("where")
            async def where(job):
                seen.append(asyncio.get_running_loop())

            @pytest.mark.anyio
            async def test_it(millpond_app):
                millpond_app.submit("where")
                assert await millpond_app.drain() == 1
                assert seen == [asyncio.get_running_loop()]

            @pytest.mark.anyio
            async def test_an_engine_of_its_own(millpond_app):
                engine = await Engine.open(millpond_app.dsn, app)
                await engine.submit("where", tenant="acme", account="ann")
                await engine.close()
                await millpond_app.drain()
                assert millpond_app.assert_submitted("where", tenant="acme").state == "succeeded"

            def test_a_loop_that_the_test_makes_itself(millpond_app):
                async def play():
                    millpond_app.submit("where")
                    return await millpond_app.drain()

                assert asyncio.run(play()) == 1
            """
        ),
        3,
    )


def test_time_passes_from_one_attempt_to_the_next(run: Run) -> None:
    passed(
        run(
            """
            from datetime import timedelta

            def test_back_off(millpond_app):
                millpond_app.wallet().grant(10)
                job = millpond_app.submit("count", {"text": "flaky"})
                assert millpond_app.drain() == 1
                assert millpond_app.job(job).phase == "waiting"
                before = millpond_app.now
                assert millpond_app.drain(advance="1h") == 2
                assert millpond_app.job(job).state == "succeeded"
                assert timedelta(0) <= millpond_app.now - before - timedelta(hours=1) < timedelta(minutes=1)

            def test_a_job_for_later(millpond_app):
                millpond_app.submit("ask", run_at=millpond_app.now + timedelta(days=2), expires_in="1d")
                assert millpond_app.drain(advance="1d") == 0
                assert millpond_app.drain(advance="1d") == 1
                assert millpond_app.drain(advance="2d") == 0
                assert millpond_app.assert_submitted("ask").state == "expired"

            def test_a_deadline(millpond_app):
                job = millpond_app.submit("ask")
                millpond_app.advance("2h")
                assert millpond_app.drain() == 0
                assert millpond_app.job(job).state == "expired"

            def test_a_worker_that_falls_silent(millpond_app):
                job = millpond_app.submit("ask")
                assert millpond_app.lose_worker("ask").phase == "leased"
                assert millpond_app.drain() == 0
                assert millpond_app.drain(advance="2m") == 1
                assert millpond_app.answer(job, 7).state == "queued"
                millpond_app.drain()
                assert millpond_app.job(job).output == 7
                assert "requeued" in [event.type for event in millpond_app.events(job)]
            """
        ),
        4,
    )


def test_a_kind_can_be_made_to_fail(run: Run) -> None:
    passed(
        run(
            """
            import pytest

            from millpond import PermanentError, MillpondError

            @pytest.mark.parametrize("kind", ["count", "slow"])
            def test_for_a_passing_reason(millpond_app, kind):
                millpond_app.wallet().grant(10)
                millpond_app.fail_next(kind, times=3)
                job = millpond_app.submit(kind, {"text": "x"} if kind == "count" else None)
                millpond_app.drain(advance="59m")
                job = millpond_app.job(job)
                assert (job.state, job.attempts, job.error["code"]) == ("failed", 3, "transient")
                assert millpond_app.wallet().available == 10

            def test_for_good_and_once(millpond_app):
                millpond_app.wallet().grant(10)
                millpond_app.fail_next("count", PermanentError("No."))
                jobs = [millpond_app.submit("count", {"text": "x"}) for _ in range(2)]
                millpond_app.drain()
                assert sorted(millpond_app.job(job).state for job in jobs) == ["failed", "succeeded"]

            def test_a_kind_that_is_not_there(millpond_app):
                with pytest.raises(MillpondError, match="no kind"):
                    millpond_app.fail_next("cuont")
            """
        ),
        4,
    )


def test_what_was_submitted_is_asserted(run: Run) -> None:
    passed(
        run(
            """
            import pytest

            def test_it(millpond_app):
                millpond_app.wallet("acme", "ann").grant(10)
                millpond_app.submit("count", {"text": "a"}, tenant="acme", account="ann", priority=5)
                last = millpond_app.submit("count", {"text": "b"}, tenant="acme", account="ann")
                assert millpond_app.assert_submitted("count").id == last.id
                assert millpond_app.assert_submitted("count", input__text="a", priority=5).tenant == "acme"
                assert millpond_app.assert_submitted("count", tenant="acme", times=2)
                millpond_app.assert_not_submitted("count", input__text="c")
                millpond_app.assert_not_submitted("count", input__text__deeper="a")
                millpond_app.assert_not_submitted("slow")
                with pytest.raises(AssertionError, match="0 jobs of 'count' match .*'c'.*at least one") as caught:
                    millpond_app.assert_submitted("count", input__text="c")
                assert last.id in str(caught.value)
                with pytest.raises(AssertionError, match="2 jobs .* expected 3"):
                    millpond_app.assert_submitted("count", times=3)
                with pytest.raises(AssertionError, match="1 jobs .* expected none"):
                    millpond_app.assert_not_submitted("count", input__text="a")
                with pytest.raises(AssertionError, match="No job of 'slow' is ready"):
                    millpond_app.lose_worker("slow")
                assert millpond_app.cancel(last).state == "canceled"
                millpond_app.wallet("acme", "ann").set_cap(1)
                assert millpond_app.drain() == 1

            def test_an_empty_lab_says_so(millpond_app):
                with pytest.raises(AssertionError, match="Jobs:\\\\s+no jobs"):
                    millpond_app.assert_submitted("count")
            """
        ),
        2,
    )


# What it checks


SPOILED = """
    import psycopg
    import pytest

    def spoil(harness):
        harness.wallet().grant(10)
        with psycopg.connect(harness.dsn) as connection:
            connection.execute("update millpond.accounts set available = 11")

    {mark}
    def test_it(millpond_app):
        spoil(millpond_app)
        with pytest.raises(AssertionError, match="account_equals_its_entries"):
            millpond_app.assert_ledger_balanced()
"""


def test_a_test_that_leaves_the_ledger_wrong_is_an_error(run: Run) -> None:
    result = run(SPOILED.format(mark=""))
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*account_equals_its_entries*"])


def test_unless_it_says_that_it_means_to(run: Run) -> None:
    passed(run(SPOILED.format(mark="@pytest.mark.millpond_unsound"), "--strict-markers"), 1)


# Where things come from


def test_a_run_that_names_no_product_is_shown_how(run: Run) -> None:
    result = run("def test_it(millpond_app): ...", settings="[pytest]")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*millpond_app = *shop.jobs:app*millpond_product*"])


def test_product_and_tables_may_be_given_by_fixtures(run: Run) -> None:
    passed(
        run(
            """
            import psycopg
            import pytest

            from millpond.engine.jobs.transactions import submit_in

            @pytest.fixture(scope="session")
            def millpond_product():
                from product import app

                return app

            @pytest.fixture(scope="session")
            def millpond_setup():
                def make(dsn):
                    with psycopg.connect(dsn) as connection:
                        connection.execute("create table public.orders (text text)")

                return make

            @pytest.mark.parametrize("way", ["commit", "rollback"])
            def test_order_and_job(millpond_app, millpond_product, way):
                millpond_app.wallet().grant(10)
                owner = {"tenant": "test", "account": "test"}
                with psycopg.connect(millpond_app.dsn) as connection:
                    connection.execute("insert into public.orders values ('a b')")
                    submit_in(connection, millpond_product, "count", {"text": "a b"}, **owner)
                    getattr(connection, way)()
                assert millpond_app.drain() == (1 if way == "commit" else 0)
            """,
            settings="[pytest]\nfilterwarnings = error",
        ),
        2,
    )


def test_a_server_of_its_own_is_started_where_none_is_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_DATABASE_URL")
    passed(run("def test_it(millpond_app): assert millpond_app.jobs() == []"), 1)


def test_who_does_not_use_it_does_not_load_it(run: Run) -> None:
    passed(
        run(
            """
            import sys

            def test_nothing_heavy_is_imported():
                assert "millpond.testing.plugin" in sys.modules
                assert not {"asyncpg", "millpond.engine.engine", "millpond.testing.harness"} & sys.modules.keys()
            """,
            settings="[pytest]",
        ),
        1,
    )


def test_schedules_fire_when_the_test_moves_the_clock_and_only_then(run: Run, pytester: pytest.Pytester) -> None:
    result = run(
        """
        import pytest
        from millpond import Job, Millpond

        app = Millpond()


        @app.schedule("* * * * *", input={"text": "a b"})
        @app.schedule("30 2 * * *", zone="Europe/Berlin", name="nightly", due_field="text", overlap="skip")
        @app.kind("count")
        def count(job: Job, text: str) -> int:
            return len(text.split())


        @pytest.fixture(scope="session")
        def millpond_product():
            return app


        def test_nothing_fires_by_itself(millpond_app):
            assert millpond_app.drain() == 0
            assert millpond_app.jobs() == []


        def test_an_hour_is_sixty_minutes(millpond_app):
            assert millpond_app.drain(advance="1h") >= 60
            minutes = [job for job in millpond_app.jobs("count") if job.tags["schedule"] == "count"]
            assert len(minutes) == 60
            assert {job.output for job in minutes} == {2}
            assert {(job.tenant, job.account) for job in minutes} == {("default", "default")}


        def test_two_days_have_two_nights(millpond_app):
            millpond_app.advance("2d")
            millpond_app.drain()
            # Both were missed: the policy makes up for the last one.
            jobs = millpond_app.jobs("count", tags__schedule="nightly")
            assert len(jobs) == 1
            assert jobs[0].input["text"].startswith("20")
        """
    )
    passed(result, 3)
