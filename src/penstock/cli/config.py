"""``penstock config``: the settings as they are read."""

from __future__ import annotations

from penstock.cli.command import group
from penstock.cli.options import AsJson

app = group("The settings as they are read.")


@app.command()
def show(as_json: AsJson = False) -> None:
    """Show every setting, without its secrets."""
    from penstock.cli.show import show as put
    from penstock.settings import Settings, shown

    put({setting.name: setting.value for setting in shown(Settings.from_env())}, as_json=as_json)


@app.command()
def check(as_json: AsJson = False) -> None:
    """Tell every problem in the settings at once. Exit status 5 if there is one."""
    from penstock.cli.output import print_json, say
    from penstock.settings import Settings

    Settings.from_env()
    if as_json:
        print_json({"ok": True})
    else:
        say("config: ok")
