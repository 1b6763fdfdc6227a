"""Names functions so that another process can import them: ``module:function``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millpond.errors import SettingsError
from millpond.worker.apps import load_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_HINT: Final = "Define it at the top level of a module or file, and start the worker with that: millpond worker app.py."


def reference(function: Callable[..., Any], what: str) -> str:
    """The name under which another process imports the function; ``what`` says in an error what it is."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module is None or "<" in name:
        raise _refused(what, "is defined inside of a function")
    if module == "__main__":
        raise _refused(what, "is defined in __main__, a script or a notebook")
    if _find(sys.modules.get(module), name) is not function:
        raise _refused(what, f"is not what the module {module!r} has under the name {name!r}")
    return f"{module}:{name}"


def resolve(name: str) -> Any:
    """The object with this name; its module must be imported."""
    module, _, path = name.partition(":")
    return _find(sys.modules.get(module), path)


def files_of(references: Iterable[str]) -> dict[str, str]:
    """The files of the modules of these references."""
    modules = dict.fromkeys(each.partition(":")[0] for each in references)
    return {
        name: str(Path(file).resolve()) for name in modules if (file := getattr(sys.modules[name], "__file__", None))
    }


def import_modules(files: dict[str, str], references: Iterable[str]) -> None:
    """Import the modules of these references from the same files as in the process that has named them."""
    for name in dict.fromkeys(each.partition(":")[0] for each in references):
        file = files.get(name)
        found = _imported(name)
        if file is not None and (found is None or found != file):
            load_module(file)
    for each in references:
        if resolve(each) is None:
            raise SettingsError(
                f"{each.replace(':', '.')} cannot be imported by another process.", field="app", hint=_HINT
            )


def _imported(name: str) -> str | None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None
    file = getattr(module, "__file__", None)
    return None if file is None else str(Path(file).resolve())


def _find(found: Any, path: str) -> Any:
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _refused(what: str, why: str) -> SettingsError:
    return SettingsError(f"{what} {why}, so that another process cannot import it.", field="app", hint=_HINT)
