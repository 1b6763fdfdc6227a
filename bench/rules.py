"""Measures how long a decision by a hundred rules takes for 4 kB of text, and for a megabyte.

`python -m bench.rules` prints one JSON line per number. It needs no database.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from typing import Any

from millpond_products.rules import (
    Keywords,
    Length,
    Matcher,
    Pattern,
    Pii,
    Profanity,
    Rule,
    RuleSet,
    Secrets,
    Urls,
    compile,  # noqa: A004 - its public name
)

ROUNDS = 2_000
SIZE = 4_096
MEGABYTE = 1_048_576

# Invented text, similar to what users send to models.
_PROSE = """
Our team has looked at the draft of the brochure, and we'd like to change a few things before it goes to the printer on
Friday. The headline should say what the jacket does, not what it is made of. Could you make three versions: one that is
short, one with a question, and one that speaks to people who cycle to work in the rain? The colours are midnight blue,
moss green and - new this year - a warm grey. It costs 129.00 euros, or 99 during the first week. Sizes run from XS to
XXL; the 2024 model ran small, so we say "order one size up" nowhere any more. Please don't promise that it's waterproof
forever; well-known brands got into trouble for that in 2019. The seams are taped (tested to 10,000 mm), the hood fits
over a helmet, and there's a pocket for a phone. Delivery takes 2-3 days. Returns are free within 30 days.
"""


def rules() -> list[Rule]:
    """A hundred rules of all types, as a long-standing tenant might have."""
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    word = lambda: "".join(chance.choices(letters, k=chance.randint(4, 10)))  # noqa: E731
    matchers: list[Matcher] = [
        Pii(),
        Secrets(),
        Profanity(),
        Urls(deny=tuple(f"{word()}.com" for _ in range(500))),
        Urls(allow=("example.com", "example.org")),
        Length(max=100_000),
        *(Keywords(words=tuple(word() for _ in range(50)), leet=n % 4 == 0) for n in range(40)),
        *(Keywords(words=tuple(f"{word()} {word()}" for _ in range(20))) for _ in range(10)),
        *(Pattern(pattern=rf"(?i)\b{word()}[- ]?\d{{3,8}}\b") for _ in range(22)),
        *(Pattern(pattern=rf"{word()}(?:{word()}|{word()})+.*{word()}", folded=True) for _ in range(11)),
        *(Pii(labels=("card", "iban")) for _ in range(11)),
    ]
    actions = ("block", "redact", "flag")
    return [
        Rule(name=f"rule {n}", matcher=m, action="flag" if isinstance(m, Length) else actions[n % 3])
        for n, m in enumerate(matchers)
    ]


async def seconds(compiled: RuleSet, text: str, rounds: int) -> list[float]:
    taken: list[float] = []
    for n in range(rounds):
        given = f"{n:06d} {text}"[: len(text)]  # different each time, so that nothing is cached
        began = time.perf_counter()
        await compiled.decide(given)
        taken.append(time.perf_counter() - began)
    return sorted(taken)


async def main() -> None:
    began = time.perf_counter()
    compiled = compile(rules(), "inbound")
    report("rules_compile", time.perf_counter() - began, rules=len(compiled.rules))
    prose = (_PROSE * (MEGABYTE // len(_PROSE) + 1))[:MEGABYTE]
    findings = prose[: SIZE - 120] + "Write to ann@example.com or call +49 30 1234567; my card is 4111 1111 1111 1111."
    foreign = (prose[:SIZE].replace("ou", "öü").replace("th", "þ"))[: SIZE - 300]
    for name, text, rounds in (
        ("", prose[:SIZE], ROUNDS),
        ("_with_findings", findings[:SIZE], ROUNDS),
        ("_with_accents", foreign, ROUNDS),
        ("_megabyte", prose, 10),
    ):
        await seconds(compiled, text, max(5, rounds // 20))  # warm-up
        taken = await seconds(compiled, text, rounds)
        size = {"rules": len(compiled.rules), "bytes": len(text.encode())}
        report(f"rules{name}_p50", statistics.median(taken), **size)
        report(f"rules{name}_p99", taken[int(len(taken) * 0.99) - 1], **size)


def report(metric: str, took: float, **settings: Any) -> None:
    line = {"peer": "millpond", "metric": metric, "value": round(took * 1_000, 3), "unit": "ms", "settings": settings}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
