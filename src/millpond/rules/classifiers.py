"""Classifiers: judges of text that are somebody else's code, a model perhaps. They have names and a time limit."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence


class Finding(msgspec.Struct, frozen=True):
    """What a classifier says about a text, or about the part of it that it names."""

    label: str
    score: float = 1.0
    start: int | None = None
    end: int | None = None


class Classifier(Protocol):
    """Looks at a text. One that is not ``async`` is called in a thread, and so must bear being called in several."""

    def classify(self, text: str) -> Sequence[Finding] | Awaitable[Sequence[Finding]]: ...


async def ask(classifier: Classifier, text: str, seconds: float) -> Sequence[Finding]:
    """What it finds; raises whatever it raises, and :class:`TimeoutError` when it takes longer."""
    async with asyncio.timeout(seconds):
        if inspect.iscoroutinefunction(classifier.classify):
            found = classifier.classify(text)
        else:
            found = await asyncio.to_thread(classifier.classify, text)
        return await found if inspect.isawaitable(found) else found
