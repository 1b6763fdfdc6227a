"""What npm brings for the tests: once, and whole or not at all."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import packages

UNPACK = """
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
appendFileSync("../../runs", ".");
writeFileSync("half", "");
process.exitCode = existsSync("../../broken") ? 1 : 0;
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package without dependencies, and a registry where nobody listens."""
    monkeypatch.setattr(packages, "TESTS", tmp_path)
    monkeypatch.setattr(packages, "PLACE", tmp_path / "place")
    npm = {"registry": "http://127.0.0.1:1/", "noproxy": "127.0.0.1", "cache": str(tmp_path / "cache")}
    for name, value in npm.items():
        monkeypatch.setenv(f"npm_config_{name}", value)
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "unpack.mjs").write_text(UNPACK)
    describe(tmp_path)
    return tmp_path


def describe(package: Path, dependencies: dict[str, str] | None = None) -> None:
    wanted = dependencies or {}
    thing = {"name": "thing", "version": "1.0.0", "dependencies": wanted}
    locked = {"": thing} | {f"node_modules/{name}": {"version": version} for name, version in wanted.items()}
    lock = {"name": "thing", "version": "1.0.0", "lockfileVersion": 3, "packages": locked}
    (package / "thing" / "package.json").write_text(json.dumps(thing | {"scripts": {"unpack": "node unpack.mjs"}}))
    (package / "thing" / "package-lock.json").write_text(json.dumps(lock))


def test_two_who_ask_at_once_get_one(package: Path) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(packages.bring, ["thing", "thing"]))
    packages.bring("thing")
    assert (package / "runs").read_text() == "."
    assert (packages.place("thing") / "half").exists()


def test_what_was_left_half_done_is_not_used_and_does_not_stay(package: Path) -> None:
    (package / "broken").touch()
    with pytest.raises(SystemExit, match="npm could not bring what tests/thing"):
        packages.bring("thing")
    assert not packages.place("thing").exists()
    (package / "broken").unlink()
    packages.bring("thing")
    assert (package / "runs").read_text() == ".."
    assert {path.name for path in (package / "place").iterdir()} == {packages.place("thing").name, "thing.lock"}


def test_without_a_registry_there_is_a_complaint(package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    describe(package, {"something": "1.0.0"})
    with pytest.raises(SystemExit, match="npm could not bring what tests/thing"):
        packages.bring("thing")
    assert "ECONNREFUSED" in capfd.readouterr().err
    assert not packages.place("thing").exists()
