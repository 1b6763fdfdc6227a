"""Prints the dependencies of the products, without Millpond itself, which is installed from this folder.

scripts/needs.py [EXTRA...]
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "products" / "pyproject.toml"

project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
needs = list[str](project["dependencies"])
for extra in sys.argv[1:]:
    needs += project["optional-dependencies"][extra]
print(*(each for each in needs if not re.match(r"millpond\b", each)), sep="\n")
