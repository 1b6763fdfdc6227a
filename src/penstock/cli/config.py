"""``penstock config``: the settings as they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli.command import group
from penstock.cli.options import AsJson

if TYPE_CHECKING:
    from penstock.settings import Settings

app = group("The settings as they are read.")


@app.command()
def show(as_json: AsJson = False) -> None:
    """Show every setting, without its secrets."""
    from penstock.cli.show import show as put
    from penstock.settings import Settings

    put(redacted(Settings.from_env()), as_json=as_json)


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


def redacted(settings: Settings) -> dict[str, Any]:
    """The settings as they may be shown to anybody."""
    import dataclasses

    told = {each.name: getattr(settings, each.name) for each in dataclasses.fields(settings)}
    told["database_url"] = told["database_url"] and _without_password(told["database_url"])
    homes: dict[str, str] = told["tenant_databases"] or {}
    told["tenant_databases"] = {tenant: _without_password(url) for tenant, url in homes.items()} or None
    for secret in ("api_key", "fleet_secret"):
        told[secret] = told[secret] and "…"
    return {name: _told(value) for name, value in told.items()}


def _told(value: Any) -> Any:
    from datetime import timedelta

    if isinstance(value, timedelta):
        return _length(value.total_seconds())
    return value if value is None or isinstance(value, int) else str(value)


def _length(seconds: float) -> str:
    """A length of time as it is written in a setting."""
    units = {"d": 86_400, "h": 3_600, "m": 60}
    unit, size = next(((unit, size) for unit, size in units.items() if seconds % size == 0), ("s", 1))
    return f"{seconds / size:g}{unit}"


def _without_password(url: str) -> str:
    """The address alone: a password may stand before the host or among the parameters."""
    from urllib.parse import parse_qsl, urlencode, urlsplit

    try:
        read = urlsplit(url)
        host = read.netloc.rpartition("@")[2]
    except ValueError:
        return "…"
    user = f"{read.username}{':…' if read.password else ''}@" if read.username else ""
    shown = [(name, "…" if "password" in name else value) for name, value in parse_qsl(read.query)]
    return read._replace(netloc=f"{user}{host}", query=urlencode(shown, safe="/…")).geturl()
