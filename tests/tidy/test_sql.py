"""The SQL as a whole: nothing dead, nothing misspelled, nothing in the wrong house."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from millpond.store import queries
from millpond.store.db import connect
from tests.tidy.sources import (
    COLUMNS,
    DATABASES,
    FUNCTIONS,
    MIGRATIONS,
    PYTHON,
    QUERIES,
    ROOT,
    SQL_FILES,
    Block,
    called,
    mentioned,
    package_of,
    parameters,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.databases import DatabaseServer

BLOCKS = (*FUNCTIONS, *QUERIES)


def those(blocks: Iterable[Block], is_wrong: Callable[[Block], object]) -> list[str]:
    """The blocks that are wrong, by name. One test looks at all of them: hundreds of tests would cost more than it."""
    return [str(block) for block in blocks if is_wrong(block)]


# Nothing misspelled, nothing dead


async def test_every_query_prepares_on_the_real_schema(server: DatabaseServer, template: str) -> None:
    connection = await connect(server.named(template))
    said: dict[str, str] = {}
    try:
        await connection.execute("set search_path = ''")
        for query in QUERIES:
            try:
                await connection.prepare(query.text)
            except Exception as error:  # noqa: BLE001 - whatever it says is the finding
                said[str(query)] = str(error)
    finally:
        await connection.close()
    assert said == {}


def test_every_query_is_run_by_somebody() -> None:
    def is_dead(query: Block) -> bool:
        own = next(path for path in SQL_FILES if path.stem == query.noun).with_suffix(".py")
        calls = [rf'(?<![\w.])SQL\["{query.name}"\]', r"SQL\.items\(\)"]
        foreign = rf'\b{query.noun}\.SQL\["{query.name}"\]'
        return not any(re.search(call, PYTHON[own]) for call in calls) and not any(
            re.search(foreign, text) for text in PYTHON.values()
        )

    assert those(QUERIES, is_dead) == []


def test_every_function_is_used_by_somebody() -> None:
    """But for those that are there for people who write SQL themselves, and for products."""

    def is_dead(function: Block) -> bool:
        name = rf"millpond\.{function.name}\b"
        others = [block.code for block in BLOCKS if block != function]
        return not any(re.search(name, text) for text in (*others, MIGRATIONS, *PYTHON.values()))

    unused = {function.name for function in FUNCTIONS if is_dead(function)}
    assert unused <= {"uuid7", "submit", "default_cap", "final_state", "lock_attempt", "on_end"}


def test_every_file_of_functions_is_applied_by_the_migration() -> None:
    with_functions = {path for path in SQL_FILES if "-- function: " in path.read_text()}
    applied = {ROOT.joinpath(*package.split(".")[1:], f"{noun}.sql") for package, noun in queries.SOURCES}
    assert with_functions <= applied


@pytest.mark.parametrize("path", SQL_FILES, ids=lambda path: path.stem)
def test_every_file_begins_with_what_it_is_about(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert re.match(rf"-- {path.stem.capitalize()}: .+", first)


def test_no_query_gives_whatever_columns_there_are() -> None:
    whatever = re.compile(r"\A\s*select\s+(\w+\.)?\*|returning\s+(\w+\.)?\*\s*;")
    assert those(QUERIES, lambda query: whatever.search(query.code)) == []


def test_keywords_are_in_lower_case() -> None:
    loud = re.compile(r"\b(SELECT|FROM|WHERE|INSERT|UPDATE|DELETE|JOIN|WITH)\b")
    assert those(BLOCKS, lambda block: loud.search(block.code)) == []


def enclosed(code: str, start: int) -> str:
    """What stands between an opening bracket and the one that closes it."""
    depth = 1
    for end in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[end], 0)
        if not depth:
            return code[start:end]
    return code[start:]


# One state change, one clock, no notification


def test_state_is_set_in_one_place() -> None:
    state_change = re.compile(r"\bset\s+state\s*=|,\s*state\s*=\s")
    assert those(BLOCKS, lambda block: state_change.search(block.code)) == ["jobs.transition()"]


def test_there_is_one_clock() -> None:
    """Only `millpond.clock` may ask the system what time it is, so that a test can turn it.

    An id carries the time of the machine, and the doctor compares with that of the server's own statistics.
    """
    owners = {"clock", "uuid7", "oldest_snapshot"}
    clocks = re.compile(
        r"\b(now\(\)|clock_timestamp|statement_timestamp|transaction_timestamp|current_timestamp|current_date)"
    )
    assert those(BLOCKS, lambda block: block.name not in owners and clocks.search(block.code)) == []


def test_no_verb_notifies_inside_its_transaction() -> None:
    """NOTIFY makes commits wait for each other; after the commit, and without a wait for the disk, it is allowed."""
    rings = re.compile(r"\bnotify\b|pg_notify")
    rightly = re.compile(r"\bcommit;\s+perform set_config\('synchronous_commit', 'off', true\), pg_notify")
    assert those(FUNCTIONS, lambda block: rings.search(block.code) and not rightly.search(block.code)) == []


def test_no_limited_choice_of_rows_is_made_more_than_once() -> None:
    """`in (select … limit … for update)` may be planned as a loop that chooses again each time."""

    def chooses_again(block: Block) -> bool:
        choices = re.finditer(r"\bin \((?=\s*select)", block.code)
        return any("limit" in enclosed(block.code, choice.end()) for choice in choices)

    assert those(BLOCKS, chooses_again) == []


def test_a_list_that_is_given_is_not_mistaken_for_a_column() -> None:
    """Names mean columns first: where a table has a column of a parameter's name, the parameter is written in full."""
    for function in FUNCTIONS:
        for statement in function.statements:
            columns = {column for table in mentioned(statement, COLUMNS) for column in COLUMNS[table]}
            for name in columns & parameters(function):
                assert not re.search(rf"\bany\({name}\)", statement), f"{function}: {statement}"


# Two houses

CENTRAL = ["dispatches", "queues"]
HALVES = [
    "jobs.answer_job()",
    "jobs.cancel_job()",
    "jobs.judge()",
    "jobs.transition()",
    "jobs.prioritize_job()",
    "jobs.revive_job()",
    "jobs.transition_job_to()",
    "jobs.write()",
    "leases.note_jobs()",
    "ledger.charge()",
    "ledger.post()",
    "ledger.refund_job()",
    "ledger.settle()",
    "remote.out_of_step()",
    "remote.owe()",
]


AT_EITHER = {"resume"}
"""Functions that update the queue if it is in their database, and otherwise store what the queue is owed."""


def databases(names: set[str]) -> set[str]:
    return {DATABASES[name] for name in names} - {"both"}


def house(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """The houses a function reaches into, by itself or through those it calls."""
    found: set[str] = set()
    for function in FUNCTIONS:
        if function.name == name and name not in seen:
            found |= databases(function.tables)
            for other in function.calls - AT_EITHER:
                found |= house(other, seen | {name})
    return found


def test_every_table_has_a_home() -> None:
    tables = set(re.findall(r"create table millpond\.(\w+)", MIGRATIONS))
    assert tables <= DATABASES.keys()
    assert set(DATABASES.values()) == {"tenant", "central", "both"}


def test_no_table_refers_to_another() -> None:
    assert "references" not in MIGRATIONS.replace("never reference each other", "")


def test_the_queue_knows_no_tenants_table() -> None:
    queue = [block for block in BLOCKS if block.noun in CENTRAL]
    assert those(queue, lambda block: "tenant" in databases(block.tables)) == []


@pytest.mark.parametrize("block", [b for b in FUNCTIONS if str(b) in HALVES], ids=str)
def test_the_tenants_half_of_a_verb_knows_no_queue(block: Block) -> None:
    assert house(block.name) == {"tenant"}


def test_the_halves_are_there() -> None:
    assert {str(block) for block in FUNCTIONS} >= set(HALVES)


def test_no_statement_reaches_into_both_houses() -> None:
    """Verbs are put together from halves; a statement that names a table of one house asks nothing of the other.

    `verify` compares the houses on purpose.
    """
    for block in BLOCKS:
        for statement in block.statements if block.noun != "verify" else ():
            tables = databases(mentioned(statement, DATABASES))
            assert tables != {"tenant", "central"}, f"{block}: {statement}"
            for half in [house(name) for name in called(statement)]:
                assert not tables or len(half) > 1 or tables | half == tables, f"{block}: {statement}"


# One driver


def test_only_the_store_speaks_to_the_driver() -> None:
    driver = re.compile(r"^\s*(from|import) (asyncpg|psycopg|pg8000)\b", re.MULTILINE)
    assert {path for path, text in PYTHON.items() if driver.search(text)} <= {
        ROOT / "store" / "connections.py",
        ROOT / "store" / "db.py",
        ROOT / "store" / "hosts.py",
        ROOT / "store" / "migrate.py",
    }


def test_sql_stands_in_sql_files() -> None:
    """Outside the store nothing spells a statement; two harmless reads are known."""
    spelled = re.compile(r'"((?:select|insert|update|delete|with)\s[^"]*millpond\.[^"]*)"')
    outside = {path: set(spelled.findall(text)) for path, text in PYTHON.items() if "store" not in path.parts}
    assert {path: found for path, found in outside.items() if not found <= {"select millpond.clock()"}} == {}


def test_packages_of_sql_files_are_real() -> None:
    assert all(queries._blocks(package_of(path), path.stem) for path in SQL_FILES)
