"""The autoscaler: looks at a route and at its Auto Scaling Group, decides, acts, and looks again.

It remembers only what was desired in the last while and whom it asked to leave. All else is read anew each time, so
it may be killed and started again at any point, and two of them do no harm: the capacity is set to a number that both
find, a worker that is drained twice is drained, and an instance ends only when its worker takes and holds no job. What
they disagree on for a moment, the next look puts right.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import logs, wire
from millpond.aws.scaling import Hand, Plan, Policy, Steady, bounded, decide
from millpond.client.requests import segment
from millpond.errors import InvalidError, MillpondError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millpond.aws.groups import Group, Groups
    from millpond.client import AsyncClient

_LIVE: Final = ("busy", "draining", "idle")  # others are not at work, and left alone
_UNBOUNDED: Final = 100_000


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A route and the group of instances whose workers serve it; its limits are the group's unless they are given."""

    route: str
    group: str
    min: int | None = None
    max: int | None = None
    jobs_per_worker: int = 1
    target_wait: float = 60.0
    cooldown: float = 300.0

    def __post_init__(self) -> None:
        least, most = self.min or 0, _UNBOUNDED if self.max is None else self.max
        if not 0 <= least <= most <= _UNBOUNDED:
            raise InvalidError("It must be at least 0, and not more than max.", field="min")
        if self.jobs_per_worker < 1:
            raise InvalidError("It must be at least 1.", field="jobs_per_worker")

    @property
    def policy(self) -> Policy:
        most = _UNBOUNDED if self.max is None else self.max
        return Policy(self.min or 0, most, self.jobs_per_worker, self.target_wait)


class Decision(Plan, frozen=True, kw_only=True):
    """What was seen of a route and its group, and what was done about it, or would be."""

    route: str
    group: str
    ready: int
    leased: int
    desired: int
    current: int
    """The group's capacity before."""
    failed: tuple[str, ...] = ()
    """What could not be done; the next look finds it again."""
    is_dry_run: bool = False

    @property
    def has_acts(self) -> bool:
        return self.capacity is not None or bool(self.resume or self.drain or self.shrink or self.replace)


@dataclass
class Autoscaler:
    """One route and its group."""

    client: AsyncClient
    groups: Groups
    target: Target
    is_dry_run: bool = False
    clock: Callable[[], float] = time.monotonic
    _steady: Steady = field(init=False)
    _ours: set[str] = field(default_factory=set[str], init=False)

    def __post_init__(self) -> None:
        self._steady = Steady(self.target.cooldown)

    async def look(self) -> Decision:
        """See, decide and act once."""
        group = await self.groups.group(self.target.group)
        if group.is_weighted:
            raise InvalidError(f"The capacity of {group.name} is not counted in instances.", field="group")
        scaling = await self._scaling(bounded(self.target.policy, group))
        hands = await self._hands()
        floor = self._steady.see(scaling.desired_workers, self.clock())
        plan = decide(scaling.desired_workers, floor, group, hands, ours=frozenset(self._ours))
        decision = self._decision(scaling, group, plan)
        if decision.has_acts and not self.is_dry_run:
            decision = msgspec.structs.replace(decision, failed=tuple(await self._act(plan, hands)))
            logs.emit("autoscale.decided", **msgspec.structs.asdict(decision))
        return decision

    def _decision(self, scaling: wire.Scaling, group: Group, plan: Plan) -> Decision:
        return Decision(
            route=self.target.route,
            group=group.name,
            ready=scaling.ready,
            leased=scaling.leased,
            desired=scaling.desired_workers,
            current=group.desired,
            is_dry_run=self.is_dry_run,
            **msgspec.structs.asdict(plan),
        )

    # What is seen

    async def _scaling(self, policy: Policy) -> wire.Scaling:
        params = {
            "jobs_per_worker": policy.jobs_per_worker,
            "min": policy.min,
            "max": policy.max,
            "target_wait": policy.target_wait,
        }
        path = f"/v1/scaling/{segment(self.target.route)}"
        return await self.client.request("GET", path, params=params, type=wire.Scaling)

    async def _hands(self) -> dict[str, Hand]:
        """The workers of this route, by the instance they run on."""
        workers = (await self.client.request("GET", "/v1/workers", type=wire.Workers)).data
        return {
            each.worker: Hand(each.id, each.jobs, each.status == "draining")
            for each in workers
            if each.id is not None and each.status in _LIVE and self.target.route in each.routes
        }

    # What is done

    async def _act(self, plan: Plan, hands: dict[str, Hand]) -> list[str]:
        """Do all of it; what fails keeps nothing else from being done, and is told."""
        acts: list[tuple[str, Callable[[], Awaitable[Any]]]] = []
        acts += [(f"resume {name}", lambda name=name: self._resume(name, hands)) for name in plan.resume]
        acts += [(f"end {name}", lambda name=name: self._end(name, is_shrinking=True)) for name in plan.shrink]
        acts += [(f"replace {name}", lambda name=name: self._end(name, is_shrinking=False)) for name in plan.replace]
        if (capacity := plan.capacity) is not None:  # after the ends, which change it too
            group = self.target.group
            acts.append((f"set capacity {capacity}", lambda: self.groups.set_desired(group, capacity)))
        acts += [(f"drain {name}", lambda name=name: self._drain(name, hands)) for name in plan.drain]
        return [what for what, act in acts if not await self._is_done(what, act)]

    async def _is_done(self, what: str, act: Callable[[], Awaitable[Any]]) -> bool:
        try:
            await act()
        except MillpondError as error:
            logs.emit("autoscale.failed", route=self.target.route, group=self.target.group, act=what, error=str(error))
            return False
        return True

    async def _resume(self, instance_id: str, hands: dict[str, Hand]) -> None:
        await self._turn(hands[instance_id], "resume")
        self._ours.discard(instance_id)

    async def _drain(self, instance_id: str, hands: dict[str, Hand]) -> None:
        await self._turn(hands[instance_id], "drain")
        self._ours.add(instance_id)

    async def _turn(self, hand: Hand, verb: str) -> None:
        path = f"/v1/workers/{segment(hand.worker_id)}/{verb}"
        await self.client.request("POST", path, type=wire.WorkerInfo, is_repeatable=True)

    async def _end(self, instance_id: str, *, is_shrinking: bool) -> None:
        await self.groups.terminate(instance_id, is_shrinking=is_shrinking)
        self._ours.discard(instance_id)
