"""What to do about a group's size: pure decisions over what was seen.

More is asked for at once. Less is asked for when every look of the cool-down agreed on it; then idle workers are
drained, and an instance ends when its worker is drained and holds nothing. A drained worker takes no jobs, so nothing
can begin between the look and the end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from millpond.scaling import Load, Policy, desired_workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.aws.groups import Group, Instance

__all__ = ["Hand", "Load", "Plan", "Policy", "Steady", "bounded", "decide", "desired_workers"]


@dataclass(frozen=True, slots=True)
class Hand:
    """A worker as the API shows it; its name is the id of its instance."""

    worker_id: str
    leases: int
    is_draining: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one look leads to."""

    capacity: int | None = None
    """What the group's capacity is to become; None leaves it."""
    resume: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    shrink: tuple[str, ...] = ()
    """Instances to end, the group shrinking with them."""
    replace: tuple[str, ...] = ()
    """Instances to end, the group putting others in their place."""


@dataclass
class Steady:
    """The most that was desired in the last while: what a group may shrink to.

    Until it has looked for a whole cool-down it does not know, and nothing shrinks.
    """

    cooldown: float
    _seen: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]], init=False)
    _since: float | None = field(default=None, init=False)

    def see(self, desired: int, now: float) -> int | None:
        """Take note of what is desired now; tells the number to shrink to, None while it is too early to tell."""
        self._since = now if self._since is None else self._since
        self._seen.append((now, desired))
        while self._seen[0][0] < now - self.cooldown:
            self._seen.popleft()
        if now - self._since < self.cooldown:
            return None
        return max(seen for _, seen in self._seen)


def bounded(policy: Policy, group: Group) -> Policy:
    """A policy within the limits of the group, which AWS would not let us pass."""
    most = min(policy.max, group.max)
    return Policy(min(max(policy.min, group.min), most), most, policy.jobs_per_worker, policy.target_wait)


def decide(
    desired: int, floor: int | None, group: Group, hands: Mapping[str, Hand], *, ours: frozenset[str] = frozenset()
) -> Plan:
    """What to do, if so many workers are desired now, and the group may shrink to ``floor`` (None: not at all).

    ``hands`` are the workers by instance; ``ours`` the instances whose workers this autoscaler drained, and may call
    back. Only members in service are touched, and none that is protected: the busy are, and whatever an operator
    wants to keep.
    """
    free = {each.instance_id: hands[each.instance_id] for each in group.instances if _is_free(each, hands)}
    leaving = _members(group, hands, is_draining=True)
    resume = tuple(sorted(leaving & ours))[: max(desired - (group.desired - len(leaving)), 0)]

    capacity, shrink, replace = group.desired, list[str](), list[str]()
    for name in sorted(name for name, hand in free.items() if hand.is_draining and name not in resume):
        can_shrink = capacity > max(desired, group.min)
        (shrink if can_shrink else replace).append(name)
        capacity -= can_shrink

    # Those who leave are counted in the capacity, and work no more.
    still_leaving = len(leaving) - len(resume) - len(shrink) - len(replace)
    wanted = min(desired + still_leaving, group.max)
    ends = Plan(resume=resume, shrink=tuple(shrink), replace=tuple(replace))
    if wanted > capacity:
        return msgspec.structs.replace(ends, capacity=wanted)
    if floor is None:
        return ends
    serving = len(_members(group, hands, is_draining=False))
    spare = min(capacity - still_leaving, serving) - max(floor, desired, group.min)
    idle = sorted(name for name, hand in free.items() if not hand.is_draining)
    return msgspec.structs.replace(ends, drain=tuple(idle[: max(spare, 0)]))


def _is_free(member: Instance, hands: Mapping[str, Hand]) -> bool:
    """Whether its end would disturb nobody."""
    hand = hands.get(member.instance_id)
    return member.is_in_service and not member.is_protected and hand is not None and hand.leases == 0


def _members(group: Group, hands: Mapping[str, Hand], *, is_draining: bool) -> set[str]:
    """The members in service whose workers are known, and take no more jobs, or do."""
    names = {each.instance_id for each in group.instances if each.is_in_service}
    return {name for name in names & hands.keys() if hands[name].is_draining == is_draining}
