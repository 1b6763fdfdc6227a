"""The autoscaler: reads the state of a route and of its Auto Scaling Group, decides, acts, and repeats.

It remembers only the recent numbers of desired workers and which workers it drained. All else is read again each time,
so it can be killed and restarted at any point, and two of them do no harm: both compute the same capacity, draining a
worker twice has the effect of once, and an instance is terminated only when its worker takes and holds no jobs. If the
two disagree for a moment, the next look corrects it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import logs, wire
from millpond.client.requests import segment
from millpond.errors import InvalidError, MillpondError
from millpond.integrations.aws.scaling import InstanceWorker, Policy, ScalingPlan, StabilizationWindow, bounded, decide

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millpond.client import AsyncClient
    from millpond.integrations.aws.groups import AutoScalingGroup, Groups

_LIVE: Final = ("busy", "draining", "idle")  # others do not work, and are left alone
_UNBOUNDED: Final = 100_000


class ScalingTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A route and the group of instances whose workers serve it; its limits default to those of the group."""

    route: str
    group: str
    min: int | None = None
    max: int | None = None
    jobs_per_worker: int = 1
    target_wait: float = 60.0
    cooldown: float = 300.0

    def __post_init__(self) -> None:
        minimum, maximum = self.min or 0, _UNBOUNDED if self.max is None else self.max
        if not 0 <= minimum <= maximum <= _UNBOUNDED:
            raise InvalidError("The value must be from 0 to max.", field="min")
        if self.jobs_per_worker < 1:
            raise InvalidError("The value must be at least 1.", field="jobs_per_worker")

    @property
    def policy(self) -> Policy:
        maximum = _UNBOUNDED if self.max is None else self.max
        return Policy(self.min or 0, maximum, self.jobs_per_worker, self.target_wait)


class ScalingDecision(ScalingPlan, frozen=True, kw_only=True):
    """The state of a route and its group, and what was done about it, or would be done in a dry run."""

    route: str
    group: str
    ready: int
    leased: int
    desired: int
    current: int
    """The capacity of the group before the decision."""
    failed: tuple[str, ...] = ()
    """Actions that failed; the next look decides on them again."""
    is_dry_run: bool = False

    @property
    def has_acts(self) -> bool:
        return self.capacity is not None or bool(self.resume or self.drain or self.shrink or self.replace)


@dataclass
class Autoscaler:
    """One route and its group."""

    client: AsyncClient
    groups: Groups
    target: ScalingTarget
    is_dry_run: bool = False
    clock: Callable[[], float] = time.monotonic
    _steady: StabilizationWindow = field(init=False)
    _ours: set[str] = field(default_factory=set[str], init=False)

    def __post_init__(self) -> None:
        self._steady = StabilizationWindow(self.target.cooldown)

    async def look(self) -> ScalingDecision:
        """Read the state, decide and act once."""
        group = await self.groups.group(self.target.group)
        if group.is_weighted:
            raise InvalidError(f"The capacity of {group.name} is not measured in instances.", field="group")
        scaling = await self._scaling(bounded(self.target.policy, group))
        workers = await self._workers()
        floor = self._steady.see(scaling.desired_workers, self.clock())
        plan = decide(scaling.desired_workers, floor, group, workers, ours=frozenset(self._ours))
        decision = self._decision(scaling, group, plan)
        if decision.has_acts and not self.is_dry_run:
            decision = msgspec.structs.replace(decision, failed=tuple(await self._act(plan, workers)))
            logs.emit("autoscale.decided", **msgspec.structs.asdict(decision))
        return decision

    def _decision(self, scaling: wire.Scaling, group: AutoScalingGroup, plan: ScalingPlan) -> ScalingDecision:
        return ScalingDecision(
            route=self.target.route,
            group=group.name,
            ready=scaling.ready,
            leased=scaling.leased,
            desired=scaling.desired_workers,
            current=group.desired,
            is_dry_run=self.is_dry_run,
            **msgspec.structs.asdict(plan),
        )

    # Reading

    async def _scaling(self, policy: Policy) -> wire.Scaling:
        params = {
            "jobs_per_worker": policy.jobs_per_worker,
            "min": policy.min,
            "max": policy.max,
            "target_wait": policy.target_wait,
        }
        path = f"/v1/scaling/{segment(self.target.route)}"
        return await self.client.request("GET", path, params=params, type=wire.Scaling)

    async def _workers(self) -> dict[str, InstanceWorker]:
        """The workers of this route, by the instance they run on."""
        workers = (await self.client.request("GET", "/v1/workers", type=wire.Workers)).data
        return {
            each.worker: InstanceWorker(each.id, each.jobs, each.status == "draining")
            for each in workers
            if each.id is not None and each.status in _LIVE and self.target.route in each.routes
        }

    # Acting

    async def _act(self, plan: ScalingPlan, workers: dict[str, InstanceWorker]) -> list[str]:
        """Carry out a plan; returns the failed actions, which do not stop the others."""
        acts: list[tuple[str, Callable[[], Awaitable[Any]]]] = []
        acts += [(f"resume {name}", lambda name=name: self._resume(name, workers)) for name in plan.resume]
        acts += [(f"end {name}", lambda name=name: self._end(name, is_shrinking=True)) for name in plan.shrink]
        acts += [(f"replace {name}", lambda name=name: self._end(name, is_shrinking=False)) for name in plan.replace]
        if (capacity := plan.capacity) is not None:  # after the ends, which change it too
            group = self.target.group
            acts.append((f"set capacity {capacity}", lambda: self.groups.set_desired(group, capacity)))
        acts += [(f"drain {name}", lambda name=name: self._drain(name, workers)) for name in plan.drain]
        return [what for what, act in acts if not await self._is_done(what, act)]

    async def _is_done(self, what: str, act: Callable[[], Awaitable[Any]]) -> bool:
        try:
            await act()
        except MillpondError as error:
            logs.emit("autoscale.failed", route=self.target.route, group=self.target.group, act=what, error=str(error))
            return False
        return True

    async def _resume(self, instance_id: str, workers: dict[str, InstanceWorker]) -> None:
        await self._turn(workers[instance_id], "resume")
        self._ours.discard(instance_id)

    async def _drain(self, instance_id: str, workers: dict[str, InstanceWorker]) -> None:
        await self._turn(workers[instance_id], "drain")
        self._ours.add(instance_id)

    async def _turn(self, worker: InstanceWorker, verb: str) -> None:
        path = f"/v1/workers/{segment(worker.worker_id)}/{verb}"
        await self.client.request("POST", path, type=wire.WorkerInfo, is_repeatable=True)

    async def _end(self, instance_id: str, *, is_shrinking: bool) -> None:
        await self.groups.terminate(instance_id, is_shrinking=is_shrinking)
        self._ours.discard(instance_id)
