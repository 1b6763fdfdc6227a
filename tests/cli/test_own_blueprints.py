"""A file may bring blueprints of its own, beside its app; they are served like those that come with Millpond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.blueprints.catalog import BLUEPRINTS
from millpond.cli.apps import chosen, declared
from millpond.errors import LifecycleError, SettingsError
from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from pathlib import Path

HELLO = str(ROOT / "examples" / "hello" / "app.py")
SHIPPED = [blueprint.name for blueprint in BLUEPRINTS]
OWN = """
from millpond import Kind, Millpond
from millpond.api.blueprint import Blueprint
from millpond.lifecycle import lifecycle

def made(name, kind):
    table = "* -> a submitted\\n a -> b succeeded failed expired"
    own = lifecycle(name, table, ends="b=succeeded")
    return Blueprint(lifecycle=own, kinds=(Kind(name=kind, lifecycle=own),), title=name)

app = Millpond()
"""


def write(folder: Path, text: str) -> str:
    """A file under a name of its own: modules are remembered by it."""
    path = folder / f"{folder.name}.py"
    path.write_text(OWN + text)
    return str(path)


def test_it_is_served_beside_the_others() -> None:
    product = chosen(HELLO)
    assert [blueprint.name for blueprint in product.mounted] == ["greetings", *SHIPPED]
    assert product.app.kinds["greeting"].price == 2


def test_it_can_be_served_alone() -> None:
    product = chosen(HELLO, "greetings")
    assert product.alone is not None
    assert (product.alone.name, product.mounted, list(product.app.kinds)) == ("greetings", (), ["greeting"])
    with pytest.raises(SettingsError, match="greetings, guard"):
        chosen(HELLO, "nothing")


def test_a_worker_has_the_files_own_and_no_others(tmp_path: Path) -> None:
    product = declared(write(tmp_path, "own = made('tides', 'tide')\n"))
    assert [blueprint.name for blueprint in product.blueprints] == ["tides"]
    assert list(product.app.kinds) == ["tide"]


def test_it_takes_the_place_of_one_of_its_name(tmp_path: Path) -> None:
    product = chosen(write(tmp_path, "own = made('studio', 'studio.copy')\n"))
    rest = [name for name in SHIPPED if name != "studio"]
    assert [blueprint.name for blueprint in product.mounted] == ["studio", *rest]
    assert list(product.mounted[0].kinds) == [product.app.kinds["studio.copy"]]


@pytest.mark.parametrize("name", ["v1", "docs", "healthz", "inbox", "native"])
def test_where_something_else_is_served_none_can_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=f"/{name} is taken"):
        chosen(write(tmp_path, f"own = made({name!r}, 'tide')\n"))


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="/tides is taken"):
        chosen(write(tmp_path, "one = made('tides', 'ebb')\nother = made('tides', 'flow')\n"))


def test_a_kind_that_the_app_has_otherwise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LifecycleError, match="declared twice"):
        chosen(write(tmp_path, "own = made('tides', 'tide')\napp.add(Kind(name='tide'))\n"))
