"""A gate of rules: around a kind, it looks at the input before it is paid for, and at the output before it goes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from millpond import logs
from millpond.errors import BlockedError
from millpond.rules.ruleset import compile as compiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millpond.rules.classifiers import Classifier
    from millpond.rules.rule import Rule
    from millpond.rules.ruleset import RuleSet


class RulesGate:
    """The same rules for everybody, from code."""

    def __init__(self, rules: Sequence[Rule], *, classifiers: Mapping[str, Classifier] | None = None) -> None:
        self._inbound = compiled(rules, "inbound", classifiers=classifiers)
        self._outbound = compiled(rules, "outbound", classifiers=classifiers)

    async def inbound(self, tenant: str, given: Any) -> Any:
        return await screen(self._inbound, tenant, given, field="input")

    async def outbound(self, tenant: str, given: Any) -> Any:
        return await screen(self._outbound, tenant, given, field="output")


async def screen(rules: RuleSet, tenant: str, given: Any, *, field: str) -> Any:
    """A value as the rules let it pass; raises :class:`~millpond.errors.BlockedError` where they do not."""
    judged = await rules.decide_value(given, field=field)
    if judged.outcome == "blocked":
        told = [msgspec.to_builtins(verdict) for verdict in judged.verdicts]
        blocked = BlockedError(f"The rules do not let the {field} pass.", field=field, verdicts=told)
        if judged.more:
            blocked.details["more"] = judged.more
        raise blocked
    if judged.verdicts:
        names = sorted({verdict.name for verdict in judged.verdicts})
        logs.emit(
            "gate.noted", tenant=tenant, direction=rules.direction, rules=names[:20], verdicts=len(judged.verdicts)
        )
    return judged.value
