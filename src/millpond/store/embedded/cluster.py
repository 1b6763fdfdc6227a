"""The cluster: PGDATA, created once by initdb, and used only by the major version that created it."""

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
            f"The data directory {layout.root} was created by PostgreSQL {found}, but the installed "
            f"binaries are PostgreSQL {binaries.version}.",
            hint=f"Use the PostgreSQL {found} binaries, or dump the database with them and restore it "
            "into a new data directory.",
        )


def _create(layout: Layout, account: Account, binaries: Binaries, lock: int) -> None:
    """Create PGDATA under another name and rename it, so that an incomplete one never has its name."""
    if layout.data.exists() and any(layout.data.iterdir()):
        raise foreign(layout.data)
    if not account.has_name():
        raise EmbeddedPostgresError(
            f"User id {account.uid} has no name, which initdb requires.",
            hint=f"Create a name (`useradd --uid {account.uid} millpond`), or run as another user.",
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
        hint="Check the free disk space and the permissions of the directory.",
    )


def _locales(binaries: Binaries) -> Iterable[list[str]]:
    """Sort by bytes and classify characters as UTF-8; without the latter if the system has no such locale."""
    if binaries.major >= _MAJOR_BUILTIN_LOCALE:
        return [["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]]
    return [["--locale=C", "--lc-ctype=C.UTF-8"], ["--locale=C"]]


def _initdb(draft: Path, account: Account, binaries: Binaries, locale: list[str], lock: int) -> str:
    """Run initdb; returns its output if it fails, or an empty text."""
    with account.entrances(draft) as (names, descriptors):
        command = [str(binaries.folder / "initdb"), "-D", *names, "-U", NAME, "-E", "UTF8"]
        safety = ["--auth-local=trust", "--auth-host=reject", "--data-checksums"]
        # It inherits the lock: if this process is killed, no other one touches the draft before initdb ends.
        done = account.run([*command, *safety, *locale], (*descriptors, lock))
    return "" if done.returncode == 0 else (done.stdout.strip() or f"status {done.returncode}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
