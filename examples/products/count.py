"""The command that `make demo` runs: prints the number of code lines of each product, slowly enough to watch."""

import time
from importlib.metadata import entry_points
from pathlib import Path

import millpond_products

for name in sorted(entry_points(group="millpond.products").names):
    folder = Path(millpond_products.__file__).parent / name
    files = [path for path in folder.rglob("*") if path.suffix in (".py", ".sql")]
    if files:
        time.sleep(0.3)
        print(f"{name}: {sum(len(path.read_text().splitlines()) for path in files):,} lines")
