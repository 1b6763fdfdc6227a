"""The two wheels and what keeps them apart: the core holds, imports and tests nothing of the products."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECTS = {"millpond": ROOT, "millpond-products": ROOT / "products"}
PACKAGES = {"millpond": ROOT / "src" / "millpond", "millpond-products": ROOT / "products" / "src" / "millpond_products"}
OF_PRODUCTS = {"actions", "doubles", "effects", "github", "guard", "llm", "partner", "renderer", "rules", "studio"}
"""Folders and modules that the core's wheel must not have: products, what only they use, and test doubles."""
OF_CORE = {
    *("api", "cli", "client", "engine", "integrations", "outbound", "services", "storage", "store", "testing", "ui"),
    *("wire", "worker"),
    *("__init__.py", "__main__.py", "app.py", "companions.py", "errors.py", "gates.py", "ids.py", "kinds.py"),
    *(
        "lifecycle.py",
        "lifeline.py",
        "log_sink.py",
        "logs.py",
        "product.py",
        "providers.py",
        "redaction.py",
        "resources.py",
    ),
    *(
        "retry.py",
        "scaling.py",
        "limits.py",
        "schedules.py",
        "settings.py",
        "supervisor.py",
        "values.py",
        "webhooks.py",
        "work.py",
        "py.typed",
    ),
}
"""All folders and modules of the core: what every user needs. What only one product uses belongs to that product."""
_IMPORT = re.compile(r"^\s*(?:from|import) (millpond_products|products)\b", re.MULTILINE)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What each wheel holds, as hatchling builds it."""
    return {name: names(build(folder, tmp_path_factory.mktemp(name))) for name, folder in PROJECTS.items()}


def build(project: Path, folder: Path) -> Path:
    words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def tops(held: set[str]) -> set[str]:
    """The packages of a wheel, beside its metadata."""
    return {top for top in (name.split("/")[0] for name in held) if not top.endswith(".dist-info")}


def project(name: str) -> dict[str, object]:
    return tomllib.loads((PROJECTS[name] / "pyproject.toml").read_text("utf-8"))["project"]


def sources(name: str) -> set[str]:
    package = PACKAGES[name]
    kept = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(package.parent).as_posix() for path in kept}


def test_the_core_wheel_holds_the_core_alone(wheels: dict[str, set[str]]) -> None:
    held = wheels["millpond"]
    assert tops(held) == {"millpond"}
    assert {name.split("/")[1] for name in held if name.startswith("millpond/")} == OF_CORE
    parts = {part.removesuffix(".py") for name in held for part in name.split("/")}
    assert parts & OF_PRODUCTS == set()
    assert not [name for name in held if re.search(r"test_|conftest|millpond_products", name)]


def test_the_products_wheel_holds_the_products_alone(wheels: dict[str, set[str]]) -> None:
    held = wheels["millpond-products"]
    assert {name.split("/")[0] for name in held} == {
        "millpond_products",
        f"millpond_products-{project('millpond-products')['version']}.dist-info",
    }
    assert not [name for name in held if re.search(r"test_|conftest|doubles", name)]


@pytest.mark.parametrize("name", PROJECTS)
def test_a_wheel_holds_every_file_of_its_package(wheels: dict[str, set[str]], name: str) -> None:
    held = {each for each in wheels[name] if ".dist-info/" not in each}
    built = {each for each in held | sources(name) if each.startswith("millpond/ui/static/")}
    assert held - built == sources(name) - built


def test_both_wheels_are_of_one_version() -> None:
    core, products = project("millpond"), project("millpond-products")
    assert core["version"] == products["version"]
    assert f"millpond[server]=={core['version']}" in str(products["dependencies"])


def test_the_core_declares_no_product() -> None:
    declared = project("millpond")
    assert set(declared["entry-points"]) == {"pytest11"}  # pyright: ignore[reportArgumentType]
    assert declared["scripts"] == {"millpond": "millpond.__main__:main"}


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_the_core_and_its_tests_import_nothing_of_the_products(folder: str) -> None:
    found = {path for path in (ROOT / folder).rglob("*.py") if _IMPORT.search(path.read_text("utf-8"))}
    assert {path.relative_to(ROOT).as_posix() for path in found} == set()
    assert not _IMPORT.search((ROOT / "conftest.py").read_text("utf-8"))
