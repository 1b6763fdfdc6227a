"""Short ways to ask what rules say."""

from __future__ import annotations

from typing import Any

from millpond_products.rules import (
    Decision,
    Direction,
    Matcher,
    Rule,
    RuleSet,
    compile,  # noqa: A004 - the verb
)


def ruleset(*matchers: Matcher, direction: Direction = "inbound", **options: Any) -> RuleSet:
    """Rules that flag, unless it is said otherwise."""
    given: dict[str, Any] = {"action": "flag"} | options
    return compile([Rule(name=f"rule {n}", matcher=m, **given) for n, m in enumerate(matchers)], direction)


async def decide(text: str, *matchers: Matcher, **options: Any) -> Decision:
    return await ruleset(*matchers, **options).decide(text)


async def found(text: str, *matchers: Matcher) -> list[str]:
    """What the rules are about, as it stands in the text."""
    return [text[verdict.start : verdict.end] for verdict in (await decide(text, *matchers)).verdicts]


async def labels(text: str, *matchers: Matcher) -> list[tuple[str, str]]:
    decision = await decide(text, *matchers)
    return [(verdict.label, text[verdict.start : verdict.end]) for verdict in decision.verdicts]
