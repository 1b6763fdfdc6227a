"""The files of ``millpond up`` in its data directory: the development keys, and the address while it runs."""

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
"""The name of development keys. `millpond serve` refuses a public address while they are valid."""
_GRANT: Final = "millpond-up:first-credits"


class DevelopmentKeys(msgspec.Struct, kw_only=True):
    """The development keys, as stored."""

    tenant: str
    account: str
    admin_key: str
    client_key: str
    fleet_secret: str


class RunningUp(DevelopmentKeys, kw_only=True):
    """What other processes need to use a running ``millpond up``."""

    url: str
    pid: int
    files_url: str | None = None
    """The URL of the file server; None if files are in a bucket."""


class DevelopmentFolder:
    """The paths of the files of ``millpond up`` in a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir.expanduser()
        self.keys = self.root / "keys.json"
        self.header = self.root / "client.header"
        self.running = self.root / "up.json"
        self.lock = self.root / "up.lock"


@contextlib.contextmanager
def claimed(folder: DevelopmentFolder) -> Generator[None]:
    """Lock a data directory, so that only one ``millpond up`` uses it."""
    try:
        folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with try_lock(folder.lock) as lock:
            if lock is None:
                raise _in_use(folder)
            yield
    except OSError as error:
        raise SettingsError(f"The data directory {folder.root} cannot be used: {error}.", field="data_dir") from error


def _in_use(folder: DevelopmentFolder) -> ConflictError:
    other = running(folder)
    who = f" (process {other.pid}, {other.url})" if other else ""
    return ConflictError(
        f"Another `millpond up`{who} uses the data directory {folder.root}.",
        hint="Use it, stop it, or choose another --data-dir.",
    )


def running(folder: DevelopmentFolder) -> RunningUp | None:
    """The ``millpond up`` that runs on a data directory, if any."""
    if not is_locked(folder.lock):
        return None
    with contextlib.suppress(FileNotFoundError, PermissionError, msgspec.DecodeError):
        return msgspec.json.decode(folder.running.read_bytes(), type=RunningUp)
    return None


def kept_keys(folder: DevelopmentFolder) -> DevelopmentKeys | None:
    try:
        return msgspec.json.decode(folder.keys.read_bytes(), type=DevelopmentKeys)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise SettingsError(
            f"{folder.keys} cannot be read: {error}.", hint="Delete the file; `millpond up` then creates new keys."
        ) from error


async def ensure_keys(engine: Engine, folder: DevelopmentFolder) -> DevelopmentKeys:
    """The keys of this directory, created on the first start or if the database does not accept the stored ones."""
    keys = kept_keys(folder)
    if keys is None or not await _are_good(engine, keys):
        keys = await _make_keys(engine)
        write_private(folder.keys, msgspec.json.format(msgspec.json.encode(keys)) + b"\n")
    write_private(folder.header, f"Authorization: Bearer {keys.client_key}\n".encode())
    await engine.grant(keys.tenant, keys.account, CREDITS, reference=_GRANT, reason="to begin with")
    return keys


async def _are_good(engine: Engine, keys: DevelopmentKeys) -> bool:
    try:
        for secret in (keys.admin_key, keys.client_key, keys.fleet_secret):
            await engine.access.authenticate(secret)
    except UnauthorizedError:
        return False
    return True


async def _make_keys(engine: Engine) -> DevelopmentKeys:
    made: dict[str, str] = {}
    owners: dict[str, dict[str, Any]] = {
        "admin": {},
        "client": {"tenant": TENANT, "account": ACCOUNT},
        "worker": {},  # the fleet runs the jobs of all tenants
    }
    for scope, owner in owners.items():
        _, made[scope] = await engine.access.make_key(scope=scope, name=KEY_NAME, actor="local", **owner)
    return DevelopmentKeys(
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
    """Write a file atomically, readable only by its owner."""
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
