"""The command that `make demo` has run: how many lines of code each blueprint is, slowly enough to watch."""

import time
from pathlib import Path

import millpond

for folder in sorted((Path(millpond.__file__).parent / "blueprints").iterdir()):
    files = [path for path in folder.rglob("*") if path.suffix in (".py", ".sql")]
    if files:
        time.sleep(0.3)
        print(f"{folder.name}: {sum(len(path.read_text().splitlines()) for path in files):,} lines")
