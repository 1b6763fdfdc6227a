"""The SQL of the products: it prepares, somebody runs it, and of Millpond it uses the functions for products alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import millpond_products
from millpond.store import plugin_migrations, queries
from millpond.store.db import connect
from millpond_products.catalog import PRODUCTS

if TYPE_CHECKING:
    from tests.databases import DatabaseServer

ROOT = Path(millpond_products.__file__).parent
PRODUCTS_FOLDER = {product.name for product in PRODUCTS}
FILES = sorted(ROOT.rglob("*.sql"))
NOUNS = [path for path in FILES if path.parent.name != "migrations"]
OPEN = {"clock", "default_cap", "final_state", "lock_attempt", "on_end", "wall"}
"""The functions for products; docs/how-to/make-a-product.md says what each does."""
CALLERS = "callers"
"""A setting: whose rows the statement reads."""


def queries_of(path: Path) -> dict[str, str]:
    package = ".".join(("millpond_products", *path.parent.relative_to(ROOT).parts))
    return {name: query.text for name, query in queries.queries(package, path.stem).items()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_it_uses_its_own_tables_and_the_functions_for_products(path: Path) -> None:
    product = path.relative_to(ROOT).parts[0]
    code = re.sub(r"--[^\n]*", "", path.read_text("utf-8"))
    used = set(re.findall(r"millpond\.(\w+)", code))
    foreign = {name for name in used - OPEN - {CALLERS} if not name.startswith(f"{product}_")}
    assert product in PRODUCTS_FOLDER
    assert foreign == set()


async def test_every_query_prepares_on_the_real_schema(server: DatabaseServer, template: str) -> None:
    said: dict[str, str] = {}
    async with server.database(template) as dsn:
        for product in PRODUCTS:
            if product.migrations is not None:
                await plugin_migrations.migrate(dsn, product.name, product.migrations)
        connection = await connect(dsn)
        try:
            await connection.execute("set search_path = ''")
            for path in NOUNS:
                for name, text in queries_of(path).items():
                    try:
                        await connection.prepare(text)
                    except Exception as error:  # noqa: BLE001 - whatever it says is the finding
                        said[f"{path.parent.name}.{path.stem}.{name}"] = str(error)
        finally:
            await connection.close()
    assert NOUNS
    assert said == {}


@pytest.mark.parametrize("path", NOUNS, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_every_query_is_run_by_somebody(path: Path) -> None:
    own = path.with_suffix(".py").read_text("utf-8")
    beside = "\n".join(each.read_text("utf-8") for each in path.parent.glob("*.py"))
    dead = {
        name for name in queries_of(path) if f'SQL["{name}"]' not in own and f'{path.stem}.SQL["{name}"]' not in beside
    }
    assert dead == set()
