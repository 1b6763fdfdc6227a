"""Loads an app: the one Millpond() that a file or module creates."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.app import Millpond
from millpond.errors import SettingsError

if TYPE_CHECKING:
    from types import ModuleType


def load_app(name: str) -> Millpond:
    """The one Millpond() that a file or module creates."""
    return app_of(name, load_module(name))


def load_module(name: str) -> ModuleType:
    """The file or module itself, for callers that need more of it than the app."""
    return _import_file(Path(name)) if name.endswith(".py") else _import_module(name)


def app_of(name: str, module: ModuleType) -> Millpond:
    found = {id(value): value for value in vars(module).values() if isinstance(value, Millpond)}
    if len(found) != 1:
        count = "no" if not found else "more than one"
        raise SettingsError(f"{name} creates {count} Millpond() objects.", field="app", hint="Create exactly one.")
    return next(iter(found.values()))


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise SettingsError(f"The file {str(path)!r} does not exist.", field="app")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{str(path)!r} is not a Python file.", field="app")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # so that its types can be resolved
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _broken(str(path), error) from error
    return module


def _import_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SettingsError(f"The module {name!r} cannot be imported: {error}.", field="app") from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> SettingsError:
    """The error of the app's own code with its location, in one line."""
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}"
        message = f"{type(error).__name__}: {error.msg}"
    else:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename}:{last.lineno}"
        message = " ".join(traceback.format_exception_only(error)[-1].split())
    return SettingsError(f"{name} cannot be loaded: {message} ({place}).", field="app")
