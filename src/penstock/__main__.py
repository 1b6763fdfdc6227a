"""``penstock`` and ``python -m penstock``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what it lacks: the SDK is installed without it."""
    try:
        from penstock.cli import main as run  # noqa: PLC0415 - it may not be there
    except ModuleNotFoundError as error:
        if (error.name or "penstock").startswith("penstock"):
            raise
        sys.exit(f"penstock: the command line needs {error.name}: run pip install 'penstock[server]'.")
    run()


if __name__ == "__main__":
    main()
