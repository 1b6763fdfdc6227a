"""Metrics for Prometheus: what this process has done, and how the queues stand.

Counters are plain numbers that a request adds to; the text is made when somebody asks. What the database knows is
asked for at most every few seconds, however often a scraper comes.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from millpond.api.calls import Reply
from millpond.engine import deliveries, health, jobs, tallies

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from millpond.api.calls import Call
    from millpond.api.streams import Hub
    from millpond.engine.engine import Engine
    from millpond.engine.health import QueueHealth
    from millpond.engine.providers import Providers
    from millpond.engine.scaling import RouteLoad

_TTL: Final = 5.0
_FIRST_BUCKET: Final = 7  # what is shorter, nobody waits for


@dataclass(slots=True)
class Metrics:
    """What this process counts."""

    submitted: Counter[str] = field(default_factory=Counter[str])
    """Jobs taken in, by kind."""
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter[tuple[str, str, int]])
    """Requests answered, by method, route and status."""
    seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    """How long that took, by method and route."""
    _queues: Sequence[QueueHealth] = ()
    _routes: Sequence[RouteLoad] = ()
    waiting: tuple[int, int] = (0, 0)
    """Webhooks that were not taken yet, and those of them that failed before."""
    durations: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict[str, "Sequence[Sequence[int]]"])
    """How long jobs waited and ran, by kind, as histograms."""
    _until: float = 0.0

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        self.requests[method, path, status] += 1
        self.seconds[method, path] += seconds

    async def text(self, engine: Engine, hub: Hub) -> bytes:
        if time.monotonic() >= self._until:
            self._routes = await engine.scaling.routes()
            self._queues = await health.queues(engine.db, engine.homes)
            self.waiting = await deliveries.waiting(engine.homes)
            self.durations = await engine.tallies.durations()
            self._until = time.monotonic() + _TTL
        registry = CollectorRegistry()
        registry.register(
            _Collector(self, self._queues, self._routes, hub.streams, engine.workers.waiting, engine.providers)
        )
        return generate_latest(registry)


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
        yield from self._durations()

    def describe(self) -> Iterator[Metric]:
        """Nothing in advance: names are told with their numbers."""
        return iter(())

    def _counts(self) -> Iterator[Metric]:
        submitted = CounterMetricFamily("millpond_jobs_submitted", "Jobs this process took in.", labels=["kind"])
        for kind, count in self.metrics.submitted.items():
            submitted.add_metric([kind], count)
        yield submitted
        ended = CounterMetricFamily("millpond_jobs_finished", "Jobs this process ended.", labels=["kind", "outcome"])
        for labels, count in jobs.ENDED.items():
            ended.add_metric(labels, count)
        yield ended
        requests = CounterMetricFamily(
            "millpond_http_requests", "Requests this process answered.", labels=["method", "route", "status"]
        )
        totals: Counter[tuple[str, str]] = Counter()
        for (method, path, status), count in self.metrics.requests.items():
            requests.add_metric([method, path, str(status)], count)
            totals[method, path] += count
        yield requests
        lasted = SummaryMetricFamily(
            "millpond_http_request_seconds", "How long requests took.", labels=["method", "route"]
        )
        for (method, path), count in totals.items():
            lasted.add_metric([method, path], count, self.metrics.seconds[method, path])
        yield lasted

    def _gauges(self) -> Iterator[Metric]:
        streams = GaugeMetricFamily("millpond_event_streams", "Event streams that are open in this process.")
        streams.add_metric([], self.open_streams)
        yield streams
        depth = GaugeMetricFamily("millpond_queue_depth", "Jobs that have not ended.", labels=["queue", "phase"])
        oldest = GaugeMetricFamily(
            "millpond_queue_oldest_age_seconds", "How long the first in line has waited.", labels=["queue"]
        )
        workers = GaugeMetricFamily("millpond_queue_workers", "Workers with a lease.", labels=["queue"])
        verdicts = GaugeMetricFamily("millpond_queue_verdict", "1 for how the queue is.", labels=["queue", "verdict"])
        for queue in self.queues:
            for phase in ("ready", "waiting", "leased", "parked"):
                depth.add_metric([queue.queue, phase], getattr(queue, phase))
            oldest.add_metric([queue.queue], queue.oldest_wait_seconds or 0.0)
            workers.add_metric([queue.queue], queue.workers)
            verdicts.add_metric([queue.queue, queue.verdict], 1)
        yield from (depth, oldest, workers, verdicts)

    def _webhooks(self) -> Iterator[Metric]:
        tries = CounterMetricFamily("millpond_webhook_tries", "Webhooks this process sent.", labels=["outcome"])
        for outcome in ("delivered", "again", "failed"):
            tries.add_metric([outcome], deliveries.SETTLED[outcome])
        depth = GaugeMetricFamily("millpond_webhook_depth", "Webhooks that were not taken yet.", labels=["state"])
        for state, count in zip(("pending", "failing"), self.metrics.waiting, strict=True):
            depth.add_metric([state], count)
        yield from (tries, depth)

    def _durations(self) -> Iterator[Metric]:
        """What the database knows of all jobs, whichever process they went through. The sums are told from buckets."""
        told = {
            "wait": "How long jobs waited for their first start.",
            "run": "How long jobs took from their first start to their end.",
        }
        for place, (name, text) in enumerate(told.items()):
            family = HistogramMetricFamily(f"millpond_job_{name}_seconds", text, labels=["kind"])
            for kind, histograms in self.metrics.durations.items():
                if histograms[place]:
                    family.add_metric([kind], *_buckets(histograms[place]))
            yield family

    def _fleet(self) -> Iterator[Metric]:
        polls = GaugeMetricFamily("millpond_fleet_polls", "Polls of workers that wait in this process.")
        polls.add_metric([], self.waiting_polls)
        depth = GaugeMetricFamily("millpond_route_depth", "Jobs of a route.", labels=["route", "phase"])
        oldest = GaugeMetricFamily(
            "millpond_route_oldest_age_seconds", "How long the first in line has waited.", labels=["route"]
        )
        workers = GaugeMetricFamily(
            "millpond_route_workers", "Workers of the fleet that are heard from.", labels=["route", "status"]
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
            "millpond_provider_calls", "Calls of this process to providers.", labels=["provider", "outcome"]
        )
        resting = GaugeMetricFamily(
            "millpond_provider_resting", "1 while this process does not call a provider.", labels=["provider"]
        )
        for line in self.providers.lines:
            resting.add_metric([line.name], int(line.breaker.seconds_left > 0))
            for outcome, count in line.calls.items():
                calls.add_metric([line.name, outcome], count)
        heard = CounterMetricFamily(
            "millpond_callbacks", "Calls of providers to this process.", labels=["provider", "verdict"]
        )
        for labels, count in self.providers.heard.items():
            heard.add_metric(labels, count)
        yield from (calls, resting, heard)


def _buckets(histogram: Sequence[int]) -> tuple[list[tuple[str, float]], float]:
    """A histogram in Prometheus's words, by whole doublings, and about what all of them come to."""
    below = list(accumulate(histogram))
    buckets = [(f"{tallies.bounds(n)[1]:g}", float(below[n])) for n in range(_FIRST_BUCKET, len(below) - 1, 2)]
    total = sum(number * sum(tallies.bounds(n)) / 2 for n, number in enumerate(histogram))
    return [*buckets, ("+Inf", float(below[-1]))], total


async def show(call: Call) -> Reply:
    """The metrics, for an operator or for whoever is on this very machine."""
    text = await call.desk.metrics.text(call.engine, call.desk.hub)
    return Reply(200, text, [(b"content-type", CONTENT_TYPE_LATEST.encode()), (b"cache-control", b"no-store")])


def is_local(call: Call) -> bool:
    """Whether the caller is on this machine and not behind a proxy."""
    client: Any = call.scope.get("client")
    is_forwarded = b"x-forwarded-for" in call.headers or b"forwarded" in call.headers
    return client is not None and client[0] in ("127.0.0.1", "::1") and not is_forwarded
