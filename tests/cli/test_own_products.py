"""A file may bring products of its own, beside its app; those that are installed are served when they are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.cli.apps import chosen, declared
from millpond.errors import LifecycleError, SettingsError
from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from pathlib import Path

HELLO = str(ROOT / "examples" / "hello" / "app.py")
MADE = """
from millpond import Kind, Millpond
from millpond.lifecycle import lifecycle
from millpond.product import Product

def made(name, kind):
    table = "* -> a submitted\\n a -> b succeeded failed expired"
    own = lifecycle(name, table, ends="b=succeeded")
    return Product(lifecycle=own, kinds=(Kind(name=kind, lifecycle=own),), title=name)
"""


def write(folder: Path, text: str) -> str:
    """An app in a file under a name of its own: modules are remembered by it."""
    path = folder / f"{folder.name}.py"
    path.write_text(f"{MADE}\napp = Millpond()\n{text}")
    return str(path)


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a product that a package brings, installed as pip would: by its entry point."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "rivers_of_tests.py").write_text(f"{MADE}\nRIVERS = made('rivers', 'river')\n")
    metadata = folder / "rivers_of_tests-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rivers-of-tests\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[millpond.products]\nrivers = rivers_of_tests:RIVERS\n")
    monkeypatch.syspath_prepend(folder)
    return "rivers"


def test_what_a_file_declares_is_served_and_nothing_that_is_installed(installed: str) -> None:
    selection = chosen(HELLO)
    assert [product.name for product in selection.mounted] == ["greetings"]
    assert list(selection.app.kinds) == ["greeting"]
    assert selection.app.kinds["greeting"].price == 2


def test_without_an_app_nothing_that_is_installed_is_served(installed: str) -> None:
    assert (chosen(None).products, dict(chosen(None).app.kinds)) == ((), {})
    example = chosen(None, with_example=True)
    assert (example.products, list(example.app.kinds)) == ((), ["hello"])


def test_an_installed_one_is_served_when_it_is_named(installed: str) -> None:
    selection = chosen(HELLO, [installed])
    assert [product.name for product in selection.mounted] == ["greetings", "rivers"]
    assert set(selection.app.kinds) == {"greeting", "river"}
    assert "rivers" in [product.name for product in chosen(None, ["all"]).mounted]


def test_one_can_be_served_alone(installed: str) -> None:
    own = chosen(HELLO, at_root=True)
    assert own.alone is not None
    assert (own.alone.name, own.mounted, list(own.app.kinds)) == ("greetings", (), ["greeting"])
    named = chosen(None, [installed], at_root=True)
    assert named.alone is not None
    assert (named.alone.name, named.mounted, list(named.app.kinds)) == ("rivers", (), ["river"])
    with pytest.raises(SettingsError, match="--at-root requires exactly one product"):
        chosen(None, at_root=True)


def test_one_that_is_not_there_is_refused_with_those_that_are(installed: str) -> None:
    with pytest.raises(SettingsError, match="There is no product 'nothing'") as caught:
        chosen(HELLO, ["nothing"])
    assert caught.value.field == "product"
    assert {"greetings", "rivers"} <= set(str(caught.value.hint).removeprefix("Products: ").rstrip(".").split(", "))


def test_a_worker_has_the_files_own_and_no_others(tmp_path: Path, installed: str) -> None:
    selection = declared(write(tmp_path, "own = made('tides', 'tide')\n"))
    assert [product.name for product in selection.products] == ["tides"]
    assert list(selection.app.kinds) == ["tide"]


def test_a_files_own_takes_the_place_of_an_installed_one_of_its_name(tmp_path: Path, installed: str) -> None:
    selection = chosen(write(tmp_path, "own = made('rivers', 'brook')\n"), [installed])
    assert [product.name for product in selection.mounted] == ["rivers"]
    assert list(selection.app.kinds) == ["brook"]


@pytest.mark.parametrize("name", ["v1", "docs", "healthz", "inbox", "native"])
def test_where_something_else_is_served_none_can_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=f"/{name} is already in use"):
        chosen(write(tmp_path, f"own = made({name!r}, 'tide')\n"))


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="/tides is already in use"):
        chosen(write(tmp_path, "one = made('tides', 'ebb')\nother = made('tides', 'flow')\n"))


def test_a_kind_that_the_app_has_otherwise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LifecycleError, match="declared more than once"):
        chosen(write(tmp_path, "own = made('tides', 'tide')\napp.add(Kind(name='tide'))\n"))
