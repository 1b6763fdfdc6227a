"""What ``millpond up`` keeps in its data directory: the keys of development, and word that it runs."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.errors import ConflictError, SettingsError, UnauthorizedError
from millpond.store.embedded.locks import is_locked, try_lock

if TYPE_CHECKING:
    from collections.abc import Generator

    from millpond.engine.engine import Engine

TENANT: Final = "dev"
ACCOUNT: Final = "dev"
CREDITS: Final = 1_000
KEY_NAME: Final = "millpond up"
"""Marks a key that lies in a developer's folder: `millpond serve` shows none of these to the world."""
_GRANT: Final = "millpond-up:first-credits"


class Keys(msgspec.Struct, kw_only=True):
    """The keys of development, as they are kept."""

    tenant: str
    account: str
    admin_key: str
    client_key: str
    fleet_secret: str


class Running(Keys, kw_only=True):
    """What others need to know to use a running ``millpond up``."""

    url: str
    pid: int
    files_url: str | None = None
    """Where files are served; none where they are in a bucket."""


class Home:
    """Where ``millpond up`` keeps its files in a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir.expanduser()
        self.keys = self.root / "keys.json"
        self.header = self.root / "client.header"
        self.running = self.root / "up.json"
        self.lock = self.root / "up.lock"


@contextlib.contextmanager
def claimed(home: Home) -> Generator[None]:
    """Hold a data directory for one ``millpond up`` alone."""
    try:
        home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with try_lock(home.lock) as lock:
            if lock is None:
                raise _in_use(home)
            yield
    except OSError as error:
        raise SettingsError(f"The data directory {home.root} cannot be used: {error}.", field="data_dir") from error


def _in_use(home: Home) -> ConflictError:
    other = running(home)
    who = f" (process {other.pid}, {other.url})" if other else ""
    return ConflictError(
        f"Another millpond up{who} uses the data directory {home.root}.",
        hint="Use that one, end it, or choose another --data-dir.",
    )


def running(home: Home) -> Running | None:
    """The ``millpond up`` that serves from a data directory, if one does."""
    if not is_locked(home.lock):
        return None
    with contextlib.suppress(FileNotFoundError, PermissionError, msgspec.DecodeError):
        return msgspec.json.decode(home.running.read_bytes(), type=Running)
    return None


def kept_keys(home: Home) -> Keys | None:
    try:
        return msgspec.json.decode(home.keys.read_bytes(), type=Keys)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise SettingsError(
            f"{home.keys} cannot be read: {error}.", hint="Remove it; millpond up then makes new keys."
        ) from error


async def ensure_keys(engine: Engine, home: Home) -> Keys:
    """The keys of this directory: made on the first start, or when the database does not know the kept ones."""
    keys = kept_keys(home)
    if keys is None or not await _are_good(engine, keys):
        keys = await _make_keys(engine)
        write_private(home.keys, msgspec.json.format(msgspec.json.encode(keys)) + b"\n")
    write_private(home.header, f"Authorization: Bearer {keys.client_key}\n".encode())
    await engine.grant(keys.tenant, keys.account, CREDITS, reference=_GRANT, reason="to begin with")
    return keys


async def _are_good(engine: Engine, keys: Keys) -> bool:
    try:
        for secret in (keys.admin_key, keys.client_key, keys.fleet_secret):
            await engine.access.authenticate(secret)
    except UnauthorizedError:
        return False
    return True


async def _make_keys(engine: Engine) -> Keys:
    made: dict[str, str] = {}
    owners: dict[str, dict[str, Any]] = {
        "admin": {},
        "client": {"tenant": TENANT, "account": ACCOUNT},
        "worker": {},  # the fleet runs the jobs of all
    }
    for scope, owner in owners.items():
        _, made[scope] = await engine.access.make_key(scope=scope, name=KEY_NAME, actor="local", **owner)
    return Keys(
        tenant=TENANT,
        account=ACCOUNT,
        admin_key=made["admin"],
        client_key=made["client"],
        fleet_secret=made["worker"],
    )


@contextlib.contextmanager
def announced(line: Any, *files: Path | None) -> Generator[None]:
    """Write a line of JSON to these files, and remove them at the end."""
    text = msgspec.json.encode(line) + b"\n"
    there = [file for file in files if file is not None]
    try:
        for file in there:
            write_private(file, text)
        yield
    finally:
        for file in there:
            file.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Put a file in place at once and whole, for its owner's eyes only."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise SettingsError(f"{path} cannot be written: {error}.") from error
