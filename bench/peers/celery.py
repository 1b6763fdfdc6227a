"""Measures Celery on Redis: `bench/.venv/bin/python -m bench.peers.celery [--redis URL]`.

Without `--redis` the script starts a server of its own (see `redis_server.py`), on a unix socket
and without persistence. So Celery's numbers are for jobs that are lost in a power failure, while
jobs in PostgreSQL survive it; with `--durable`, the append-only file is synced at every write.

Celery's tasks are plain functions: it has no async handlers. Results are ignored, as its
documentation recommends for tasks that return nothing. Each worker process has the solo pool,
without a child process; a short and a long prefetch are both tried. Bulk uses kombu's producer
batch, which pipelines the writes; Celery's own `group` does not use it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

import uvloop
from celery import Celery as App
from celery.signals import worker_ready

from bench.processes import cancel_on_sigterm

from . import harness, redis_server
from .harness import Settings
from .workers import Board

OPTION = "--redis"
QUEUE = "celery"
TASK = "noop"


class Celery:
    """Celery on Redis as a peer."""

    version = version("celery")
    drain_choices: ClassVar[Sequence[Settings]] = [
        {"processes": 2, "pool": "solo", "prefetch": 128},
        {"processes": 2, "pool": "solo", "prefetch": 4},
    ]
    latency_settings: ClassVar[Settings] = {"processes": 1, "pool": "solo", "prefetch": 4}

    def __init__(self, server: redis_server.Server, name: str) -> None:
        self.name = name
        self.store = server.url
        self.enqueue_settings = {"server": server.name, "persistence": server.persistence}
        self.bulk_choices = [self.enqueue_settings | {"batch": size} for size in (100, 1000, 5000)]
        self.app = make_app(server.url)
        self.task = self.app.task(name=TASK)(ignore)
        self.producer = self.app.amqp.Producer(self.app.connection_for_write())

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        cancel_on_sigterm()
        try:
            yield
        finally:
            self.client().flushdb()

    def client(self) -> Any:
        """The Redis client of the transport, so that no second connection is needed."""
        return self.producer.channel.client

    def body(self, sequence: int) -> dict[str, Any]:
        return harness.body(sequence)

    async def enqueue(self, body: dict[str, Any]) -> None:
        self.task.apply_async(kwargs=body, producer=self.producer)

    async def enqueue_many(self, bodies: Sequence[dict[str, Any]], settings: Settings) -> None:
        with self.producer.batch(max_size=settings["batch"]):
            for one in bodies:
                self.task.apply_async(kwargs=one, producer=self.producer)

    async def settle(self) -> None:
        """Nothing to do for Redis."""

    async def unfinished(self) -> int:
        return self.client().llen(QUEUE) + self.client().hlen("unacked")


def make_app(url: str) -> App:
    app = App("bench", broker=url, set_as_current=False)
    app.conf.update(task_ignore_result=True, task_default_queue=QUEUE)
    return app


def ignore(sequence: int, padding: str) -> None:
    """The task as the enqueuing side sees it: only its name and arguments are used."""


def work(url: str, board: Board, measure: str, settings: Settings) -> None:
    app = make_app(url)
    app.task(name=TASK)(handler(board, measure))
    # The signal is sent when the consumer is connected, before it takes its first job.
    worker_ready.connect(lambda **_: board.wait_at_gate(), weak=False)
    app.worker_main(
        [
            "--quiet",
            "worker",
            f"--pool={settings['pool']}",
            f"--prefetch-multiplier={settings['prefetch']}",
            f"--hostname=bench{board.base}@localhost",
            "--without-gossip",
            "--without-heartbeat",
            "--without-mingle",
            "--loglevel=ERROR",
        ]
    )


def handler(board: Board, measure: str) -> Callable[..., None]:
    def count(**_body: object) -> None:
        board.count()

    def stamp(sequence: int, **_rest: object) -> None:
        board.stamp(sequence, time.monotonic_ns())

    return count if measure == "drain" else stamp


def main() -> None:
    parser = harness.parser(OPTION, required=False)
    parser.add_argument("--durable", action="store_true", help="own server: sync every write")
    arguments = parser.parse_args()
    if arguments.work:
        board = Board(arguments.board, arguments.worker)
        work(arguments.store, board, arguments.work, arguments.settings)
        return
    with redis_server.running(arguments.store, durable=arguments.durable) as server:
        if server is None:
            print("celery: SKIPPED, no valkey-server or redis-server was found", file=sys.stderr)
            return
        peer = Celery(server, "celery+redis aof" if arguments.durable else "celery+redis")
        if peer.client().dbsize():
            sys.exit("celery: this Redis database is not empty, and measuring would empty it")
        uvloop.run(harness.measure(peer, harness.plan_of(arguments, OPTION), arguments.only))


if __name__ == "__main__":
    main()
