"""What must hold of parents and children: each child exists once, and has ended, as its parent's input says."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from millpond.ids import text
from tests.chaos.faults.app import CHILDREN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any
    from uuid import UUID


def complaints(jobs: Mapping[UUID, Mapping[str, Any]]) -> Iterable[str]:
    """What is wrong with the children of these jobs, which are all there are."""
    children: defaultdict[UUID, Counter[tuple[str, int]]] = defaultdict(Counter)
    for job in jobs.values():
        if job["parent_id"] is not None:
            children[job["parent_id"]][job["kind"], job["n"]] += 1
    yield from (f"the parent {text('job', parent_id)} does not exist" for parent_id in children.keys() - jobs.keys())
    for job_id, job in jobs.items():
        wanted = Counter(CHILDREN[job["kind"]](job["n"]) if job["kind"] in CHILDREN else [])
        found = children[job_id]
        is_wrong = found - wanted if job["outcome"] == "canceled" else found != wanted
        if is_wrong:
            yield f"{text('job', job_id)} ({job['kind']} {job['n']}) has the children {found} instead of {wanted}"
