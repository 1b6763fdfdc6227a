"""Metrics for Prometheus: the counters of this process, and the state of the queues.

Counters are plain numbers, which become text only when they are requested. The database is read at most once every few
seconds, however often Prometheus scrapes.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, SummaryMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from millpond import logs
from millpond.api.calls import Reply
from millpond.api.routes import TEXT, Route
from millpond.api.scopes import READERS
from millpond.engine.jobs import jobs
from millpond.engine.queue import fires
from millpond.engine.reads import counters
from millpond.engine.webhooks import deliveries
from millpond.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from millpond.api.calls import Call
    from millpond.api.jobs.streams import Hub
    from millpond.engine.engine import Engine
    from millpond.engine.fleet.scaling import RouteLoad
    from millpond.engine.providers.providers import Providers
    from millpond.engine.reads.health import QueueHealth

_TTL: Final = 5.0
_FIRST_BUCKET: Final = 7  # shorter durations are not worth a bucket


@dataclass(slots=True)
class Metrics:
    """What this process counts."""

    submitted: Counter[str] = field(default_factory=Counter[str])
    """Submitted jobs, by kind."""
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter[tuple[str, str, int]])
    """Processed requests, by method, route and status."""
    seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    """The total duration of the requests, by method and route."""
    _queues: Sequence[QueueHealth] = ()
    _routes: Sequence[RouteLoad] = ()
    waiting: tuple[int, int] | None = None
    """The number of pending webhook deliveries, and how many of them have failed before; None if unknown."""
    durations: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict[str, "Sequence[Sequence[int]]"])
    """How long jobs waited and ran, by kind, as histograms."""
    overdue: int | None = None
    """How many schedules should have fired a while ago; None if unknown."""
    _until: float = 0.0

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        self.requests[method, path, status] += 1
        self.seconds[method, path] += seconds

    async def text(self, engine: Engine, hub: Hub) -> bytes:
        if time.monotonic() >= self._until:
            try:
                await self._read(engine)
            except StoreError:  # what this process counts is shown in any case
                self._routes, self._queues, self.waiting, self.durations, self.overdue = (), (), None, {}, None
            self._until = time.monotonic() + _TTL
        registry = CollectorRegistry()
        registry.register(
            _Collector(self, self._queues, self._routes, hub.streams, engine.workers.waiting, engine.providers)
        )
        return generate_latest(registry)

    async def _read(self, engine: Engine) -> None:
        self._routes = await engine.scaling.routes()
        self._queues = await engine.queue_health()
        self.waiting = await deliveries.waiting(engine.tenant_databases)
        self.durations = await engine.counters.durations()
        self.overdue = await engine.schedules.overdue()


@dataclass(eq=False, slots=True)
class _Collector:
    metrics: Metrics
    queues: Sequence[QueueHealth]
    routes: Sequence[RouteLoad]
    open_streams: int
    waiting_polls: int
    providers: Providers

    def collect(self) -> Iterator[Metric]:
        yield from self._counts()
        yield from self._gauges()
        yield from self._fleet()
        yield from self._provided()
        yield from self._webhooks()
        yield from self._schedules()
        yield from self._durations()

    def describe(self) -> Iterator[Metric]:
        """Declare nothing in advance: names are only known when the metrics are collected."""
        return iter(())

    def _counts(self) -> Iterator[Metric]:
        submitted = CounterMetricFamily("millpond_jobs_submitted", "Jobs submitted to this process.", labels=["kind"])
        for kind, count in self.metrics.submitted.items():
            submitted.add_metric([kind], count)
        yield submitted
        ended = CounterMetricFamily("millpond_jobs_finished", "Jobs ended by this process.", labels=["kind", "outcome"])
        for labels, count in jobs.ENDED.items():
            ended.add_metric(labels, count)
        yield ended
        requests = CounterMetricFamily(
            "millpond_http_requests", "Requests processed by this process.", labels=["method", "route", "status"]
        )
        totals: Counter[tuple[str, str]] = Counter()
        for (method, path, status), count in self.metrics.requests.items():
            requests.add_metric([method, path, str(status)], count)
            totals[method, path] += count
        yield requests
        lasted = SummaryMetricFamily(
            "millpond_http_request_seconds", "Duration of requests.", labels=["method", "route"]
        )
        for (method, path), count in totals.items():
            lasted.add_metric([method, path], count, self.metrics.seconds[method, path])
        yield lasted
        dropped = CounterMetricFamily(
            "millpond_log_lines_dropped", "Log lines that this process could not write, and dropped."
        )
        dropped.add_metric([], logs.dropped())
        yield dropped

    def _gauges(self) -> Iterator[Metric]:
        streams = GaugeMetricFamily("millpond_event_streams", "Open event streams of this process.")
        streams.add_metric([], self.open_streams)
        yield streams
        depth = GaugeMetricFamily("millpond_queue_depth", "Jobs that have not ended.", labels=["queue", "phase"])
        oldest = GaugeMetricFamily(
            "millpond_queue_oldest_age_seconds", "Age of the oldest ready job.", labels=["queue"]
        )
        workers = GaugeMetricFamily(
            "millpond_queue_workers", "Live workers, and others that hold its jobs.", labels=["queue"]
        )
        verdicts = GaugeMetricFamily(
            "millpond_queue_verdict", "1 for the current status of the queue.", labels=["queue", "verdict"]
        )
        for queue in self.queues:
            for phase in ("ready", "waiting", "leased", "parked"):
                depth.add_metric([queue.queue, phase], getattr(queue, phase))
            oldest.add_metric([queue.queue], queue.oldest_wait_seconds or 0.0)
            workers.add_metric([queue.queue], queue.workers)
            verdicts.add_metric([queue.queue, queue.verdict], 1)
        yield from (depth, oldest, workers, verdicts)

    def _webhooks(self) -> Iterator[Metric]:
        tries = CounterMetricFamily(
            "millpond_webhook_tries", "Webhook requests sent by this process.", labels=["outcome"]
        )
        for outcome in ("delivered", "again", "failed"):
            tries.add_metric([outcome], deliveries.SETTLED[outcome])
        depth = GaugeMetricFamily("millpond_webhook_depth", "Webhook deliveries that are pending.", labels=["state"])
        for state, count in zip(("pending", "failing"), self.metrics.waiting or (), strict=False):
            depth.add_metric([state], count)
        yield from (tries, depth)

    def _schedules(self) -> Iterator[Metric]:
        fired = CounterMetricFamily(
            "millpond_schedule_fires", "Due times that this process has settled.", labels=["outcome"]
        )
        for outcome in ("submitted", "skipped", "failed"):
            fired.add_metric([outcome], fires.FIRED[outcome])
        late = SummaryMetricFamily(
            "millpond_schedule_lateness_seconds", "Time from a due time, with its jitter, until its job was submitted."
        )
        late.add_metric([], fires.LATENESS.count, fires.LATENESS.seconds)
        overdue = GaugeMetricFamily(
            "millpond_schedules_overdue", "Schedules that should have fired more than a minute ago."
        )
        if self.metrics.overdue is not None:
            overdue.add_metric([], self.metrics.overdue)
        yield from (fired, late, overdue)

    def _durations(self) -> Iterator[Metric]:
        """The durations of all jobs in the database, of all processes. The sums are estimated from the buckets."""
        descriptions = {
            "wait": "Time from when a job was ready until its first start.",
            "run": "Time from the first start of a job until its end.",
        }
        for place, (name, text) in enumerate(descriptions.items()):
            family = HistogramMetricFamily(f"millpond_job_{name}_seconds", text, labels=["kind"])
            for kind, durations in self.metrics.durations.items():
                if durations[place]:
                    family.add_metric([kind], *_buckets(durations[place]))
            yield family

    def _fleet(self) -> Iterator[Metric]:
        polls = GaugeMetricFamily("millpond_fleet_polls", "Worker polls waiting in this process.")
        polls.add_metric([], self.waiting_polls)
        depth = GaugeMetricFamily("millpond_route_depth", "Jobs of a route.", labels=["route", "phase"])
        oldest = GaugeMetricFamily(
            "millpond_route_oldest_age_seconds", "Age of the oldest ready job.", labels=["route"]
        )
        workers = GaugeMetricFamily(
            "millpond_route_workers", "Fleet workers that send heartbeats.", labels=["route", "status"]
        )
        for load in self.routes:
            for phase in ("ready", "leased"):
                depth.add_metric([load.route, phase], getattr(load, phase))
            oldest.add_metric([load.route], load.oldest_wait_seconds or 0.0)
            for status in ("idle", "busy", "draining"):
                workers.add_metric([load.route, status], getattr(load, status))
        yield from (polls, depth, oldest, workers)

    def _provided(self) -> Iterator[Metric]:
        calls = CounterMetricFamily(
            "millpond_provider_calls", "Calls from this process to providers.", labels=["provider", "outcome"]
        )
        resting = GaugeMetricFamily(
            "millpond_provider_suspended", "1 while this process does not call a provider.", labels=["provider"]
        )
        for client in self.providers.clients:
            resting.add_metric([client.name], int(client.breaker.seconds_left > 0))
            for outcome, count in client.calls.items():
                calls.add_metric([client.name, outcome], count)
        heard = CounterMetricFamily(
            "millpond_callbacks", "Provider callbacks received by this process.", labels=["provider", "verdict"]
        )
        for labels, count in self.providers.heard.items():
            heard.add_metric(labels, count)
        yield from (calls, resting, heard)


def _buckets(histogram: Sequence[int]) -> tuple[list[tuple[str, float]], float]:
    """The cumulative buckets for Prometheus, one for each doubling of the duration, and the approximate sum."""
    below = list(accumulate(histogram))
    buckets = [(f"{counters.bounds(n)[1]:g}", float(below[n])) for n in range(_FIRST_BUCKET, len(below) - 1, 2)]
    total = sum(number * sum(counters.bounds(n)) / 2 for n, number in enumerate(histogram))
    return [*buckets, ("+Inf", float(below[-1]))], total


async def show(call: Call) -> Reply:
    """The metrics, for keys that may read.

    The caller's address permits nothing: a proxy on the same machine makes all requests local ones.
    """
    text = await call.state.metrics.text(call.engine, call.state.hub)
    return Reply(200, text, [(b"content-type", CONTENT_TYPE_LATEST.encode()), (b"cache-control", b"no-store")])


ROUTES: Final = (
    Route(
        method="GET",
        path="/metrics",
        handle=show,
        summary="Get the metrics in the Prometheus text format.",
        description="Prometheus sends the key if its scrape configuration has `authorization: {credentials_file: …}`.",
        who=READERS,
        needs_database=False,
        offers=(TEXT,),
        answers={200: None},
    ),
)
