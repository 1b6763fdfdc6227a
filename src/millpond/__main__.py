"""``millpond`` and ``python -m millpond``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. The SDK is installed without it; in this case, exit with the command that installs it."""
    if sys.argv[1:] == ["--version"]:  # handled here, so that it works with the SDK alone
        from millpond import __version__  # noqa: PLC0415 - nothing else needs it

        sys.stdout.write(f"millpond {__version__}\n")
        return
    try:
        from millpond.cli import main as run  # noqa: PLC0415 - it may not be installed
    except ModuleNotFoundError as error:
        if (error.name or "millpond").startswith("millpond"):
            raise
        sys.exit(f"millpond: the command line needs {error.name}: run pip install 'millpond[server]'.")
    run()


if __name__ == "__main__":
    main()
