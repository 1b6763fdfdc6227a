"""Settings from the environment, validated all at once."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from millpond import values
from millpond.errors import InvalidError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import Field

PREFIX: Final = "MILLPOND_"
_TENANT_DATABASES: Final = "tenant_databases"
_ALSO_READ: Final = frozenset({"database_url", "replicate_api_token"})
"""Settings that are also read without the prefix."""
_ADDRESSES: Final = frozenset({"database_url", _TENANT_DATABASES})
_HARMLESS: Final = frozenset(
    {
        *("endpoint", "region", "style"),
        *("application_name", "connect_timeout", "dbname", "host", "port", "sslmode", "target_session_attrs"),
    }
)
"""The URL parameters whose values may be shown; others may contain secrets."""
_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}
GROUP: Final = "millpond.settings"
"""The entry point group in which installed packages declare their settings: subclasses of :class:`Settings`."""


def setting(default: Any, *, is_secret: bool = False, **rules: Any) -> Any:
    """A setting with rules in addition to its type.

    ``bounds`` of a number; ``choices``; ``may_be_zero`` for a duration; ``check``, which raises InvalidError for
    invalid text; ``show``, which returns what may be shown of a value. ``group`` is its section of the settings page,
    named after those who need it.
    """
    return field(default=default, repr=not is_secret, metadata=rules)


@dataclass(frozen=True)
class Settings:
    """Each field is an environment variable: ``MILLPOND_`` and its name in capitals."""

    database_url: str | None = setting(None, is_secret=True, group="first steps")
    """The PostgreSQL server, version 15 or newer; ``DATABASE_URL`` is read too. Default: the embedded PostgreSQL."""
    tenant_databases: Mapping[str, str] | None = setting(None, is_secret=True, group="production")
    """The tenants that have a database of their own, as JSON: {"TENANT": "postgresql://…"}."""
    data_dir: Path = setting(Path(".millpond"), group="first steps")
    """The folder in which the embedded PostgreSQL keeps its files and ``millpond up`` keeps its keys."""
    products: str = setting("", group="first steps")
    """The installed products to serve, separated by commas, or all."""
    app: str | None = setting(None, group="first steps")
    """The file (app.py) or module (shop.jobs) that defines the Millpond() app, for commands that name none."""
    url: str | None = setting(None, group="first steps")
    """The URL of the API, for the commands, the SDK and fleet workers."""
    api_key: str | None = setting(None, is_secret=True, group="first steps")
    """The API key that the commands and the SDK send."""
    fleet_secret: str | None = setting(None, is_secret=True, group="fleet")
    """The key of scope worker with which a fleet worker registers."""
    host: str = setting("127.0.0.1", group="first steps")
    """The address on which the API listens."""
    port: int = setting(8686, bounds=(0, 65_535), group="first steps")
    """The port on which the API listens; 0 chooses a free one."""
    rate_limit: int = setting(1_000, bounds=(1, 1_000_000), group="production")
    """The number of requests per second allowed to a key that has no limit of its own."""
    failure_limit: int = setting(5, bounds=(1, 1_000_000), group="production")
    """The number of requests per second with an invalid key allowed to an address; to a proxy, ten times as many."""
    streams_per_key: int = setting(1_000, bounds=(1, 1_000_000), group="production")
    """The number of event streams that a key may have open at once in each process."""
    streams_per_account: int = setting(100, bounds=(1, 1_000_000), group="production")
    """The number of event streams that may be open at once in each process for the jobs of an account."""
    storage: str = setting("", group="storage")
    """Where files are stored: a folder, or s3://bucket/prefix?endpoint=URL&region=NAME. Default: the data directory."""
    files_url: str | None = setting(None, group="storage")
    """The public URL of the file server, where storage is a folder; `millpond up` sets its own."""
    upload_max: int = setting(5 * 1024**3, bounds=(1, 5 * 1024**4), group="storage")
    """The largest file that may be uploaded, in bytes."""
    upload_lifetime: timedelta = setting(timedelta(minutes=15), group="storage")
    """How long an upload URL is valid."""
    download_lifetime: timedelta = setting(timedelta(hours=1), group="storage")
    """How long a download URL is valid."""
    public_url: str | None = setting(None, group="production")
    """The public URL of the API, to which providers send callbacks. Without it, providers are only polled."""
    encryption_key: str | None = setting(None, is_secret=True, group="webhooks")
    """The key that encrypts webhook secrets: 32 bytes in base64. To rotate, give NEW,OLD; the first one encrypts."""
    outbound_allow: str = setting("", group="webhooks")
    """Private addresses, networks or host:port to which webhooks and other user-supplied URLs may lead, separated
    by commas. Ports below 1024 except 80 and 443, and those of databases, are allowed only as host:port, or as *:port
    for every host. loopback means this machine with all its ports, and is the default of `millpond up`."""
    webhook_timeout: timedelta = setting(timedelta(seconds=15), group="webhooks")
    """The time within which a webhook receiver must answer."""
    webhook_retention: timedelta = setting(timedelta(days=30), group="webhooks")
    """How long completed deliveries are kept."""
    replicate_api_token: str | None = setting(None, is_secret=True, group="providers")
    """The API token for Replicate; `REPLICATE_API_TOKEN` is read too."""
    replicate_url: str = setting("https://api.replicate.com", group="providers")
    """The URL of Replicate, or of another server with the same API."""
    slots: int = setting(10, bounds=(1, 10_000), group="workers")
    """The number of jobs that a worker runs at once."""
    lease: timedelta = setting(timedelta(seconds=60), group="workers")
    """The time after which the jobs of a silent worker are given to others."""
    heartbeat: timedelta = setting(timedelta(seconds=5), group="workers")
    """How often a worker extends its leases; at most a third of the lease."""
    grace: timedelta = setting(timedelta(seconds=30), group="workers")
    """The time that running jobs have to end when a worker stops or a job is canceled."""
    fleet_max: int = setting(50, bounds=(0, 100_000), group="fleet")
    """The largest number of fleet workers that may be registered; lost ones do not count."""
    fleet_approval: str = setting("auto", choices=("auto", "manual"), group="fleet")
    """Whether a new fleet worker may take jobs at once (auto) or after an operator's approval (manual)."""
    fleet_lease: timedelta = setting(timedelta(seconds=900), group="fleet")
    """The time after which the jobs of a silent fleet worker are given to others."""
    fleet_heartbeat: timedelta = setting(timedelta(seconds=30), group="fleet")
    """How often a fleet worker extends its leases; at most a third of the fleet's lease."""
    worker_silence: timedelta = setting(timedelta(seconds=60), group="fleet")
    """The time after the last heartbeat at which another worker may register under the same name."""
    fleet_check_asg: bool = setting(default=False, group="fleet on EC2")
    """Whether a worker named after an EC2 instance must belong to an Auto Scaling Group: true or false."""
    ec2_certificates: str | None = setting(None, group="fleet on EC2")
    """Amazon's certificates (a PEM file, or a folder of them), with which such a worker must prove its instance."""
    ec2_metadata: str = setting("http://169.254.169.254", group="fleet on EC2")
    """The URL of the EC2 metadata service, as seen by the worker."""
    refresh: timedelta = setting(timedelta(seconds=5), may_be_zero=True, group="dashboard")
    """How often the dashboard reloads its data, at least 1s; 0 means only on request."""
    retention: timedelta = setting(timedelta(days=90), group="production")
    """How long ended jobs are kept; whole weeks are dropped."""
    idempotency_window: timedelta = setting(timedelta(hours=24), group="production")
    """How long an idempotency key is remembered; at least 24h."""
    ui: bool = setting(default=True, group="dashboard")
    """Whether the dashboard is served, under /ui: true or false."""
    ui_pool: int = setting(4, bounds=(1, 100), group="dashboard")
    """The number of connections per process and database for the dashboard; half as many more serve job pages alone."""
    ui_timeout: timedelta = setting(timedelta(seconds=2), group="dashboard")
    """The longest time that a statement of the dashboard may run."""
    session_lifetime: timedelta = setting(timedelta(hours=12), group="dashboard")
    """The longest time that a dashboard session lasts."""
    session_idle: timedelta = setting(timedelta(hours=2), group="dashboard")
    """The time without a request after which a dashboard session ends."""
    log_level: str = setting("info", choices=("debug", "info", "warning", "error"), group="logs")
    """The lowest level that is logged: debug, info, warning or error."""
    log_format: str = setting("auto", choices=("auto", "json", "console"), group="logs")
    """json, console, or auto: console in a terminal, JSON elsewhere."""

    @property
    def product_names(self) -> list[str]:
        return [name for name in (part.strip() for part in self.products.split(",")) if name]

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the environment and report all problems at once. Installed packages add their own settings."""
        if cls is Settings and (extended := _extended()) is not Settings:
            return extended.from_env(environ)
        environ = os.environ if environ is None else environ
        given = {name[len(PREFIX) :].lower(): text for name, text in environ.items() if name.startswith(PREFIX)}
        for name in _ALSO_READ:
            given.setdefault(name, environ.get(name.upper(), ""))
        known = {each.name: each for each in fields(cls)}
        problems = [_unknown(name, known) for name in given if name not in known]
        read: dict[str, Any] = {}
        for name, text in given.items():
            if name in known and text:
                try:
                    read[name] = _read_databases(text) if name == _TENANT_DATABASES else _read(known[name], text)
                except InvalidError as error:
                    problems.append(f"{PREFIX}{name.upper()}: {error.message} {error.hint or ''}".strip())
        problems += _contradictions(cls(**read)) if not problems else []
        if problems:
            raise SettingsError("\n".join(problems))
        return cls(**read)


@cache
def _extended() -> type[Settings]:
    """The settings, including those of all installed packages."""
    bases = tuple(dict.fromkeys(found.load() for found in entry_points(group=GROUP)))
    if len(bases) <= 1:
        return next(iter(bases), Settings)
    return dataclass(frozen=True)(type("Settings", bases, {}))


@dataclass(frozen=True, slots=True)
class Shown:
    """A setting as it may be shown, with the source of its value."""

    name: str
    value: str | int | None
    source: Literal["environment", "default", "given"]
    """Given: set by the code or command line that started the process."""
    is_secret: bool


def shown(settings: Settings, environ: Mapping[str, str] | None = None) -> list[Shown]:
    """All settings without secrets: fields that are hidden in the repr are secret."""
    environ = os.environ if environ is None else environ
    return [_shown(each, getattr(settings, each.name), environ) for each in fields(settings)]


def _shown(each: Field[Any], value: Any, environ: Mapping[str, str]) -> Shown:
    names = (f"{PREFIX}{each.name.upper()}", *((each.name.upper(),) if each.name in _ALSO_READ else ()))
    is_set = any(environ.get(name) for name in names)
    source = "default" if value == each.default else "environment" if is_set else "given"
    if "show" in each.metadata:
        return Shown(each.name, each.metadata["show"](value), source, is_secret=False)
    if each.repr:
        return Shown(each.name, _displayed(value), source, is_secret=False)
    if each.name in _ADDRESSES:  # contains secrets, but is not one as a whole
        return Shown(each.name, _addresses(value), source, is_secret=False)
    return Shown(each.name, value and "…", source, is_secret=True)


def _addresses(value: str | Mapping[str, str] | None) -> str | None:
    if not value:
        return None
    if isinstance(value, str):
        return _address(value)
    return str({tenant: _address(url) for tenant, url in value.items()})


def _displayed(value: Any) -> str | int | None:
    match value:
        case timedelta():
            return _length(value.total_seconds())
        case str():
            return _address(value) if "://" in value else value
        case _:
            return value if value is None or isinstance(value, int) else str(value)


def _length(seconds: float) -> str:
    """A duration in the format of a setting."""
    units = {"d": 86_400, "h": 3_600, "m": 60}
    unit, size = next(((unit, size) for unit, size in units.items() if seconds % size == 0), ("s", 1))
    return f"{seconds / size:g}{unit}"


def _address(url: str) -> str:
    """The URL without secrets: user, password and parameters may contain some."""
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


def _read(each: Field[Any], text: str) -> Any:
    rules = each.metadata
    if "choices" in rules:
        if text not in rules["choices"]:
            raise InvalidError(f"{text!r} must be one of {', '.join(rules['choices'])}.")
        return text
    if "check" in rules:
        rules["check"](text)
    match each.default:
        case bool():
            if text not in _BOOLEANS:
                raise InvalidError(f"{text!r} must be true or false.")
            return _BOOLEANS[text]
        case timedelta():
            return _read_duration(each, text)
        case int():
            minimum, maximum = rules["bounds"]
            if not (text.isascii() and text.isdecimal()) or not minimum <= int(text) <= maximum:
                raise InvalidError(f"{text!r} must be a whole number from {minimum} to {maximum:,}.")
            return int(text)
        case Path():
            return Path(text)
        case _:
            return text


def _read_duration(each: Field[Any], text: str) -> timedelta:
    if text == "0" and each.metadata.get("may_be_zero"):
        return timedelta(0)
    return values.duration_or_seconds(text, field=each.name)


def _read_databases(text: str) -> dict[str, str]:
    try:
        read = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise InvalidError('The value must be JSON of the form {"TENANT": "postgresql://…"}.') from error
    for tenant, address in read.items():
        values.check_name(tenant, field="tenant")
        if not address.startswith(("postgresql://", "postgres://")):
            raise InvalidError(f"The value for {tenant} is not a PostgreSQL URL.")
    return read


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {PREFIX}{near[0].upper()}?" if near else ""
    return f"{PREFIX}{name.upper()}: the setting does not exist.{hint}"


def _contradictions(settings: Settings) -> list[str]:
    found: list[str] = []
    if settings.heartbeat * 3 > settings.lease:
        found.append(f"{PREFIX}HEARTBEAT: must be at most a third of {PREFIX}LEASE, to keep leases from expiring.")
    if settings.fleet_heartbeat * 3 > settings.fleet_lease:
        found.append(
            f"{PREFIX}FLEET_HEARTBEAT: must be at most a third of {PREFIX}FLEET_LEASE, to keep leases from expiring."
        )
    if settings.fleet_heartbeat >= settings.worker_silence:
        found.append(
            f"{PREFIX}FLEET_HEARTBEAT: must be less than {PREFIX}WORKER_SILENCE, or live workers are considered silent."
        )
    if settings.idempotency_window < timedelta(hours=24):
        found.append(f"{PREFIX}IDEMPOTENCY_WINDOW: must be at least 24h.")
    if timedelta(0) < settings.refresh < timedelta(seconds=1):
        found.append(f"{PREFIX}REFRESH: must be at least 1s, or 0.")
    if settings.retention < settings.idempotency_window:
        found.append(f"{PREFIX}RETENTION: must not be shorter than {PREFIX}IDEMPOTENCY_WINDOW.")
    return found
