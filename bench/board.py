"""Measures every read of the dashboard, at the server, with millions of finished jobs.

`python -m bench.board --dsn postgresql://…` fills a database of its own on that server, and prints a table; without
`--dsn`, it starts a temporary server. The counters are created by writing and merging counter changes, as when jobs
run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx2

from bench.processes import STOP_SECONDS, within
from bench.product import opened
from millpond import Engine, Millpond, ids
from millpond.api.app import create_app
from millpond.api.calls import JSON
from millpond.api.jobs.streams import Hub
from millpond.api.native import ROUTES
from millpond.api.server import listen, serve
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.reads import counters
from millpond.engine.reads.counters import MERGE_MAX
from millpond.services.notifier import Notifier
from millpond.settings import Settings
from millpond.store.embedded import open_embedded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

JOBS = 5_000_000
DAYS = 63
CHUNK = 50_000
RUNS = 20
LIMIT_MS = 300
LEASE = timedelta(minutes=30)
KINDS = [f"kind-{n}" for n in range(4)]
TENANT, ACCOUNT = "tenant-3", "account-3"
HISTORY = Path(__file__).with_name("board.sql")
LEFT_OUT = ("/v1/verify", "/metrics", "/v1/board/stream", "/v1/jobs/{id}/stream")
"""Routes that read everything by design, or that do not end."""

# The granularity of the real counters: minutes for the last day, hours before that.
ENDED = """
create temporary table sample as
select j.tenant, j.kind, j.outcome, j.price, j.captured, millpond.bucket(j.started_at - j.created_at) as wait,
    millpond.bucket(j.finished_at - j.started_at) as run, j.fingerprint, j.error ->> 'code' as code,
    j.error ->> 'message' as message, j.id,
    case when j.created_at > millpond.clock() - interval '25 hours' then millpond.minute(j.created_at)
        else date_trunc('hour', j.created_at) end as at
from millpond.jobs j where j.phase = 'ended'
"""
CHANGES = (
    """
    insert into millpond.counter_changes (at, tenant, kind, event, to_state, to_phase, n, price)
    select at, tenant, kind, 'submitted', 'queued', 'ready', count(*), sum(price) from sample group by at, tenant, kind
    """,
    """
    insert into millpond.counter_changes (
        at, tenant, kind, event, from_state, from_phase, to_state, to_phase, n, price, bucket
    )
    select at, tenant, kind, 'started', 'queued', 'ready', 'running', 'leased', count(*), sum(price), max(wait)
    from sample group by at, tenant, kind
    """,
    """
    insert into millpond.counter_changes (
        at, tenant, kind, event, from_state, from_phase, to_state, to_phase, outcome, n, price, captured, bucket
    )
    select at, tenant, kind, outcome, 'running', 'leased', outcome, 'ended', outcome, count(*), sum(price),
        sum(captured), max(run)
    from sample group by at, tenant, kind, outcome
    """,
    """
    insert into millpond.counter_changes (at, tenant, kind, event, n, price, captured, fingerprint, code, message,
    sample) select at, tenant, kind, 'failed', count(*), sum(price), sum(captured), fingerprint, min(code),
    min(message),
        (array_agg(id))[1]
    from sample where fingerprint is not null group by at, tenant, kind, fingerprint
    """,
)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Measures every read of the dashboard on a long history.")
    parser.add_argument("--dsn", help="the server to measure on (default: a temporary embedded one)")
    parser.add_argument("--jobs", type=int, default=JOBS)
    arguments = parser.parse_args()
    if arguments.dsn:
        await measure(arguments.dsn, arguments.jobs)
        return
    with tempfile.TemporaryDirectory(prefix="millpond-bench-", ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "data"
        data.mkdir()
        (data / "postgres.conf").write_text("fsync = off\nmax_wal_size = 4GB\nshared_buffers = 512MB\n", "utf-8")
        with open_embedded(data) as postgres:
            await measure(postgres.dsn, arguments.jobs)


async def measure(server: str, jobs: int) -> None:
    app = Millpond()
    for name in KINDS:
        app.kind(name, price=5)(_nothing)
    async with opened(server, app, pool_size=4) as engine:
        began = time.monotonic()
        await fill(engine.db.dsn, jobs)
        print(f"{jobs:,} jobs in {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        await count(engine)
        print(f"written and merged in {time.monotonic() - began:.0f} s", flush=True)
        await add_active_jobs(engine)
        await ask_all(engine)


async def _nothing(job: Any, sequence: int = 0) -> None: ...


async def fill(dsn: str, jobs: int) -> None:
    """Create the partitions, and insert the jobs with two connections."""
    chunks = iter(range(0, jobs, CHUNK))

    async def insert() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute("set session_replication_role = replica; set synchronous_commit = off; set jit = off")
        for start in chunks:
            await connection.execute(HISTORY.read_text(), CHUNK, start, jobs, DAYS, timeout=None)
        await connection.close()

    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "select millpond.make_weeks(array(select distinct millpond.week(millpond.clock() - n * interval '1 day')"
        " from generate_series(0, $1::integer) n))",
        DAYS + 1,
    )
    await connection.close()
    await asyncio.gather(insert(), insert())


async def count(engine: Engine) -> None:
    connection = await asyncpg.connect(engine.db.dsn)
    await connection.execute("set work_mem = '256MB'")
    for statement in (ENDED, *CHANGES):
        await connection.execute(statement)
    while await connection.fetchval("select millpond.merge_counter_changes($1)", MERGE_MAX * 4):
        await connection.execute("vacuum millpond.counter_changes")
    await connection.execute("vacuum analyze")
    await connection.close()
    while await counters.prune(engine.db, MERGE_MAX):
        pass


async def add_active_jobs(engine: Engine) -> None:
    """Add jobs that have not ended: in the queue, and leased."""
    await engine.grant(TENANT, ACCOUNT, 1_000_000)
    given = [{"kind": KINDS[n % len(KINDS)], "tenant": TENANT, "account": ACCOUNT, "input": {}} for n in range(5_000)]
    await engine.submit_many(given)
    await engine.claim(Lanes(KINDS), 300, worker="bench", duration=LEASE)


async def ask_all(engine: Engine) -> None:
    hub = Hub(engine, Notifier(engine))
    server = create_app(engine, settings=Settings(rate_limit=1_000_000), hub=hub)
    sock, stop = listen("127.0.0.1", 0), asyncio.Event()
    _, key = await engine.access.make_key(scope="admin", actor="bench")
    serving = asyncio.gather(
        hub.run(stop), serve(server, host="", port=0, sock=sock, stop=stop, on_ready=lambda: None, drain=1)
    )
    base, headers = f"http://127.0.0.1:{sock.getsockname()[1]}", {"Authorization": f"Bearer {key}"}
    try:
        async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=60) as http:
            print("\n| route | status | p50 ms | max ms | |\n|---|---|---|---|---|")
            for path in asked(await samples(engine)):
                await ask(http, path)
    finally:
        stop.set()
        async with within(STOP_SECONDS, "the server to stop"):
            await serving


async def ask(http: httpx2.AsyncClient, path: str) -> None:
    taken: list[float] = []
    status = 0
    for _ in range(RUNS):
        began = time.perf_counter()
        status = (await http.get(path)).status_code
        taken.append((time.perf_counter() - began) * 1000)
    verdict = "" if max(taken) < LIMIT_MS else "**slow**"
    print(f"| {path} | {status} | {statistics.median(taken):.1f} | {max(taken):.1f} | {verdict} |", flush=True)


async def samples(engine: Engine) -> dict[str, str]:
    failure = (await engine.counters.failures("7d", tenant=TENANT, limit=1)).data[0]
    return {
        "id": ids.text("job", failure.sample),
        "fingerprint": failure.fingerprint,
        "kind": failure.kind,
        "tenant": TENANT,
        "account": ACCOUNT,
        "queue": KINDS[0],
    }


def asked(given: Mapping[str, str]) -> Iterator[str]:
    """Every GET route that an operator may read, with the parameters that it requires, and with some of its filters."""
    for route in ROUTES:
        if route.method != "GET" or "viewer" not in route.who or route.path in LEFT_OUT or JSON not in route.offers:
            continue
        if "{id}" in route.path and "/jobs/" not in route.path:
            continue  # no such object exists
        path = route.path.format_map({**given, "route": KINDS[0]})
        needs = ("tenant", "account") if route.path.startswith("/v1/wallet") and "wallets" not in route.path else ()
        yield path + ("?q=" + given["id"] if "q" in route.query.__struct_fields__ else _query(given, needs))
        if "tenant" in route.query.__struct_fields__ and "/jobs/" not in path and not needs:
            yield path + _query(given, ("tenant",))
    yield from (f"/v1/board/series?span={span}" for span in counters.SPANS)
    yield f"/v1/board/series?span=30d&tenant={TENANT}&kind={given['kind']}"
    yield from (f"/v1/failures?since={since}" for since in counters.FAILURE_STRETCHES)
    yield from (
        f"/v1/board/jobs?{query}"
        for query in (
            "outcome=failed",
            "outcome=failed&limit=200",
            "phase=leased",
            "state=parked",
            "error=error_2",
            f"kind={given['kind']}&outcome=canceled",
            "kind=kind-*&since=24h",
            f"fingerprint={given['fingerprint']}",
            f"tenant={TENANT}&fingerprint={given['fingerprint']}",
            f"tenant={TENANT}&account={ACCOUNT}&outcome=failed",
            "outcome=blocked",
            "fingerprint=0000000000000000",
            "since=30d&until=29d&outcome=failed",
        )
    )
    yield from (f"/v1/search?q={word}" for word in (TENANT, ACCOUNT, "kind-1", "nothing-of-the-sort"))


def _query(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    return "?" + "&".join(f"{name}={given[name]}" for name in names) if names else ""


if __name__ == "__main__":
    asyncio.run(main())
