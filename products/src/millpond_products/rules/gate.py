"""A gate that applies rules to a kind's input before it is paid for, and to its output before it is released."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from millpond import logs
from millpond.errors import BlockedError
from millpond_products.rules.ruleset import compile as compiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millpond_products.rules.classifiers import Classifier
    from millpond_products.rules.rule import Rule
    from millpond_products.rules.ruleset import RuleSet


class RulesGate:
    """A gate with the same rules for all tenants, which are declared in code."""

    def __init__(self, rules: Sequence[Rule], *, classifiers: Mapping[str, Classifier] | None = None) -> None:
        self._inbound = compiled(rules, "inbound", classifiers=classifiers)
        self._outbound = compiled(rules, "outbound", classifiers=classifiers)

    async def inbound(self, tenant: str, given: Any) -> Any:
        return await screen(self._inbound, tenant, given, field="input")

    async def outbound(self, tenant: str, given: Any) -> Any:
        return await screen(self._outbound, tenant, given, field="output")


async def screen(rules: RuleSet, tenant: str, given: Any, *, field: str) -> Any:
    """The value with redactions; raises :class:`~millpond.errors.BlockedError` if the rules block it."""
    judged = await rules.decide_value(given, field=field)
    if judged.outcome == "blocked":
        verdicts = [msgspec.to_builtins(verdict) for verdict in judged.verdicts]
        blocked = BlockedError(f"The rules do not allow the {field}.", field=field, verdicts=verdicts)
        if judged.more:
            blocked.details["more"] = judged.more
        raise blocked
    if judged.verdicts:
        names = sorted({verdict.name for verdict in judged.verdicts})
        logs.emit(
            "gate.flagged", tenant=tenant, direction=rules.direction, rules=names[:20], verdicts=len(judged.verdicts)
        )
    return judged.value
