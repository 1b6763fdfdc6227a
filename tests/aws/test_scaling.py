"""What is done about a group's size: pure decisions, and a group that is played over time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.integrations.aws.groups import AutoScalingGroup, Instance
from millpond.integrations.aws.scaling import InstanceWorker, ScalingPlan, StabilizationWindow, bounded, decide
from millpond.scaling import Load, Policy, desired_workers


def group(*instances: Instance, desired: int | None = None, minimum: int = 0, maximum: int = 10) -> AutoScalingGroup:
    return AutoScalingGroup("gpus", minimum, maximum, len(instances) if desired is None else desired, instances)


def member(name: str, *, state: str = "InService", is_protected: bool = False) -> Instance:
    return Instance(name, state, is_protected, "gpus")


IDLE, BUSY = InstanceWorker("worker_1", 0), InstanceWorker("worker_2", 1)
DRAINED, FINISHING = InstanceWorker("worker_3", 0, is_draining=True), InstanceWorker("worker_4", 1, is_draining=True)

# Examples


def test_more_is_asked_for_at_once() -> None:
    assert decide(3, None, group(member("a")), {"a": BUSY}) == ScalingPlan(capacity=3)


def test_never_more_than_the_group_can_have() -> None:
    assert decide(30, None, group(member("a")), {"a": BUSY}) == ScalingPlan(capacity=10)


def test_those_that_are_on_their_way_are_not_asked_for_twice() -> None:
    assert decide(3, None, group(member("a"), member("b", state="Pending"), desired=3), {"a": BUSY}) == ScalingPlan()


def test_nobody_goes_before_the_cool_down_is_over() -> None:
    assert decide(0, None, group(member("a"), member("b")), {"a": IDLE, "b": IDLE}) == ScalingPlan()


def test_the_idle_are_drained_first() -> None:
    assert decide(1, 1, group(member("a"), member("b")), {"a": BUSY, "b": IDLE}) == ScalingPlan(drain=("b",))


@pytest.mark.parametrize(
    ("kept", "workers"),
    [
        (member("a", is_protected=True), {"a": IDLE}),
        (member("a"), {"a": BUSY}),
        (member("a", state="Pending"), {"a": IDLE}),
        (member("a", state="Standby"), {"a": IDLE}),
        (member("a", state="Terminating:Wait"), {"a": DRAINED}),
        (member("a", is_protected=True), {"a": DRAINED}),
        (member("a"), {"a": FINISHING}),
        (member("a"), {}),
    ],
    ids=["protected", "busy", "pending", "standby", "terminating", "protected and drained", "finishing", "unknown"],
)
def test_some_are_left_alone(kept: Instance, workers: dict[str, InstanceWorker]) -> None:
    plan = decide(0, 0, group(kept), workers)
    assert (plan.drain, plan.shrink, plan.replace) == ((), (), ())


def test_a_drained_worker_that_holds_nothing_goes_with_its_place() -> None:
    assert decide(1, 1, group(member("a"), member("b")), {"a": BUSY, "b": DRAINED}) == ScalingPlan(shrink=("b",))


def test_a_drained_worker_that_is_needed_is_replaced() -> None:
    assert decide(2, 2, group(member("a"), member("b")), {"a": BUSY, "b": DRAINED}) == ScalingPlan(replace=("b",))


def test_a_group_at_its_least_replaces_the_drained() -> None:
    assert decide(0, 0, group(member("a"), minimum=1), {"a": DRAINED}) == ScalingPlan(replace=("a",))


def test_one_that_is_finishing_is_no_capacity() -> None:
    assert decide(2, 2, group(member("a"), member("b")), {"a": BUSY, "b": FINISHING}) == ScalingPlan(capacity=3)


def test_who_was_asked_to_leave_is_called_back_before_a_new_one_is_started() -> None:
    workers = {"a": BUSY, "b": FINISHING}
    plan = decide(2, 2, group(member("a"), member("b")), workers, ours=frozenset("b"))
    assert plan == ScalingPlan(resume=("b",))


def test_the_only_worker_is_not_sent_away_for_machines_that_never_worked() -> None:
    assert decide(1, 1, group(member("a"), member("b"), member("c")), {"a": IDLE}) == ScalingPlan()


def test_a_policy_stays_within_the_group() -> None:
    small = group(minimum=1, maximum=5)
    assert bounded(Policy(0, 100), small) == Policy(1, 5)
    assert bounded(Policy(2, 3, 4, 5.0), small) == Policy(2, 3, 4, 5.0)
    assert bounded(Policy(7, 9), small) == Policy(5, 5)


# Properties

remote_workers_of = st.builds(InstanceWorker, st.just("worker_x"), st.integers(0, 2), st.booleans())
states = st.sampled_from(["InService", "InService", "InService", "Pending", "Standby", "Terminating"])


@st.composite
def scenes(draw: st.DrawFn) -> tuple[int, int | None, AutoScalingGroup, dict[str, InstanceWorker], frozenset[str]]:
    names = [f"i-{number}" for number in range(draw(st.integers(0, 8)))]
    members = [member(name, state=draw(states), is_protected=draw(st.booleans())) for name in names]
    workers = {name: draw(remote_workers_of) for name in names if draw(st.booleans())}
    maximum = draw(st.integers(0, 12))
    seen = group(
        *members, desired=draw(st.integers(0, maximum)), minimum=draw(st.integers(0, maximum)), maximum=maximum
    )
    desired = draw(st.integers(seen.min, 14))
    floor = draw(st.none() | st.integers(desired, 14))
    ours = frozenset(draw(st.sets(st.sampled_from(names)))) if names else frozenset[str]()
    return desired, floor, seen, workers, ours


@given(scenes())
def test_whoever_is_protected_busy_or_not_in_service_is_never_taken(
    scene: tuple[int, int | None, AutoScalingGroup, dict[str, InstanceWorker], frozenset[str]],
) -> None:
    desired, floor, seen, workers, ours = scene
    plan = decide(desired, floor, seen, workers, ours=ours)
    members = {each.instance_id: each for each in seen.instances}
    for name in plan.drain + plan.shrink + plan.replace:
        assert members[name].state == "InService"
        assert not members[name].is_protected
        assert workers[name].leases == 0
    for name in plan.shrink + plan.replace:
        assert workers[name].is_draining
    for name in plan.drain:
        assert floor is not None
        assert not workers[name].is_draining
    assert set(plan.resume) <= ours
    named = plan.resume + plan.drain + plan.shrink + plan.replace
    assert len(named) == len(set(named))


@given(scenes())
def test_the_capacity_stays_within_the_group_and_those_who_work_are_enough(
    scene: tuple[int, int | None, AutoScalingGroup, dict[str, InstanceWorker], frozenset[str]],
) -> None:
    desired, floor, seen, workers, ours = scene
    plan = decide(desired, floor, seen, workers, ours=ours)
    after = seen.desired - len(plan.shrink)
    assert after >= min(seen.min, seen.desired)
    if plan.capacity is not None:
        assert after < plan.capacity <= seen.max
        assert plan.drain == ()
    at_work = [
        each.instance_id
        for each in seen.instances
        if each.state == "InService" and each.instance_id in workers and not workers[each.instance_id].is_draining
    ]
    if plan.drain:
        assert len(at_work) - len(plan.drain) >= max(desired, floor or 0)


# Over time


def test_the_most_of_the_last_while_counts() -> None:
    steady = StabilizationWindow(60)
    seen = [
        steady.see(desired, now) for now, desired in [(0, 5), (30, 2), (59, 1), (60, 1), (61, 1), (91, 1), (121, 1)]
    ]
    assert seen == [None, None, None, 5, 2, 1, 1]


def test_without_a_cool_down_what_is_desired_counts_at_once() -> None:
    assert [StabilizationWindow(0).see(3, 0.0), StabilizationWindow(0).see(0, 1.0)] == [3, 0]


@dataclass
class SystemUnderTest:
    """A group in which jobs come at an even pace; instances take a while to boot, and workers to finish."""

    policy: Policy
    pace: float
    seconds: int
    boot: int
    ready: float = 0.0
    desired: int = 0
    born: int = 0
    now: int = 0

    def __post_init__(self) -> None:
        self.members: dict[str, int] = {}
        self.hands: dict[str, InstanceWorker] = {}
        self.running: dict[str, int] = {}
        self.steady = StabilizationWindow(120)
        self.changes: list[int] = []

    def tick(self, step: int = 10) -> None:
        self.now += step
        self.ready += self.pace * step
        for name, until in list(self.running.items()):
            if until <= self.now:
                del self.running[name]
        for name, since in self.members.items():
            if self.now - since >= self.boot:
                self.hands.setdefault(name, InstanceWorker(name, 0))
        for name, worker in self.hands.items():
            if name not in self.running and self.ready >= 1 and not worker.is_draining:
                self.ready -= 1
                self.running[name] = self.now + self.seconds
        self.hands = {name: replace(worker, leases=int(name in self.running)) for name, worker in self.hands.items()}
        self._scale()

    def _scale(self) -> None:
        load = Load(int(self.ready), len(self.running), len(self.running), float(self.seconds))
        desired = desired_workers(load, self.policy)
        floor = self.steady.see(desired, self.now)
        states = {name: "InService" if name in self.hands else "Pending" for name in self.members}
        seen = group(
            *(member(name, state=state) for name, state in states.items()),
            desired=self.desired,
            maximum=self.policy.max,
        )
        before = self.desired
        self._apply(decide(desired, floor, seen, self.hands))
        if self.desired != before:
            self.changes.append(self.now)

    def _apply(self, plan: ScalingPlan) -> None:
        assert not set(plan.shrink + plan.replace) & self.running.keys()
        for name in plan.shrink + plan.replace:
            del self.members[name], self.hands[name]
        self.desired = plan.capacity if plan.capacity is not None else self.desired - len(plan.shrink)
        for name in plan.drain:
            self.hands[name] = replace(self.hands[name], is_draining=True)
        while len(self.members) < self.desired:
            self.born += 1
            self.members[f"i-{self.born}"] = self.now


@settings(max_examples=25, deadline=None)
@given(st.floats(0.02, 0.4), st.integers(10, 100), st.integers(0, 60))
def test_under_a_steady_load_the_size_comes_to_rest_and_all_work_is_done(pace: float, seconds: int, boot: int) -> None:
    system = SystemUnderTest(Policy(0, 60, 1, 60.0), pace, seconds, boot)
    for _ in range(200):
        system.tick()
    settled = len(system.changes)
    sizes = set[int]()
    for _ in range(100):
        system.tick()
        sizes.add(system.desired)
    # The queue does not grow: nobody waits longer than the target, a look at the queue, and the 10 s between two looks.
    assert system.ready <= pace * (seconds + boot + 80) + 1
    assert max(sizes) - min(sizes) <= 1 + pace * seconds * 0.5  # nor does the size swing
    assert len(system.changes) - settled <= 100 * 10 / 120 * 2  # each way at most once in a cool-down


def test_when_the_work_is_done_all_go_and_nobody_who_is_busy_went() -> None:
    system = SystemUnderTest(Policy(0, 20, 1, 0.0), 0.2, 50, 20)
    for _ in range(50):
        system.tick()
    assert system.desired >= 10
    system.pace = 0.0
    for _ in range(50):
        system.tick()
    assert (system.desired, system.members) == (0, {})
    assert system.ready < 1
