"""``python -m millpond_products.renderer.press``: a process that renders one prediction after another.

It reads orders from standard input. When the process that started it is gone, it ends at once, even in the middle of an
order.
"""

from __future__ import annotations

import os
import resource
import sys
from importlib import import_module
from typing import Any, Final

import msgspec

from millpond import lifeline
from millpond_products.renderer.models import find
from millpond_products.renderer.orders import LogText, Rendered, RenderOrder, UnmakeableError

MEMORY_MAX: Final = 3 * 1024**3
"""Bytes of address space: decoding an image that needs more fails at this limit, at the latest."""
OUTPUT_MAX: Final = 64 * 1024**2
_TEXT_MAX: Final = 1_000
_MAKERS: Final = {
    "millpond/static-ad": "millpond_products.renderer.pictures",
    "millpond/ugc-video": "millpond_products.renderer.films",
    "millpond/persona": "millpond_products.renderer.personas",
    "millpond/tts": "millpond_products.renderer.speech",
}
_NICENESS: Final = 5


def main() -> None:
    lifeline.stop_with_parent()
    os.nice(_NICENESS)  # the server has priority
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_MAX, OUTPUT_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=RenderOrder)
        answers.write(msgspec.json.encode(_make(order, answers)) + b"\n")


def _make(order: RenderOrder, answers: Any) -> Rendered:
    def log(text: str) -> None:
        answers.write(msgspec.json.encode(LogText(text[:_TEXT_MAX])) + b"\n")

    try:
        model = find(order.model)
        assert model is not None  # noqa: S101 - the server has checked it
        log(f"Using seed: {order.seed}")
        maker: Any = import_module(_MAKERS[model.full_name])
        return maker.make(model.read(order.input), order, log)
    except UnmakeableError as error:
        return Rendered(error=str(error))
    except MemoryError:
        return Rendered(error="The prediction exceeded its memory limit.")
    except Exception as error:  # noqa: BLE001 - an order may fail for any reason
        return Rendered(error=f"{type(error).__name__}: {error}"[:_TEXT_MAX])


if __name__ == "__main__":
    main()
