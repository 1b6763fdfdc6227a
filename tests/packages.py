"""What tests need and no wheel holds, from npm: a browser, and the libraries that read webhooks in Node.js.

    python -m tests.packages    brings what is not there; `make test` asks for it

Each has a folder beside this file, with a lock file. It is brought into .venv once, whole or not at all.
"""

import fcntl
import hashlib
import shutil
from pathlib import Path

from ui.hatch_build import NPM, QUIET, node

TESTS = Path(__file__).parent
PLACE = TESTS.parent / ".venv" / "npm"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HASTE = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000")
"""Without a network npm would try for more than a minute, before every run."""


def browser() -> str | None:
    """The machine's own Chromium or Chrome, or else the one that was brought."""
    return machines_browser() or shutil.which(str(place("chromium") / "run"))


def machines_browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def place(name: str) -> Path:
    """The folder of what was brought: other versions have another."""
    files = b"".join(path.read_bytes() for path in sorted((TESTS / name).iterdir()))
    return PLACE / f"{name}-{hashlib.sha256(files).hexdigest()[:12]}"


def bring(name: str) -> None:
    wanted = place(name)
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second waits, and finds it there
        if wanted.exists():
            return
        for old in PLACE.glob(f"{name}-*"):
            shutil.rmtree(old)
        print(f"Bringing {name} with npm, for the tests", flush=True)  # noqa: T201
        half = wanted.with_suffix(".half")
        shutil.copytree(TESTS / name, half)
        complaint = f"npm could not bring what tests/{name}/package.json names; why is said above."
        node(NPM, "ci", "--ignore-scripts", *QUIET, *HASTE, cwd=half, complaint=complaint)
        node(NPM, "run", "unpack", "--if-present", *QUIET, cwd=half, complaint=complaint)
        half.rename(wanted)


if __name__ == "__main__":
    bring("peers")
    if not machines_browser():
        bring("chromium")
