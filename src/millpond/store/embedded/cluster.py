"""The cluster: PGDATA, made once by initdb, and served only by the major version that made it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from millpond.errors import EmbeddedPostgresError
from millpond.store.embedded.folder import Layout, foreign, make_private, remove
from millpond.store.embedded.wire import NAME

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from millpond.store.embedded.account import Account
    from millpond.store.embedded.binaries import Binaries

_MAJOR_BUILTIN_LOCALE = 17  # the first that needs no locale of the system


def ensure_cluster(layout: Layout, account: Account, binaries: Binaries, lock: int) -> None:
    label = layout.data / "PG_VERSION"
    if not label.exists():
        _create(layout, account, binaries, lock)
    elif (found := label.read_text().strip()) != str(binaries.major):
        raise EmbeddedPostgresError(
            f"The data directory {layout.root} was made by PostgreSQL {found}, "
            f"and the binaries here are PostgreSQL {binaries.version}.",
            hint=f"Open it with PostgreSQL {found} binaries, or dump it with them "
            "and restore the dump into a new data directory.",
        )


def _create(layout: Layout, account: Account, binaries: Binaries, lock: int) -> None:
    """Makes PGDATA aside and renames it, so that a half-made one never carries the name."""
    if layout.data.exists() and any(layout.data.iterdir()):
        raise foreign(layout.data)
    if not account.has_name():
        raise EmbeddedPostgresError(
            f"User id {account.uid} has no name here, and initdb insists on one.",
            hint=f"Give it one (`useradd --uid {account.uid} millpond`), or run as another user.",
        )
    failure = ""
    for locale in _locales(binaries):
        remove(layout.draft)
        make_private(layout.draft, account)
        failure = _initdb(layout.draft, account, binaries, locale, lock)
        if not failure:
            layout.draft.rename(layout.data)
            _sync(layout.root)
            return
    raise EmbeddedPostgresError(
        f"initdb failed in {layout.root}: {failure}",
        hint="Check the disk's free space and the folder's permissions.",
    )


def _locales(binaries: Binaries) -> Iterable[list[str]]:
    """Byte order for sorting, UTF-8 for letters; without the letters where the system has none."""
    if binaries.major >= _MAJOR_BUILTIN_LOCALE:
        return [["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]]
    return [["--locale=C", "--lc-ctype=C.UTF-8"], ["--locale=C"]]


def _initdb(draft: Path, account: Account, binaries: Binaries, locale: list[str], lock: int) -> str:
    """What went wrong, or nothing."""
    with account.entrances(draft) as (names, descriptors):
        command = [str(binaries.folder / "initdb"), "-D", *names, "-U", NAME, "-E", "UTF8"]
        safety = ["--auth-local=trust", "--auth-host=reject", "--data-checksums"]
        # It inherits the lock: should we be killed, nobody touches the draft before it is done.
        done = account.run([*command, *safety, *locale], (*descriptors, lock))
    return "" if done.returncode == 0 else (done.stdout.strip() or f"status {done.returncode}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
