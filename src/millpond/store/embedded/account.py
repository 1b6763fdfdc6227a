"""The account that the server runs as: PostgreSQL refuses to run as root."""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.errors import EmbeddedPostgresError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Account:
    """The user and the group that the server runs as."""

    uid: int
    gid: int

    @property
    def is_other(self) -> bool:
        return self.uid != os.geteuid()

    @property
    def user(self) -> int | None:
        return self.uid if self.is_other else None

    @property
    def group(self) -> int | None:
        return self.gid if self.is_other else None

    @property
    def extra_groups(self) -> list[int] | None:
        return [] if self.is_other else None

    def has_name(self) -> bool:
        """Whether the system knows a name for it; initdb looks the name up."""
        with suppress(KeyError):
            return bool(pwd.getpwuid(self.uid).pw_name)
        return False

    def can_enter(self, folder: Path) -> bool:
        """Tried rather than computed, because access control lists and security modules apply too."""
        if not self.is_other:
            return True
        return self.run(["/bin/sh", "-c", 'cd -- "$0"', str(folder)]).returncode == 0

    @contextmanager
    def entrances(self, *folders: Path) -> Generator[tuple[list[str], list[int]]]:
        """Paths by which the account's processes can access the folders, and descriptors that they must inherit.

        A data directory of root is often below folders that are closed to other users (a home of mode 0700). Changing
        their permissions would make the machine less secure, and data kept elsewhere would be lost with a container.
        An open descriptor needs no path: root opens the folder, and the server accesses it through its own /proc.
        """
        with ExitStack() as stack:
            names: list[str] = []
            descriptors: list[int] = []
            for folder in folders:
                if self.can_enter(folder):
                    names.append(str(folder))
                else:
                    descriptors.append(descriptor := _open_high(folder))
                    stack.callback(os.close, descriptor)
                    names.append(f"/proc/self/fd/{descriptor}")
            yield names, descriptors

    def run(self, command: list[str], descriptors: Iterable[int] = ()) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(descriptors),
            cwd="/",
            env=environment(),
            umask=0o077,
            user=self.user,
            group=self.group,
            extra_groups=self.extra_groups,
            text=True,
            errors="replace",
            check=False,
        )


def choose_account(root: Path, data: Path) -> Account:
    """The current user; for root the owner of the data, or else an unprivileged account of the system."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    account = _choose_for_root(root, data)
    try:  # a container may deny even root the change of user
        account.run(["/bin/sh", "-c", ":"])
    except OSError as error:
        raise EmbeddedPostgresError(
            f"PostgreSQL cannot run as root, and switching to user id {account.uid} is not permitted: {error}.",
            hint="Run as a normal user, or set DATABASE_URL to a running server.",
        ) from error
    return account


def _choose_for_root(root: Path, data: Path) -> Account:
    if data.exists() and (owner := _owner(data)).uid != 0:
        return owner
    if (owner := _owner(root)).uid != 0 and owner.has_name():
        return owner
    for name in ("postgres", "nobody", "daemon"):
        with suppress(KeyError):
            found = pwd.getpwnam(name)
            return Account(found.pw_uid, found.pw_gid)
    raise EmbeddedPostgresError(
        "PostgreSQL cannot run as root, and no unprivileged account exists.",
        hint="Run as a normal user, or make one the owner of the data directory.",
    )


def _owner(folder: Path) -> Account:
    found = folder.stat()
    return Account(found.st_uid, found.st_gid)


def environment() -> dict[str, str]:
    """A minimal environment: PG* variables would affect the server, and it needs no secrets."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PATH") if name in os.environ}
    return kept | {"LC_ALL": "C"}


def _open_high(folder: Path) -> int:
    """A descriptor above those that the shell that starts the server uses itself."""
    if sys.platform != "linux":
        raise EmbeddedPostgresError(
            f"The account that runs PostgreSQL cannot access {folder}.",
            hint="Run as a normal user, or choose a data directory outside of root's home directory.",
        )
    low = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(low)
