"""``millpond`` and ``python -m millpond``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what it lacks: the SDK is installed without it."""
    try:
        from millpond.cli import main as run  # noqa: PLC0415 - it may not be there
    except ModuleNotFoundError as error:
        if (error.name or "millpond").startswith("millpond"):
            raise
        sys.exit(f"millpond: the command line needs {error.name}: run pip install 'millpond[server]'.")
    run()


if __name__ == "__main__":
    main()
