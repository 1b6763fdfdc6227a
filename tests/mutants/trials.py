"""Trials: each mutant is applied to a copy of the tree, and its tests run there. The working tree is never changed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Literal
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.mutants.catalog import Mutant

SECONDS: Final = 300.0
"""How long the tests of a mutant may take. A test that hangs tells nobody what is wrong: that is no catch."""
CHECK_SECONDS: Final = 5_400.0
"""How long the tests of all mutants may take without any."""
_BUILT: Final = ("src/millpond/ui/static",)
"""What is not in the repository but is needed by tests."""
_PYTEST: Final = ("-m", "pytest", "-q", "--exitfirst", "-p", "no:cacheprovider", "-p", "no:xdist")

Fate = Literal["caught", "survived", "did not apply", "did not run"]


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a mutant."""

    mutant: Mutant
    fate: Fate
    detail: str
    """The test that failed, or why there was no result."""
    seconds: float


@dataclass(frozen=True, slots=True)
class TestRun:
    """The result of a run of tests."""

    __test__ = False

    failed: list[str] = field(default_factory=list[str])
    """The tests that failed, or whose teardown did: there the engine fixture checks the invariants of the database."""
    passed: int = 0
    error: str = ""
    """Why the tests have no result: a fixture could not be set up, or pytest did not start."""


class Copy:
    """A copy of the tree in which mutants are tried one after the other."""

    def __init__(self, root: Path, tree: Path, *, seconds: float = SECONDS) -> None:
        self._tree = tree
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        for path in _files(root):
            place = tree / path
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, place, follow_symlinks=False)
        if (root / ".venv").exists():
            (tree / ".venv").symlink_to(root / ".venv")

    def check(self, tests: Iterable[str], *, seconds: float = CHECK_SECONDS) -> TestRun:
        """Run tests without a mutant."""
        return self._run(tests, seconds)

    def attempt(self, mutant: Mutant) -> Trial:
        """Apply a mutant, run its tests, and restore its file."""
        began = time.monotonic()
        path = self._tree / mutant.file
        before = path.read_text("utf-8") if path.is_file() else ""
        after = mutant.applied(before)
        if after is None:
            where = f"the text is {before.count(mutant.old)} times in {mutant.file}" if before else "there is no file"
            return Trial(mutant, "did not apply", where, 0.0)
        try:
            _write(path, after)
            run = self._run(mutant.tests, self._seconds)
        finally:
            _write(path, before)
        fate: Fate = "caught" if run.failed else "did not run" if run.error or not run.passed else "survived"
        detail = run.failed[0] if run.failed else run.error
        return Trial(mutant, fate, detail, time.monotonic() - began)

    def stop(self) -> None:
        """Kill the tests that run, and all that they have started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _run(self, tests: Iterable[str], seconds: float) -> TestRun:
        report = self._tree / "report.xml"
        report.unlink(missing_ok=True)
        command = [sys.executable, *_PYTEST, f"--junitxml={report}", *tests]
        sources = os.pathsep.join(str(self._tree / place) for place in ("src", "products/src"))
        with subprocess.Popen(
            command,
            cwd=self._tree,
            env=os.environ | {"PYTHONPATH": sources},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            self._process = process
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                return TestRun(error=f"no result within {seconds:g} s")
            finally:
                self.stop()
                self._process = None
        if not report.exists():
            return TestRun(error=_last_line(output) or f"pytest ended with {process.returncode}")
        return _read(report)


@contextlib.contextmanager
def copied(root: Path, *, seconds: float = SECONDS) -> Iterator[Copy]:
    with TemporaryDirectory(prefix="millpond-mutants-") as folder:
        yield Copy(root, Path(folder), seconds=seconds)


def _files(root: Path) -> list[str]:
    """The files of the working tree as they are now: tracked or new, and what was built from them."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    built = [str(path.relative_to(root)) for folder in _BUILT for path in (root / folder).rglob("*") if path.is_file()]
    return sorted(path for path in {*listed, *built} if path and (root / path).is_file())


def _write(path: Path, text: str) -> None:
    """Write a file, and remove its bytecode, which is compared by whole seconds."""
    path.write_text(text, "utf-8")
    if path.suffix == ".py":
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def _read(report: Path) -> TestRun:
    run = TestRun()
    errors: list[str] = []
    passed = 0
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - our own pytest has written it
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        error = case.find("error")
        if case.find("failure") is not None:
            run.failed.append(name)
        elif error is None:
            passed += case.find("skipped") is None
        elif (message := error.get("message", "")).startswith("failed on teardown"):
            run.failed.append(f"{name} (teardown)")
        else:
            errors.append(f"{name}: {message}"[:300])
    return TestRun(run.failed, passed, errors[0] if errors else "")


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
