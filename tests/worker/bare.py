"""Runs ``python -m millpond.worker …`` as if only the SDK were installed: httpx2 and msgspec, and what these need.

Everything else that a server has is not to be found; whoever asks for it gets the error of a module that is not there.
"""

from __future__ import annotations

import importlib.metadata
import re
import runpy
import sys


class Absent:
    """Finds nothing where a package of the server would be."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002 - an interface
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def needed(package: str) -> set[str]:
    """A package and all that it stands on."""
    found: set[str] = set()
    pending = [package]
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if name in found:
            continue
        found.add(name)
        try:
            wanted = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        pending += [re.split(r"[^\w.-]", each)[0] for each in wanted if "extra ==" not in each]
    return found


def absent() -> set[str]:
    """The modules that an installation of the SDK alone does not have."""
    allowed = needed("millpond")
    modules = importlib.metadata.packages_distributions().items()
    return {module for module, owners in modules if not {re.sub(r"[-_.]+", "-", o).lower() for o in owners} & allowed}


if __name__ == "__main__":
    sys.meta_path.insert(0, Absent(absent()))  # pyright: ignore[reportArgumentType]
    del sys.argv[0]
    module, sys.argv[0] = sys.argv[0], sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
