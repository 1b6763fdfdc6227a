"""Products and companions are served when they are named; an unknown name is refused with those that are known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millpond.cli.apps import chosen
from millpond.errors import LifecycleError, SettingsError
from millpond_products.catalog import PRODUCTS
from millpond_products.effects.routes import PRODUCT
from millpond_products.llm import companion as llm
from millpond_products.llm import model
from tests.acceptance.processes import Shell, shell
from tests.cli.ups import up

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = [each.name for each in PRODUCTS]
EVERY = "actions, effects, guard, partner, studio"


# Which are served


def test_none_is_served_that_is_not_named() -> None:
    selection = chosen(None, with_example=True)
    assert (list(selection.app.kinds), selection.products) == (["hello"], ())


def test_all_are_served_under_their_names() -> None:
    selection = chosen(None, ["all"], with_example=True)
    assert [each.name for each in selection.mounted] == NAMES
    assert selection.alone is None
    assert set(selection.app.kinds) == {kind.name for each in PRODUCTS for kind in each.kinds}


def test_those_that_are_named_are_served_once_each() -> None:
    selection = chosen(None, ["studio", "effects", "studio"])
    assert [each.name for each in selection.mounted] == ["studio", "effects"]


def test_one_can_be_served_at_the_root() -> None:
    selection = chosen(None, ["effects"], at_root=True, with_example=True)
    assert (list(selection.app.kinds), selection.mounted, selection.alone) == (["effects"], (), PRODUCT)


@pytest.mark.parametrize("names", [["effects", "studio"], ["all"], []], ids=["two", "all", "none"])
def test_more_or_less_than_one_at_the_root_is_refused(names: list[str]) -> None:
    with pytest.raises(SettingsError, match="--at-root requires exactly one product") as refused:
        chosen(None, names, at_root=True)
    assert refused.value.hint is not None
    assert "--product" in refused.value.hint


def test_a_name_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(SettingsError, match="no product 'nonsense'") as refused:
        chosen(None, ["effects", "nonsense"])
    assert refused.value.hint == f"Products: {EVERY}."


def test_one_whose_kind_the_app_has_itself_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own_effects.py"
    file.write_text("from millpond import Millpond\napp = Millpond()\n@app.kind('effects')\ndef run(job): ...\n")
    with pytest.raises(LifecycleError, match="declared more than once"):
        chosen(str(file), ["effects"])
    selection = chosen(str(file))
    assert selection.app.kinds["effects"].runs == "handler"
    assert not selection.products


def test_a_copy_of_a_product_has_its_routes_once() -> None:
    copy = dataclasses.replace(PRODUCT, title="Another")
    assert copy.routes == PRODUCT.routes
    paths = [(route.method, route.path) for route in copy.routes]
    assert len(set(paths)) == len(paths)


# The commands


@pytest.fixture
def sh(tmp_path: Path) -> Iterator[Shell]:
    """Without a database: all of this is refused before one is opened."""
    with shell(tmp_path, "postgresql://127.0.0.1:9/none") as made:
        yield made


def refusal(sh: Shell, *words: str, **environment: str) -> str:
    command = sh.run(*words, **environment)
    assert command.process.returncode in {2, 5}, command.stderr
    assert "Traceback" not in command.stderr
    return " ".join(command.stderr.split())


@pytest.mark.parametrize("verb", ["up", "serve"])
def test_a_command_refuses_a_product_that_is_not_known(sh: Shell, verb: str) -> None:
    response = refusal(sh, verb, "--product", "nonsense")
    assert "There is no product 'nonsense'." in response
    assert EVERY in response
    assert EVERY in refusal(sh, verb, MILLPOND_PRODUCTS="studio,nonsense")


@pytest.mark.parametrize("verb", ["up", "serve"])
def test_a_command_refuses_two_products_at_the_root(sh: Shell, verb: str) -> None:
    response = refusal(sh, verb, "--product", "studio", "--product", "guard", "--at-root")
    assert "--at-root requires exactly one product" in response
    assert "studio, guard" in response


def test_up_refuses_a_companion_that_is_not_known(sh: Shell) -> None:
    response = refusal(sh, "up", "--product", "studio", "--with", "nonsense")
    assert "There is no companion 'nonsense'." in response
    assert "llm, renderer" in response


def test_up_refuses_a_companion_of_a_product_that_is_not_served(sh: Shell) -> None:
    response = refusal(sh, "up", "--with", "llm")
    assert "There is no companion 'llm'." in response
    assert "--product" in response


@pytest.mark.skipif(model.is_installed(), reason="the extra llm is installed")
def test_up_says_what_a_companion_needs_that_is_not_installed(sh: Shell) -> None:
    response = refusal(sh, "up", "--product", "studio", "--with", "llm")
    assert "The companion llm is not installed." in response
    assert f"Run {llm.INSTALL}." in response


def test_serve_refuses_the_role_of_a_companion_whose_product_is_not_served(sh: Shell) -> None:
    response = refusal(sh, "serve", "--role", "api,renderer")
    assert "There is no role 'renderer'." in response
    assert "api, services, worker, files" in response
    assert "--product" in response


def test_a_companion_alone_is_refused(sh: Shell) -> None:
    assert "cannot run alone" in refusal(sh, "serve", "--role", "renderer", "--product", "studio")


async def test_the_processes_of_serve_are_given_what_their_companion_set(dsn: str, tmp_path: Path) -> None:
    """Each serves the product, and asks the renderer that their parent keeps."""
    with shell(tmp_path, dsn) as sh:
        server = await up(
            sh, "--role", "api,services,worker,files,renderer", "--product", "studio", "--processes", "2", verb="serve"
        )
        (environment,) = {_renderer_of(pid) for pid in _children(server.command.process.pid)}
        assert environment[0].startswith("http://127.0.0.1:")
        assert environment[1]
        assert (await server.request("GET", "/studio/openapi.json")).status_code == 200
        server.command.terminate()
        assert server.command.wait() == 0


def _children(parent: int) -> set[int]:
    """The processes of ``serve``; the file server is another one, and so is the renderer once it is called."""
    started = map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    found = {pid for pid in started if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")}
    assert len(found) == 2
    return found


def _renderer_of(pid: int) -> tuple[str, str]:
    pairs = (line.partition("=") for line in Path(f"/proc/{pid}/environ").read_text("utf-8").split("\0"))
    known = {name: value for name, _, value in pairs}
    return known["MILLPOND_REPLICATE_URL"], known["MILLPOND_REPLICATE_API_TOKEN"]
