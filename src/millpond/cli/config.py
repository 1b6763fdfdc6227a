"""``millpond config``: the settings as they are read."""

from __future__ import annotations

from millpond.cli.command import group
from millpond.cli.options import AsJson

app = group("The settings as they are read.")


@app.command()
def show(as_json: AsJson = False) -> None:
    """Show every setting, without its secrets."""
    from millpond.cli.show import show as put
    from millpond.settings import Settings, shown

    put({setting.name: setting.value for setting in shown(Settings.from_env())}, as_json=as_json)


@app.command()
def check(as_json: AsJson = False) -> None:
    """Tell every problem in the settings at once. Exit status 5 if there is one."""
    from millpond.cli.output import print_json, say
    from millpond.settings import Settings

    Settings.from_env()
    if as_json:
        print_json({"ok": True})
    else:
        say("config: ok")
