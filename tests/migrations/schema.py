"""The schema of a database as text: the same for the same schema, whatever server and week it is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.store.db import Connection, Row

# The partitions of the weeks are left out: they come and go.
_TABLES = """
select c.oid, c.oid::regclass::text as name, array_to_string(c.reloptions, ', ') as options,
    obj_description(c.oid, 'pg_class') as comment, pg_get_expr(c.relpartbound, c.oid) as bound,
    (select i.inhparent::regclass::text from pg_inherits i where i.inhrelid = c.oid) as parent,
    case when c.relkind = 'p' then pg_get_partkeydef(c.oid) end as key
from pg_class c
where c.relnamespace = 'millpond'::regnamespace and c.relkind in ('r', 'p') and c.relname !~ '_\\d{8}$'
order by c.relname
"""
_SEQUENCES = """
select c.oid::regclass::text as name, s.seqmax as maximum, s.seqcache as stock, s.seqcycle as is_cyclic,
    obj_description(c.oid, 'pg_class') as comment
from pg_class c join pg_sequence s on s.seqrelid = c.oid
where c.relnamespace = 'millpond'::regnamespace
    and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'i')
order by c.relname
"""
_COLUMNS = """
select a.attname as name, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull as is_required,
    case when a.attcollation <> t.typcollation then a.attcollation::regcollation::text end as collation,
    pg_get_expr(d.adbin, d.adrelid) as preset, a.attidentity <> '' as is_identity,
    col_description(a.attrelid, a.attnum) as comment
from pg_attribute a
join pg_type t on t.oid = a.atttypid
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
_RULES = """
select format('constraint %I %s', conname, pg_get_constraintdef(oid)) as text
from pg_constraint where conrelid = $1 and contype <> 'n' and coninhcount = 0 and conparentid = 0
union all
select format('%s', pg_get_indexdef(i.indexrelid))
from pg_index i join pg_class c on c.oid = i.indexrelid
where i.indrelid = $1 and not c.relispartition
    and not exists (select from pg_constraint k where k.conindid = i.indexrelid)
union all
select pg_get_triggerdef(oid) from pg_trigger where tgrelid = $1 and not tgisinternal and tgparentid = 0
union all
select format('policy %I for select to %s using (%s)', polname, polroles::regrole[], pg_get_expr(polqual, polrelid))
from pg_policy p join pg_class c on c.oid = p.polrelid
where polrelid = $1 and polcmd = 'r' and c.relrowsecurity
order by 1
"""

# Functions, but for those of triggers, with the arguments that a call must give and those that it may.
_FUNCTIONS = """
select p.proname as name, p.pronargdefaults as spare,
    array(select format_type(a.type, null) from unnest(p.proargtypes) with ordinality a(type, n) order by a.n) as types
from pg_proc p
where p.pronamespace = 'millpond'::regnamespace and p.prorettype <> 'trigger'::regtype
order by p.proname, p.oid
"""


async def functions(connection: Connection) -> list[tuple[str, list[str], int]]:
    """Every function: its name, the types of its arguments, and how many of these may be left out at the end."""
    return [(row["name"], row["types"], row["spare"]) for row in await connection.fetch(_FUNCTIONS)]


async def describe(connection: Connection) -> str:
    """Every table with its columns, constraints, indexes, triggers, policies and comments; then the sequences."""
    await connection.execute("set search_path = ''")
    tables = [await _table(connection, row) for row in await connection.fetch(_TABLES)]
    return "\n".join([*tables, *map(_sequence, await connection.fetch(_SEQUENCES))])


def _sequence(row: Row) -> str:
    cycle = " cycle" if row["is_cyclic"] else ""
    return f"sequence {row['name']} maxvalue {row['maximum']} cache {row['stock']}{cycle}\n    -- {row['comment']}\n"


async def _table(connection: Connection, row: Row) -> str:
    lines = [f"table {row['name']}"]
    if row["parent"]:
        lines[0] += f" partition of {row['parent']} {row['bound']}"
    if row["key"]:
        lines[0] += f" partition by {row['key']}"
    lines += [f"    -- {row['comment']}"] if row["comment"] else []
    lines += [f"    with ({row['options']})"] if row["options"] else []
    if not row["parent"]:
        lines += [_column(dict(column)) for column in await connection.fetch(_COLUMNS, row["oid"])]
    lines += [f"    {rule['text']}" for rule in await connection.fetch(_RULES, row["oid"])]
    return "\n".join(lines) + "\n"


def _column(column: dict[str, object]) -> str:
    words = [
        f"    {column['name']} {column['type']}",
        f"collate {column['collation']}" if column["collation"] else "",
        "not null" if column["is_required"] else "",
        f"default {column['preset']}" if column["preset"] else "",
        "identity" if column["is_identity"] else "",
        f"-- {column['comment']}" if column["comment"] else "",
    ]
    return " ".join(filter(None, words))
