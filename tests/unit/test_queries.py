"""Named queries: what a `.sql` file may look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.store import queries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = """-- About the noun.

-- name: read :maybe
-- Why.
select 1;

-- function: helper
create function helper() returns int language sql as 'select 1';

-- name: list :many
select 2;
"""


@pytest.fixture
def noun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(queries, "files", lambda _: tmp_path)
    queries._blocks.cache_clear()
    yield tmp_path / "noun.sql"
    queries._blocks.cache_clear()


def test_a_file_is_named_queries_and_functions(noun: Path) -> None:
    noun.write_text(FILE)
    found = queries.queries("package", "noun")
    assert [(query.name, query.shape) for query in found.values()] == [("noun.read", "maybe"), ("noun.list", "many")]
    assert found["read"].text == "-- Why.\nselect 1;"
    assert list(queries.functions("package", "noun")) == ["helper"]


def test_a_fragment_is_inserted_where_it_is_named(noun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "SOURCES", (("package", "noun"),))
    noun.write_text(
        "-- fragment: fields\n-- Why.\nid, tags\n\n-- name: read :many\nselect {noun.fields}, '{}' from jobs;"
    )
    assert {name: query.text for name, query in queries.queries("package", "noun").items()} == {
        "read": "select id, tags, '{}' from jobs;"
    }


@pytest.mark.parametrize("shape", ["", " :some"])
def test_a_query_without_a_known_shape_is_a_mistake(noun: Path, shape: str) -> None:
    noun.write_text(f"-- name: read{shape}\nselect 1;")
    with pytest.raises(ValueError, match=r"noun\.sql: read has no shape"):
        queries.queries("package", "noun")
