"""Settings from the environment, checked all at once."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from millpond import allowed, values
from millpond.errors import InvalidError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import Field

PREFIX: Final = "MILLPOND_"
_HOMES: Final = "tenant_databases"
_ALSO_READ: Final = frozenset({"database_url", "replicate_api_token"})
"""What is read without the prefix too."""
_ADDRESSES: Final = frozenset({"database_url", _HOMES})
_COMMANDS: Final = "commands"
_HARMLESS: Final = frozenset(
    {
        *("endpoint", "region", "style"),
        *("application_name", "connect_timeout", "dbname", "host", "port", "sslmode", "target_session_attrs"),
    }
)
"""The parameters of an address that are shown with their values; what any other holds may be a secret."""
_BOUNDS: Final = {
    "slots": (1, 10_000),
    "port": (0, 65_535),
    "rate_limit": (1, 1_000_000),
    "poll_limit": (1, 1_000_000),
    "fleet_max": (0, 100_000),
    "upload_max": (1, 5 * 1024**4),
    "ui_pool": (1, 100),
}
_NEVER: Final = ("refresh",)
"""Lengths of time for which 0 means something."""
_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}
_CHOICES: Final = {
    "log_level": ("debug", "info", "warning", "error"),
    "log_format": ("auto", "json", "console"),
    "fleet_approval": ("auto", "manual"),
}
_LISTS: Final = {"commands": allowed.commands, "repositories": allowed.Repositories.read}
"""What is read where it is used, and must be known to be good before that."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field is an environment variable: ``MILLPOND_`` and its name in capitals."""

    database_url: str | None = field(default=None, repr=False)
    """Any PostgreSQL from 15 on; ``DATABASE_URL`` is read too. Without one, the embedded PostgreSQL is used."""
    tenant_databases: Mapping[str, str] | None = field(default=None, repr=False)
    """The tenants that live in another PostgreSQL, and where, as JSON: {"TENANT": "postgresql://…"}."""
    data_dir: Path = Path(".millpond")
    """Where the embedded PostgreSQL keeps its files, and ``millpond up`` its keys."""
    app: str | None = None
    """The file (app.py) or module (shop.jobs) that makes a Millpond(), for commands that are not told one."""
    url: str | None = None
    """Where the API is, for the commands and the SDK."""
    api_key: str | None = field(default=None, repr=False)
    """The key to show there."""
    fleet_secret: str | None = field(default=None, repr=False)
    """The key of scope worker with which a worker of the fleet registers there."""
    host: str = "127.0.0.1"
    """The address on which the API listens."""
    port: int = 8686
    """The port on which the API listens; 0 for any that is free."""
    rate_limit: int = 1_000
    """How many requests a second a key may make, unless it has a limit of its own."""
    storage: str = ""
    """Where files are: a folder, or s3://bucket/prefix?endpoint=URL&region=NAME. Empty: in the data directory."""
    files_url: str | None = None
    """Where clients and workers reach the file server that serves a folder; `millpond up` knows its own."""
    upload_max: int = 5 * 1024**3
    """How many bytes a file may have."""
    upload_lifetime: timedelta = timedelta(minutes=15)
    """How long a URL to upload to is good."""
    download_lifetime: timedelta = timedelta(hours=1)
    """How long a URL to download from is good."""
    public_url: str | None = None
    """Where the world reaches the API: providers call back there. Without it they are asked, and never call."""
    encryption_key: str | None = field(default=None, repr=False)
    """What secrets of webhooks are encrypted with: 32 bytes in base64; several, with commas: the first encrypts."""
    outbound_allow: str = ""
    """What is opened of the inside for webhooks and other URLs of users: addresses, networks or host:port, with commas;
    loopback means this machine. `millpond up` opens that unless it is told something else."""
    webhook_timeout: timedelta = timedelta(seconds=15)
    """How long a receiver of webhooks may take to answer."""
    webhook_retention: timedelta = timedelta(days=30)
    """How long deliveries are kept once they are done."""
    replicate_api_token: str | None = field(default=None, repr=False)
    """The token for Replicate; `REPLICATE_API_TOKEN` is read too. Without one, the local renderer plays its part."""
    replicate_url: str = "https://api.replicate.com"
    """Where Replicate is."""
    renderer_url: str | None = None
    """Where a local renderer is that was started by hand; `millpond up` starts its own."""
    renderer_token: str | None = field(default=None, repr=False)
    """What the local renderer wants to be shown, and signs with."""
    chat_url: str | None = None
    """An OpenAI-compatible endpoint that writes copy (https://…/v1). Without one, a small grammar does."""
    chat_key: str | None = field(default=None, repr=False)
    """The key to show there."""
    chat_model: str = "gpt-4o-mini"
    """The model to ask for there."""
    models: str = ""
    """Which models at Replicate are asked: static_ad=OWNER/NAME, ugc_video=…, persona=…, tts=…; for the rest, ours."""
    github_url: str = "https://api.github.com"
    """Where the REST API of GitHub is."""
    github_token: str | None = field(default=None, repr=False)
    """The token for GitHub: workflows are dispatched and pull requests opened with it. Without one, neither is."""
    repositories: str = ""
    """The repositories at GitHub for which that is done, with commas: OWNER/NAME, or OWNER/* for all of an owner. Every
    tenant can have it done there. Empty: for none."""
    itunes_url: str = "https://itunes.apple.com"
    """Where the lookup API of the App Store is."""
    branches: str | None = None
    """A folder of bare git repositories, to which branches are pushed that cannot be opened as pull requests."""
    commands: str = ""
    """The commands that the action run-command may run, as JSON: {"NAME": ["program", "first argument", …]}."""
    poll_limit: int = 50
    """How many times a second a key may ask for a job of the partner API."""
    slots: int = 10
    """How many jobs a worker runs at once."""
    lease: timedelta = timedelta(seconds=60)
    """How long a silent worker keeps its jobs."""
    heartbeat: timedelta = timedelta(seconds=5)
    """How often a worker prolongs its leases."""
    grace: timedelta = timedelta(seconds=30)
    """How long a job may take to end once it is told to."""
    fleet_max: int = 50
    """How many workers of the fleet may be registered at once; those that are silent do not count."""
    fleet_approval: str = "auto"
    """Whether a worker that registers is let in at once (auto), or waits for an operator (manual)."""
    fleet_lease: timedelta = timedelta(seconds=900)
    """How long a silent worker of the fleet keeps its jobs."""
    fleet_heartbeat: timedelta = timedelta(seconds=30)
    """How often a worker of the fleet is told to say that it is still at its jobs."""
    worker_silence: timedelta = timedelta(seconds=60)
    """After how long a worker that was not heard from may be replaced by another of its name."""
    fleet_check_asg: bool = False
    """Whether a worker whose name is an EC2 instance id must belong to an Auto Scaling Group: true or false."""
    ec2_certificates: str | None = None
    """Amazon's certificates (a PEM file, or a folder of them); with them, such a worker must prove its instance."""
    ec2_metadata: str = "http://169.254.169.254"
    """Where a worker reaches the metadata service of its EC2 instance."""
    refresh: timedelta = timedelta(seconds=5)
    """How often the dashboard looks anew, a second at the least; 0: only when it is told to."""
    retention: timedelta = timedelta(days=90)
    """How long the history of ended jobs is kept; whole weeks are dropped."""
    idempotency_window: timedelta = timedelta(hours=24)
    """How long an idempotency key is remembered."""
    ui: bool = True
    """Whether the dashboard is served, under /ui: true or false."""
    ui_pool: int = 4
    """How many connections to each database the dashboard of a process has; half as many more only read jobs."""
    ui_timeout: timedelta = timedelta(seconds=2)
    """How long a statement for the dashboard may take; then the database cuts it."""
    session_lifetime: timedelta = timedelta(hours=12)
    """How long a sign-in to the dashboard is good."""
    session_idle: timedelta = timedelta(hours=2)
    """After how long without a request it ends before that."""
    log_level: str = "info"
    """The least important events that are logged: debug, info, warning or error."""
    log_format: str = "auto"
    """json, console, or auto: readable in a terminal, JSON elsewhere."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the environment; every problem in it is told at once."""
        environ = os.environ if environ is None else environ
        given = {name[len(PREFIX) :].lower(): text for name, text in environ.items() if name.startswith(PREFIX)}
        for name in _ALSO_READ:
            given.setdefault(name, environ.get(name.upper(), ""))
        known = {each.name: each.default for each in fields(cls)}
        problems = [_unknown(name, known) for name in given if name not in known]
        read: dict[str, Any] = {}
        for name, text in given.items():
            if name in known and text:
                try:
                    read[name] = _read_databases(text) if name == _HOMES else _read(name, known[name], text)
                except InvalidError as error:
                    problems.append(f"{PREFIX}{name.upper()}: {error.message} {error.hint or ''}".strip())
        problems += _contradictions(cls(**read)) if not problems else []
        if problems:
            raise SettingsError("\n".join(problems))
        return cls(**read)


@dataclass(frozen=True, slots=True)
class Shown:
    """A setting as it may be shown to anybody, and where its value is from."""

    name: str
    value: str | int | None
    source: Literal["environment", "default", "given"]
    """Given: by whoever started the process, on its command line or because it was not set."""
    is_secret: bool


def shown(settings: Settings, environ: Mapping[str, str] | None = None) -> list[Shown]:
    """Every setting without its secrets: what does not stand in a repr is none of anybody's business."""
    environ = os.environ if environ is None else environ
    return [_shown(each, getattr(settings, each.name), environ) for each in fields(settings)]


def _shown(each: Field[Any], value: Any, environ: Mapping[str, str]) -> Shown:
    names = (f"{PREFIX}{each.name.upper()}", *((each.name.upper(),) if each.name in _ALSO_READ else ()))
    is_set = any(environ.get(name) for name in names)
    source = "default" if value == each.default else "environment" if is_set else "given"
    if each.name == _COMMANDS:  # whose arguments may be secret
        return Shown(each.name, ", ".join(allowed.commands(value)), source, is_secret=False)
    if each.repr:
        return Shown(each.name, _told(value), source, is_secret=False)
    if each.name in _ADDRESSES:  # which are secret in part
        return Shown(each.name, _addresses(value), source, is_secret=False)
    return Shown(each.name, value and "…", source, is_secret=True)


def _addresses(value: str | Mapping[str, str] | None) -> str | None:
    if not value:
        return None
    if isinstance(value, str):
        return _address(value)
    return str({tenant: _address(url) for tenant, url in value.items()})


def _told(value: Any) -> str | int | None:
    match value:
        case timedelta():
            return _length(value.total_seconds())
        case str():
            return _address(value) if "://" in value else value
        case _:
            return value if value is None or isinstance(value, int) else str(value)


def _length(seconds: float) -> str:
    """A length of time as it is written in a setting."""
    units = {"d": 86_400, "h": 3_600, "m": 60}
    unit, size = next(((unit, size) for unit, size in units.items() if seconds % size == 0), ("s", 1))
    return f"{seconds / size:g}{unit}"


def _address(url: str) -> str:
    """The address alone: a password, or a token in its place, may stand before the host or among the parameters."""
    try:
        read = urlsplit(url)
    except ValueError:
        return "…"
    if not read.scheme:
        return "…"
    user, at, host = read.netloc.rpartition("@")
    parameters = [(name, _parameter(name, value)) for name, value in parse_qsl(read.query)]
    query = urlencode(parameters, safe="/:").replace(quote("…"), "…")
    return read._replace(netloc=f"{user and '…'}{at}{host}", query=query, fragment=read.fragment and "…").geturl()


def _parameter(name: str, value: str) -> str:
    if name not in _HARMLESS:
        return "…"
    return _address(value) if "://" in value else value


def _read(name: str, default: Any, text: str) -> Any:
    if name in _CHOICES:
        if text not in _CHOICES[name]:
            raise InvalidError(f"{text!r} is not one of {', '.join(_CHOICES[name])}.")
        return text
    if name in _LISTS:
        _LISTS[name](text)
    match default:
        case bool():
            if text not in _BOOLEANS:
                raise InvalidError(f"{text!r} is neither true nor false.")
            return _BOOLEANS[text]
        case timedelta():
            return _read_duration(name, text)
        case int():
            least, most = _BOUNDS[name]
            if not text.isdigit() or not least <= int(text) <= most:
                raise InvalidError(f"{text!r} is not a whole number from {least} to {most:,}.")
            return int(text)
        case Path():
            return Path(text)
        case _:
            return text


def _read_duration(name: str, text: str) -> timedelta:
    if text == "0" and name in _NEVER:
        return timedelta(0)
    return values.duration(float(text) if text.replace(".", "", 1).isdigit() else text, field=name)


def _read_databases(text: str) -> dict[str, str]:
    try:
        read = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise InvalidError('It must be JSON of the form {"TENANT": "postgresql://…"}.') from error
    for tenant, address in read.items():
        values.check_name(tenant, field="tenant")
        if not address.startswith(("postgresql://", "postgres://")):
            raise InvalidError(f"That of {tenant} is not an address of a PostgreSQL.")
    return read


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {PREFIX}{near[0].upper()}?" if near else ""
    return f"{PREFIX}{name.upper()}: there is no such setting.{hint}"


def _contradictions(settings: Settings) -> list[str]:
    found: list[str] = []
    if settings.heartbeat * 3 > settings.lease:
        found.append(f"{PREFIX}HEARTBEAT: it must be at most a third of {PREFIX}LEASE, or leases lapse.")
    if settings.fleet_heartbeat * 3 > settings.fleet_lease:
        found.append(f"{PREFIX}FLEET_HEARTBEAT: it must be at most a third of {PREFIX}FLEET_LEASE, or leases lapse.")
    if settings.fleet_heartbeat >= settings.worker_silence:
        found.append(f"{PREFIX}FLEET_HEARTBEAT: it must be less than {PREFIX}WORKER_SILENCE, or the living seem dead.")
    if settings.idempotency_window < timedelta(hours=24):
        found.append(f"{PREFIX}IDEMPOTENCY_WINDOW: it must be at least 24h.")
    if timedelta(0) < settings.refresh < timedelta(seconds=1):
        found.append(f"{PREFIX}REFRESH: it must be at least 1s, or 0.")
    if settings.retention < settings.idempotency_window:
        found.append(f"{PREFIX}RETENTION: it must not be shorter than {PREFIX}IDEMPOTENCY_WINDOW.")
    return found
