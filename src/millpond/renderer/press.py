"""``python -m millpond.renderer.press``: a process that does one piece of work after another.

Orders come in on standard input. When who gives them is gone, so is the process, in the middle of whatever it does.
"""

from __future__ import annotations

import os
import resource
import sys
from importlib import import_module
from typing import Any, Final

import msgspec

from millpond import lifeline
from millpond.renderer.models import find
from millpond.renderer.orders import Made, Order, Said, UnmakeableError

MEMORY_MAX: Final = 3 * 1024**3
"""Bytes of address space: a picture that unpacks to more is refused by the system, at the latest."""
OUTPUT_MAX: Final = 64 * 1024**2
_TEXT_MAX: Final = 1_000
_MAKERS: Final = {
    "millpond/static-ad": "millpond.renderer.pictures",
    "millpond/ugc-video": "millpond.renderer.films",
    "millpond/persona": "millpond.renderer.personas",
    "millpond/tts": "millpond.renderer.speech",
}
_NICENESS: Final = 5


def main() -> None:
    lifeline.heed()
    os.nice(_NICENESS)  # the server answers first
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_MAX, OUTPUT_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        answers.write(msgspec.json.encode(_make(order, answers)) + b"\n")


def _make(order: Order, answers: Any) -> Made:
    def say(text: str) -> None:
        answers.write(msgspec.json.encode(Said(text[:_TEXT_MAX])) + b"\n")

    try:
        model = find(order.model)
        assert model is not None  # noqa: S101 - the server has found it
        say(f"Using seed: {order.seed}")
        maker: Any = import_module(_MAKERS[model.full_name])
        return maker.make(model.read(order.input), order, say)
    except UnmakeableError as error:
        return Made(error=str(error))
    except MemoryError:
        return Made(error="It needs more memory than a prediction may have.")
    except Exception as error:  # noqa: BLE001 - one piece of work may fail, whatever the reason
        return Made(error=f"{type(error).__name__}: {error}"[:_TEXT_MAX])


if __name__ == "__main__":
    main()
