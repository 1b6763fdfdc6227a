"""Classifiers: external code, such as a model, that rates texts. Each has a name and a time limit."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence


class Finding(msgspec.Struct, frozen=True):
    """A label that a classifier gives to a text, or to the part from ``start`` to ``end``."""

    label: str
    score: float = 1.0
    start: int | None = None
    end: int | None = None


class Classifier(Protocol):
    """Rates a text. If ``classify`` is not ``async``, it is called in threads, and must be thread-safe."""

    def classify(self, text: str) -> Sequence[Finding] | Awaitable[Sequence[Finding]]: ...


async def ask(classifier: Classifier, text: str, seconds: float) -> Sequence[Finding]:
    """The findings of a classifier; raises what it raises, and :class:`TimeoutError` after ``seconds``."""
    async with asyncio.timeout(seconds):
        if inspect.iscoroutinefunction(classifier.classify):
            found = classifier.classify(text)
        else:
            found = await asyncio.to_thread(classifier.classify, text)
        return await found if inspect.isawaitable(found) else found
