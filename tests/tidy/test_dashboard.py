"""The dashboard asks its own server alone, and nothing that others wrote is kept in this repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.ui.pages import PATHS
from tests.tidy.sources import ROOT

REPOSITORY = Path(__file__).parents[2]
UI = REPOSITORY / "ui"
TESTS = REPOSITORY / "tests"
STATIC = ROOT / "ui" / "static"

SOURCES = sorted(path for path in (UI / "src").rglob("*") if path.is_file())
BUILT = sorted(path for path in STATIC.glob("*") if path.name != "licenses.txt")

_URL = re.compile(r"""(?:https?:|wss?:)?//(?:[\w-]+\.)+\w+[^\s"'`)\\]*""")
NAMESPACES = {
    "http://www.w3.org/1998/Math/MathML",
    "http://www.w3.org/1999/xhtml",
    "http://www.w3.org/1999/xlink",
    "http://www.w3.org/2000/svg",
}
"""Names that look like addresses, and that nothing is fetched from."""
_NOWHERE = re.compile(r"https?://(?:127\.0\.0\.1|[\w.-]+\.example)(?::\d+)?(?:/|$)")
"""What a command or a field shows as an example: this machine, and names that no registry gives to anybody."""
MARKUP = re.compile(r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|srcdoc|document\.write)\b|dangerouslySetInnerHTML")
OURS = {".css", ".html", ".json", ".jsonc", ".mjs", ".npmrc", ".py", ".svg", ".ts", ".tsx"}


def test_the_server_and_the_dashboard_know_the_same_pages() -> None:
    known = re.findall(r'^  \["(/[^"]*)", \w+\],$', (UI / "src" / "main.tsx").read_text(), re.MULTILINE)
    assert sorted(known) == sorted(PATHS)


@pytest.mark.parametrize("files", [SOURCES, BUILT], ids=["sources", "bundle"])
def test_the_dashboard_names_no_other_host(files: list[Path]) -> None:
    assert files
    assert {path.name: found for path in files if (found := hosts(path.read_text()))} == {}


@pytest.mark.parametrize(
    "text",
    [
        'fetch("https://a.com/x")',
        "import 'http://cdn.net/x.js'",
        "url(//fonts.org/a)",
        "wss://a.b",
        "http://a.example.org",
    ],
)
def test_another_host_would_be_found(text: str) -> None:
    assert hosts(text)


def test_no_source_makes_markup_from_text() -> None:
    """What a job, a customer or a server says is shown as text: there is no way in for markup."""
    assert [path.name for path in SOURCES if MARKUP.search(path.read_text())] == []


def test_the_built_page_names_each_part_that_was_built() -> None:
    page = (STATIC / "index.html").read_text()
    named = set(re.findall(r'"\{root\}/static/([^"]+)"', page))
    assert {Path(name).suffix for name in named} == {".css", ".js", ".svg"}
    assert named == {path.name for path in BUILT} - {"index.html"}


def test_the_licences_of_what_is_bundled_go_along() -> None:
    licenses = (STATIC / "licenses.txt").read_text()
    packages = json.loads((UI / "package.json").read_text())["dependencies"]
    for name, version in packages.items():
        # esbuild makes the bundle and is not in it.
        assert (f"{name} {version} (" in licenses) is (name != "esbuild")
    assert licenses.count("Permission is hereby granted") == licenses.count("WARRANTY OF ANY KIND") >= 3


def test_nothing_of_others_is_tracked() -> None:
    """What git keeps of ui/, or would keep, is of a kind that we write; packages and bundles it is told to ignore."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "ui", "src/millpond/ui")
    paths = [REPOSITORY / name for name in listed.splitlines()]
    assert UI / "package-lock.json" in paths
    strange = [path for path in paths if (path.suffix or path.name) not in OURS or ".min." in path.name]
    assert strange == []
    assert [path for path in paths if path.is_relative_to(STATIC) or "node_modules" in path.parts] == []
    # A bundle in disguise has lines that nobody writes.
    own = [path for path in paths if path.is_file() and path.name != "package-lock.json"]
    assert [path.name for path in own if max(map(len, path.read_text().splitlines()), default=0) > 400] == []


@pytest.mark.parametrize("folder", [UI, TESTS / "chromium", TESTS / "peers"], ids=lambda folder: folder.name)
def test_packages_are_exact_and_the_lock_names_no_registry(folder: Path) -> None:
    wanted = json.loads((folder / "package.json").read_text())
    locked = json.loads((folder / "package-lock.json").read_text())["packages"]
    for kind in {"dependencies", "devDependencies"} & {*wanted, *locked[""]}:
        assert locked[""][kind] == wanted[kind]
        for name, version in wanted[kind].items():
            assert locked[f"node_modules/{name}"]["version"] == version
    for name, package in locked.items():
        assert "resolved" not in package, name
        assert not name or package["integrity"].startswith("sha512-"), name
        # A lock made where a registry lacks the files for other systems would fail on those.
        assert {f"node_modules/{other}" for other in package.get("optionalDependencies", {})} <= set(locked), name


def test_a_build_without_a_registry_says_what_it_needs(tmp_path: Path) -> None:
    """In a copy that has nothing yet: no address is tried but one where nobody listens."""
    (tmp_path / "ui").mkdir()
    for name in (".npmrc", "hatch_build.py", "package.json", "package-lock.json"):
        (tmp_path / "ui" / name).write_bytes((UI / name).read_bytes())
    npm = {
        "registry": "http://127.0.0.1:1/",
        "cache": str(tmp_path / "cache"),
        "fetch_retries": "0",
        "noproxy": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, tmp_path / "ui" / "hatch_build.py", "build"],
        env=os.environ | {f"npm_config_{name}": value for name, value in npm.items()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "ECONNREFUSED" in done.stderr
    assert "npm could not install" in done.stderr
    assert "npm_config_registry" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "build").exists()


def hosts(text: str) -> set[str]:
    return {url for url in _URL.findall(text) if url not in NAMESPACES and not _NOWHERE.match(url)}


def git(*words: str) -> str:
    # The checkout may be another user's.
    command = ["git", "-c", "safe.directory=*", *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60).stdout
