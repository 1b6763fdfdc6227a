"""Decides how to change the size of a group, by pure functions of its state.

A group grows at once. It shrinks when all looks of the cool-down agreed: idle workers are drained first, and an
instance is terminated when its worker is draining and holds no jobs. A draining worker takes no jobs, so none can
start between the look and the termination.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from millpond.scaling import Load, Policy, desired_workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.integrations.aws.groups import AutoScalingGroup, Instance

__all__ = [
    "InstanceWorker",
    "Load",
    "Policy",
    "ScalingPlan",
    "StabilizationWindow",
    "bounded",
    "decide",
    "desired_workers",
]


@dataclass(frozen=True, slots=True)
class InstanceWorker:
    """A worker from the API, whose name is the id of its instance."""

    worker_id: str
    leases: int
    is_draining: bool = False


class ScalingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions that one look leads to."""

    capacity: int | None = None
    """The new capacity of the group; None to keep it."""
    resume: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    shrink: tuple[str, ...] = ()
    """Instances to terminate such that the group shrinks."""
    replace: tuple[str, ...] = ()
    """Instances to terminate such that the group replaces them."""


@dataclass
class StabilizationWindow:
    """The maximum of the desired workers during the cool-down, which is the size that a group may shrink to.

    During the first cool-down it is unknown, and the group does not shrink.
    """

    cooldown: float
    _seen: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]], init=False)
    _since: float | None = field(default=None, init=False)

    def see(self, desired: int, now: float) -> int | None:
        """Record the number desired now; returns the number to shrink to, or None during the first cool-down."""
        self._since = now if self._since is None else self._since
        self._seen.append((now, desired))
        while self._seen[0][0] < now - self.cooldown:
            self._seen.popleft()
        if now - self._since < self.cooldown:
            return None
        return max(seen for _, seen in self._seen)


def bounded(policy: Policy, group: AutoScalingGroup) -> Policy:
    """A policy within the limits of the group, which AWS enforces."""
    maximum = min(policy.max, group.max)
    return Policy(min(max(policy.min, group.min), maximum), maximum, policy.jobs_per_worker, policy.target_wait)


def decide(
    desired: int,
    floor: int | None,
    group: AutoScalingGroup,
    workers: Mapping[str, InstanceWorker],
    *,
    ours: frozenset[str] = frozenset(),
) -> ScalingPlan:
    """The plan for a number of desired workers, and a group that may shrink to ``floor`` (None: not at all).

    ``workers`` are the workers by instance; ``ours`` the instances whose workers this autoscaler drained, and may
    resume. Only unprotected members in service are drained or terminated: busy ones are protected, and those that an
    operator wants to keep.
    """
    free = {each.instance_id: workers[each.instance_id] for each in group.instances if _is_free(each, workers)}
    leaving = _members(group, workers, is_draining=True)
    resume = tuple(sorted(leaving & ours))[: max(desired - (group.desired - len(leaving)), 0)]

    capacity, shrink, replace = group.desired, list[str](), list[str]()
    for name in sorted(name for name, worker in free.items() if worker.is_draining and name not in resume):
        can_shrink = capacity > max(desired, group.min)
        (shrink if can_shrink else replace).append(name)
        capacity -= can_shrink

    # Draining workers count in the capacity, but take no jobs.
    still_leaving = len(leaving) - len(resume) - len(shrink) - len(replace)
    wanted = min(desired + still_leaving, group.max)
    ends = ScalingPlan(resume=resume, shrink=tuple(shrink), replace=tuple(replace))
    if wanted > capacity:
        return msgspec.structs.replace(ends, capacity=wanted)
    if floor is None:
        return ends
    serving = len(_members(group, workers, is_draining=False))
    spare = min(capacity - still_leaving, serving) - max(floor, desired, group.min)
    idle = sorted(name for name, worker in free.items() if not worker.is_draining)
    return msgspec.structs.replace(ends, drain=tuple(idle[: max(spare, 0)]))


def _is_free(member: Instance, workers: Mapping[str, InstanceWorker]) -> bool:
    """Whether it can be terminated without losing a job."""
    worker = workers.get(member.instance_id)
    return member.is_in_service and not member.is_protected and worker is not None and worker.leases == 0


def _members(group: AutoScalingGroup, workers: Mapping[str, InstanceWorker], *, is_draining: bool) -> set[str]:
    """The members in service whose workers are known and are draining, or are not."""
    names = {each.instance_id for each in group.instances if each.is_in_service}
    return {name for name in names & workers.keys() if workers[name].is_draining == is_draining}
