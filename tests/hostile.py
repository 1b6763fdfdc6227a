"""Settings by which an administrator, or the default of a distribution, could spoil our plans and our SQL.

`python -m tests.hostile ROLE` prints the statements that give all sessions of a role those that a caller survives.
"""

from __future__ import annotations

import sys
from typing import Final

HOSTILE: Final = {
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Asia/Kolkata",
    "array_nulls": "off",
    "bytea_output": "escape",
    "check_function_bodies": "off",
    "client_min_messages": "error",
    "constraint_exclusion": "off",
    "cpu_tuple_cost": "1000",
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "serializable",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_indexonlyscan": "off",
    "enable_indexscan": "off",
    "enable_nestloop": "off",
    "enable_partition_pruning": "off",
    "exit_on_error": "on",
    "extra_float_digits": "-15",
    "from_collapse_limit": "1",
    "geqo_threshold": "2",
    "gin_fuzzy_search_limit": "1",
    "idle_in_transaction_session_timeout": "1ms",
    "idle_session_timeout": "1ms",
    "jit": "on",
    "jit_above_cost": "0",
    "jit_inline_above_cost": "0",
    "jit_optimize_above_cost": "0",
    "join_collapse_limit": "1",
    "lock_timeout": "1ms",
    "min_parallel_index_scan_size": "0",
    "min_parallel_table_scan_size": "0",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
    "plan_cache_mode": "force_custom_plan",
    "plpgsql.extra_errors": "all",
    "plpgsql.extra_warnings": "all",
    "quote_all_identifiers": "on",
    "random_page_cost": "1000",
    "row_security": "off",
    "search_path": "strange",
    "seq_page_cost": "0",
    "standard_conforming_strings": "off",
    "statement_timeout": "1ms",
    "transform_null_equals": "on",
}

HARMLESS: Final = ("jit_above_cost", "jit_inline_above_cost", "jit_optimize_above_cost")
"""Those that have no effect once the others are set."""

CALLERS: Final = (
    "default_transaction_isolation",
    "exit_on_error",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "statement_timeout",
)
"""Those that end or forbid the caller's own statements, so that nothing can be submitted in its transaction."""


def statements(target: str, *but: str) -> list[str]:
    """`alter … set` for all of them except some; the target is `role name` or `database name`."""
    lists = ("search_path", "DateStyle")
    return [
        f"alter {target} set {name} = {value if name in lists else repr(value)}"
        for name, value in HOSTILE.items()
        if name not in but
    ]


if __name__ == "__main__":
    for statement in statements(f'role "{sys.argv[1]}"', *CALLERS):
        sys.stdout.write(f"{statement};\n")
