"""``millpond config``: the settings in effect."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.command import group
from millpond.cli.options import AsJson

app = group("Show the settings in effect.")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Show every setting, without secrets.

    Invalid settings are reported together, with exit status 5.
    """
    from millpond.cli.show import show

    show(_settings(), as_json=as_json)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The setting: slots, or MILLPOND_SLOTS.")],
    as_json: AsJson = False,
) -> None:
    """Show one setting, without secrets."""
    from millpond.cli.output import print_json
    from millpond.errors import NotFoundError

    known = _settings()
    key = name.removeprefix("MILLPOND_").lower()
    if key not in known:
        raise NotFoundError(f"There is no setting {name[:80]!r}.", hint=f"Settings: {', '.join(known)}.")
    if as_json:
        print_json({key: known[key]})
    else:
        typer.echo("" if known[key] is None else known[key])


def _settings() -> dict[str, object]:
    from millpond.settings import Settings, shown

    return {setting.name: setting.value for setting in shown(Settings.from_env())}
