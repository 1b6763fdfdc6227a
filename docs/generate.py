"""Writes the generated parts of the documentation, and the types of the API for the dashboard.

    docs/generate.py            rewrites them
    docs/generate.py --check    lists the stale pages, and fails if there are any

A generated part is between `<!-- generated: name -->` and `<!-- end of name -->`; the rest is written by hand.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import dataclasses
import inspect
import json
import re
import sys
import tempfile
from collections import Counter
from datetime import timedelta
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from millpond import app, errors, lifecycle, logs, retry, settings, wire
from millpond import kinds as kinds_module
from millpond.api import problems, product
from millpond.api.documents import openapi
from millpond.api.documents.advice import ADVICE
from millpond.api.documents.schemas import meaning
from millpond.api.native import ROUTES
from millpond.cli import COMMANDS, load
from millpond.cli.output import EXIT_CODES, INTERRUPTED, OUTCOME_CODES, TIMED_OUT, USAGE
from millpond.client import admin, batches, handles, requests, verbs
from millpond.client import errors as client_errors
from millpond.engine import engine, verify
from millpond.engine.credits import ledger
from millpond.engine.jobs import events, jobs
from millpond.store import embedded, queries
from millpond.store.db import connect
from millpond.store.migrate import migrate
from millpond.worker import context, worker
from millpond_products import settings as products_settings
from millpond_products.lifecycles import LIFECYCLES
from millpond_products.log_events import LOG_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "docs", ROOT / "products" / "docs")
SHAPES = ROOT / "ui" / "src" / "wire.ts"

_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
_HEADER = re.compile(r"^-- (name|function): (\w+).*\n((?:-- .*\n)*)", re.MULTILINE)

_SHAPES_HEAD = "// Generated from src/millpond/wire by docs/generate.py; to update it, run `make reference`.\n"
_PLAIN_TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def main() -> None:
    arguments = argparse.ArgumentParser(description="Write the generated parts of the documentation.")
    arguments.add_argument("--check", action="store_true", help="write nothing; fail if something is stale")
    is_check = arguments.parse_args().check
    with tempfile.TemporaryDirectory(prefix="millpond-docs-") as folder, embedded.open_embedded(Path(folder)) as server:
        stale = asyncio.run(stale_pages(server.dsn))
    for page, text in stale.items():
        print(f"{'stale' if is_check else 'written'}: {page.relative_to(ROOT)}")
        if not is_check:
            page.write_text(text, "utf-8")
    sys.exit(1 if is_check and stale else 0)


async def stale_pages(dsn: str) -> dict[Path, str]:
    """The pages whose generated parts are out of date, with their new text."""
    await migrate(dsn)
    parts = {name: "\n".join(make()) for name, make in PARTS.items()}
    parts["schema"] = "\n".join(await schema(dsn))
    stale: dict[Path, str] = {}
    for page in sorted(page for folder in FOLDERS for page in folder.rglob("*.md")):
        text = page.read_text("utf-8")
        made = _PART.sub(lambda part: f"{part[1]}\n{parts[part[2]].strip()}\n\n{part[3]}", text)
        if made != text:
            stale[page] = made
    made = shapes()
    if not SHAPES.exists() or SHAPES.read_text("utf-8") != made:
        stale[SHAPES] = made
    return stale


# Lifecycles and events


def lifecycles() -> Iterator[str]:
    yield from _drawn(lifecycle.STANDARD)


def product_lifecycles() -> Iterator[str]:
    yield from _drawn(*LIFECYCLES)


def _drawn(*lifecycles: lifecycle.Lifecycle) -> Iterator[str]:
    for made in lifecycles:
        yield f"\n## {made.name}\n"
        yield f"```mermaid\n{made.mermaid().strip()}\n```\n"
        yield from table(
            ("state", "phase", "outcome", "can go to"),
            (
                (f"`{state.name}`", state.phase, state.outcome or "", _targets(made, state.name))
                for state in made.states.values()
            ),
        )


def _targets(made: lifecycle.Lifecycle, source: str) -> str:
    return ", ".join(f"`{target}`" for start, target in sorted(made.pairs) if start == source)


def lifecycle_events() -> Iterator[str]:
    yield from table(
        ("event", "phase afterwards"), ((f"`{name}`", phase) for name, phase in lifecycle.LIFECYCLE_EVENTS.items())
    )


# Errors


def error_codes() -> Iterator[str]:
    yield from table(
        ("code", "class", "HTTP status", "retryable", "meaning"),
        (
            (f"`{made.code}`", f"`{made.__name__}`", made.status, "yes" if made.retryable else "no", _first_line(made))
            for made in _tree(errors.MillpondError)
        ),
    )


def error_tree() -> Iterator[str]:
    drawn = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    yield f"```text\n{inspect.cleandoc(drawn)}\n```"


def exit_codes() -> Iterator[str]:
    yield from table(
        ("exit status", "meaning"),
        (
            (0, "success"),
            (1, "a check found a problem, or another error occurred"),
            (USAGE, "the command line is not valid"),
            *((code, f"`{kind.__name__}` or a subclass of it") for kind, code in EXIT_CODES if code < TIMED_OUT),
            (TIMED_OUT, "the timeout of a wait was reached; the job continues"),
            *((code, f"`{kind.__name__}` or a subclass of it") for kind, code in EXIT_CODES if code > TIMED_OUT),
            *((code, f"the outcome of the job is `{outcome}`") for outcome, code in OUTCOME_CODES.items() if code),
            (INTERRUPTED, "interrupted"),
        ),
    )


def _tree(made: type[errors.MillpondError]) -> Iterator[type[errors.MillpondError]]:
    yield made
    for child in made.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child)


# The HTTP API


def http_routes() -> Iterator[str]:
    document = openapi.document(ROUTES, {})
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        yield f"\n## {route.method} {route.path}\n"
        yield f"{operation['description']}\n"
        yield from _http_parameters(operation["parameters"])
        if route.body is not None:
            yield f"Body: `{route.body.__name__}`\n"
            yield from _fields_of(document["components"]["schemas"][route.body.__name__])
        yield from table(("status", "response or codes"), _http_answers(route))


def _http_parameters(parameters: list[dict[str, Any]]) -> Iterator[str]:
    if parameters:
        rows = (
            (f"`{given['name']}`", given["in"], _shape(given["schema"]), given["description"]) for given in parameters
        )
        yield from table(("parameter", "in", "type", "meaning"), rows)
        yield ""


def _fields_of(schema: dict[str, Any]) -> Iterator[str]:
    rows = (
        (f"`{name}`", _shape(below), "yes" if name in schema["required"] else "no", meaning(below))
        for name, below in schema["properties"].items()
    )
    yield from table(("field", "type", "required", "meaning"), rows)
    yield ""


def _shape(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "anyOf" in schema:
        return " or ".join(_shape(below) for below in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_shape(schema['items'])}"
    bounds = f" {schema['minimum']}–{schema['maximum']}" if {"minimum", "maximum"} <= schema.keys() else ""
    return f"{schema.get('type', 'any')}{bounds}"


def _http_answers(route: Any) -> Iterator[tuple[str, str]]:
    for status, shape in route.answers.items():
        yield (
            str(status),
            f"`{shape.__name__}`" if shape is not None else ", ".join(f"`{o.decode()}`" for o in route.offers),
        )
    by_status: dict[int, list[str]] = {}
    for kind in (*route.errors, *openapi.refusals(route)):
        codes = by_status.setdefault(kind.status, [])
        link = f"[`{kind.code}`](errors.md#{kind.code})"
        if link not in codes:
            codes.append(link)
    for status, codes in sorted(by_status.items()):
        yield str(status), ", ".join(codes)


def problem_pages() -> Iterator[str]:
    for kind in problems.all_errors():
        yield f"\n### {kind.code}\n"
        again = "; the same request may succeed later" if kind.retryable else ""
        yield f"{problems.title(kind)}. HTTP status {kind.status}{again}.\n"
        yield f"{ADVICE[kind.code]}\n"


# Settings and log events


def settings_table() -> Iterator[str]:
    yield from _settings(settings.Settings, dataclasses.fields(settings.Settings))


def product_settings() -> Iterator[str]:
    of_core = {field.name for field in dataclasses.fields(settings.Settings)}
    own = products_settings.ProductSettings
    yield from _settings(own, [field for field in dataclasses.fields(own) if field.name not in of_core])


GROUPS = (
    *("first steps", "production", "workers", "storage", "webhooks", "providers", "fleet", "fleet on EC2"),
    *("dashboard", "logs"),
)
"""The order of the groups on the settings page; the products' own follow in the order of their declaration."""


def _settings(made: type, fields: Iterable[dataclasses.Field[Any]]) -> Iterator[str]:
    """A table for each group, because groups are named for those who need the settings."""
    meanings = _field_docs(made)
    groups = {name: list[dataclasses.Field[Any]]() for name in GROUPS}
    for field in fields:
        groups.setdefault(field.metadata["group"], []).append(field)
    for name, members in groups.items():
        if members:
            yield f"\n## {name[0].upper()}{name[1:]}\n"
            yield from table(
                ("variable", "default", "meaning"),
                (
                    (f"`{settings.PREFIX}{field.name.upper()}`", _setting(field.default), meanings[field.name])
                    for field in members
                ),
            )


def _setting(default: Any) -> str:
    if default is None or default == "":
        return "none"
    if isinstance(default, bool):
        return f"`{default}`".lower()
    if isinstance(default, timedelta):
        return f"`{_length(default)}`"
    return f"`{default}`"


def _length(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % size == 0 and seconds >= size and (unit, seconds) != ("m", size):
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def log_events() -> Iterator[str]:
    yield from _events({name: event for name, event in logs.CATALOGUE.items() if name not in LOG_EVENTS})


def product_log_events() -> Iterator[str]:
    yield from _events(LOG_EVENTS)


def _events(events: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    yield from table(
        ("event", "level", "meaning"), ((f"`{name}`", level, meaning) for name, (level, meaning) in events.items())
    )


# The command line


def commands() -> Iterator[str]:
    for name in sorted(COMMANDS):
        yield from _command(load(name), f"millpond {name}")


def _command(command: Any, path: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, child in sorted(command.commands.items()):
            yield from _command(child, f"{path} {name}")
        return
    arguments = [p for p in command.params if not p.opts[0].startswith("-")]
    options = [p for p in command.params if p.opts[0].startswith("-") and not p.hidden]
    words = (_word(p) if p.required else f"[{_word(p)}]" for p in arguments)
    usage = " ".join([path, *words, *(["[OPTIONS]"] if options else [])])
    yield f"\n## {path}\n"
    yield f"```text\n{usage}\n```\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    if command.params:
        yield from table(
            ("argument or option", "default", "meaning"),
            ((_usage(p), _default(p), _one_line(p.help or "")) for p in (*arguments, *options)),
        )


def _word(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def _usage(parameter: Any) -> str:
    if not parameter.opts[0].startswith("-"):
        return f"`{_word(parameter)}`"
    names = [f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts)]
    return " / ".join(names) if parameter.is_flag else f"`{parameter.opts[0]} {_word(parameter)}`"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if getattr(parameter, "is_flag", False):
        chosen = parameter.opts[0] if parameter.default else next(iter(parameter.secondary_opts), None)
        return f"`{chosen}`" if chosen else "off"
    return "" if parameter.default is None else f"`{parameter.default}`"


# Python


def python_app() -> Iterator[str]:
    yield from _methods(app.Millpond, ("kind", "add", "kinds", "resource", "schedule", "add_schedule", "schedules"))


def python_kind() -> Iterator[str]:
    yield from _fields(kinds_module.Kind)


def python_product() -> Iterator[str]:
    yield from _fields(product.Product)


def python_job() -> Iterator[str]:
    hidden = {"cut", "doing", "saved", "seem_silent", "silent_for", "stop"}
    names = [name for name in _public(context.Job) if name not in hidden]
    yield from _methods(context.Job, names)


def python_engine() -> Iterator[str]:
    hidden = {"claim", "extend", "note", "finish", "give_back", "park", "abandon", "close_leases", "notify_requeued"}
    yield from _methods(engine.Engine, [name for name in _public(engine.Engine) if name not in hidden])


def python_submit() -> Iterator[str]:
    parameters = [p for p in inspect.signature(jobs.prepare).parameters.values() if p.name != "declared"]
    yield from table(
        ("option", "type", "default"),
        (
            (f"`{p.name}`", f"`{p.annotation}`", "required" if p.default is p.empty else f"`{p.default!r}`")
            for p in parameters
        ),
    )


def python_client() -> Iterator[str]:
    titles = {verbs.Verbs: "Jobs and credits", batches.BatchVerbs: "Batches", admin.Admin: "For operators"}
    for made, title in titles.items():
        yield f"\n### {title}\n"
        yield from _methods(made, [name for name in _public(made) if name != "pages"])
    yield "\n### Any request\n"
    yield from _methods(requests.Requests, ["request"])


def python_handle() -> Iterator[str]:
    yield from _methods(handles.Handle, [name for name in _public(handles.Handle) if name != "learn"])
    yield ""
    yield from _methods(handles.AsyncJobHandle, _public(handles.AsyncJobHandle))


def python_batch_handle() -> Iterator[str]:
    yield from _methods(handles.KnownBatch, [name for name in _public(handles.KnownBatch) if name != "learn"])
    yield ""
    yield from _methods(handles.AsyncBatchHandle, _public(handles.AsyncBatchHandle))


def python_client_errors() -> Iterator[str]:
    made = (
        found for found in vars(client_errors).values() if getattr(found, "__module__", "") == client_errors.__name__
    )
    yield from table(
        ("code", "class", "meaning"),
        ((f"`{found.code}`", f"`{found.__name__}`", _first_line(found)) for found in made if isinstance(found, type)),
    )


def python_worker() -> Iterator[str]:
    yield from _fields(worker.Worker)


def python_records() -> Iterator[str]:
    for made in (
        jobs.Submitted,
        jobs.JobRecord,
        jobs.CancelAnswer,
        events.Event,
        ledger.Balance,
        ledger.Entry,
        retry.Backoff,
    ):
        yield f"\n### {made.__name__}\n"
        if made.__doc__ and not made.__doc__.startswith(f"{made.__name__}("):
            yield f"{_sentence(made)}\n"
        names = list(getattr(made, "__struct_fields__", inspect.get_annotations(made)))
        names += [
            name for name in dir(made) if name[0] != "_" and isinstance(inspect.getattr_static(made, name), property)
        ]
        yield ", ".join(f"`{name}`" for name in names) + "\n"


def _public(made: type) -> list[str]:
    return [name for name in vars(made) if not name.startswith("_") and name not in inspect.get_annotations(made)]


def _methods(made: type, names: Any) -> Iterator[str]:
    yield from table(("name", "meaning"), ((_call(made, name), _method_doc(made, name)) for name in names))


def _call(made: type, name: str) -> str:
    found = inspect.getattr_static(made, name)
    if isinstance(found, property):
        return f"`{name}`"
    found = found.__func__ if isinstance(found, classmethod) else found
    parameters = list(inspect.signature(found).parameters.values())[1:]
    shown = [f"**{p.name}" if p.kind is p.VAR_KEYWORD else p.name for p in parameters]
    first_named = next((n for n, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY), None)
    if first_named is not None:
        shown.insert(first_named, "*")
    awaited = "await " if inspect.iscoroutinefunction(found) else ""
    return f"`{awaited}{name}({', '.join(shown)})`"


def _method_doc(made: type, name: str) -> str:
    found = inspect.getattr_static(made, name)
    if isinstance(found, property):
        found = found.fget
    text = inspect.getdoc(getattr(found, "__func__", found))
    return _one_line(text or NOUNS.get(name, ""))


NOUNS = {
    "account": "The account that pays for the job.",
    "add": "Add a kind that was created without the decorator.",
    "adjust": "Adjust the credits of an account up or down, with a reason; never below zero.",
    "balance": "The balances of an account; zero for an account that was never used.",
    "close": "Close all connections to the database.",
    "entries": "A page of an account's ledger entries, newest first.",
    "grant": "Grant credits to an account, and return the available credits. Each reference grants once.",
    "id": "The id of the job, as text.",
    "kind": "The name of the job's kind.",
    "kinds": "The kinds by name.",
    "list_jobs": "A page of an account's jobs, newest first, optionally of one kind, state or phase.",
    "pause": "Pause a queue: its jobs do not start, running jobs continue.",
    "read": "The current state of a job.",
    "resume": "Resume a paused queue.",
    "set_cap": "Set the limit of active jobs of an account; None removes the limit.",
    "state": "The state of the job when this attempt started.",
    "tenant": "The tenant of the job.",
}
"""For names that need no docstring in the code."""


def _fields(made: type) -> Iterator[str]:
    docs = _field_docs(made)
    yield from table(
        ("field", "default", "meaning"),
        (
            (f"`{field.name}`", _field_default(field), docs.get(field.name, FIELDS.get(field.name, "")))
            for field in dataclasses.fields(made)
            if field.init
        ),
    )


FIELDS = {
    "attempts_max": "How often the handler may fail before the job fails.",
    "backoff": "How long to wait after a failed attempt.",
    "app": "The app whose handlers it runs.",
    "expires_in": "How long after the submit (or `run_at`) a job expires.",
    "input_type": "The type of the input, derived from the handler's parameters.",
    "interruptions_max": "How often a worker may stop during a job before the job fails.",
    "kinds": "The kinds of the product.",
    "lapses_max": "How often the lease of a job may expire before the job fails.",
    "lifecycle": "The lifecycle: the states of jobs, and their transitions.",
    "name": "The name of the kind.",
    "price": "The credits to hold: a number, or a function of the input.",
    "priority": "A number from -100 to 100; higher runs first.",
    "queue": "The queue of the jobs; by default, one with the name of the kind.",
    "refusal_form": "The media type of that body.",
    "schema": "A JSON Schema of the input, instead of the handler's types.",
    "slots": "How many jobs the worker runs at once.",
    "source": "Where the worker takes its jobs from: `engine.source()`, or a `RemoteSource`.",
    "stages": "The stages, in order.",
    "summary": "A description in one sentence; by default, the docstring of the handler.",
}
"""For fields that need no explanation in the code."""


def _field_default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value: Any = field.default
        if isinstance(value, timedelta):
            return f"`{_length(value)}`"
        if isinstance(value, lifecycle.Lifecycle):
            return f"`{value.name}`"
        return f"`{getattr(value, '__name__', repr(value))}`"
    if field.default_factory is dataclasses.MISSING:
        return "required"
    value = field.default_factory()
    return "empty" if value == {} else f"`{type(value).__name__}()`"


# The schema and its functions

_TABLES = """
select c.oid, c.relname as name, obj_description(c.oid, 'pg_class') as comment,
    pg_get_partkeydef(c.oid) as partition_key
from pg_class c
where c.relnamespace = 'millpond'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
order by c.relname
"""
_COLUMNS = """
select a.attname as name, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull as is_required,
    coalesce(pg_get_expr(d.adbin, d.adrelid), case when a.attidentity <> '' then 'identity' end) as standard,
    col_description(a.attrelid, a.attnum) as comment
from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
_RULES = """
select pg_get_constraintdef(oid) as rule from pg_constraint
where conrelid = $1 and contype in ('c', 'p', 'u') and conparentid = 0
order by array_position(array['p', 'u', 'c']::"char"[], contype), conname
"""
_INDEXES = """
select replace(pg_get_indexdef(i.indexrelid), ' ON millpond.', ' on ') as made
from pg_index i join pg_class c on c.oid = i.indexrelid
where i.indrelid = $1 and not exists (select from pg_constraint k where k.conindid = i.indexrelid)
order by c.relname
"""


async def schema(dsn: str) -> list[str]:
    lines: list[str] = []
    connection = await connect(dsn)
    try:
        for found in await connection.fetch(_TABLES):
            database, _, comment = (found["comment"] or "").partition(". ")
            lines += [
                f"\n## {found['name']}\n",
                f"{comment}\n",
                f"Database: {database.removeprefix('database: ')}.\n",
            ]
            if found["partition_key"]:
                lines += [f"Partitioned by `{found['partition_key']}`.\n"]
            columns = await connection.fetch(_COLUMNS, found["oid"])
            lines += table(("column", "type", "null", "default", "meaning"), (_column(row) for row in columns))
            rules = [row["rule"] for row in await connection.fetch(_RULES, found["oid"])]
            rules += [
                row["made"].lower().replace("create ", "") for row in await connection.fetch(_INDEXES, found["oid"])
            ]
            lines += ["", *(f"- `{rule}`" for rule in rules if not rule.startswith("NOT NULL"))]
    finally:
        await connection.close()
    return lines


def _column(row: Any) -> tuple[str, ...]:
    standard = f"`{row['standard']}`" if row["standard"] else ""
    return f"`{row['name']}`", row["type"], "no" if row["is_required"] else "yes", standard, row["comment"] or ""


def functions() -> Iterator[str]:
    for package, noun in queries.SOURCES:
        comments = _comments(package, noun, "function")
        names = list(queries.functions(package, noun))
        if names:
            yield f"\n### {noun}.sql\n"
            rows = ((f"`millpond.{name}`", comments.get(name, "")) for name in names)
            yield from table(("function", "meaning"), rows)


def invariants() -> Iterator[str]:
    comments = _comments("millpond.engine", "verify", "name")
    yield from table(("invariant", "note"), ((f"`{name}`", comments.get(name, "")) for name in verify.SQL))


def _comments(package: str, noun: str, what: str) -> dict[str, str]:
    source = files(package).joinpath(f"{noun}.sql").read_text("utf-8")
    return {
        name: _one_line(text.replace("-- ", "")) for is_what, name, text in _HEADER.findall(source) if is_what == what
    }


# Products


def product_lines() -> Iterator[str]:
    """To the nearest hundred, so that the page need not be regenerated for a few changed lines."""
    core, products = Path(str(files("millpond"))), Path(str(files("millpond_products")))
    rows = [(f"`{made.name}`", _parts(products / made.name)) for made in LIFECYCLES]
    rows.append(("**all five**", sum((counts for _, counts in rows), Counter[str]())))
    heads = ("contract", "code", "queries", "tables", "page")
    yield from table(
        ("", *heads, "in all"),
        ((name, *(_about(counts[head]) for head in heads), _about(counts.total())) for name, counts in rows),
    )
    shared, below = ("rules", "pages", "github", "renderer", "llm"), ("engine", "services", "store", "worker", "api")
    yield f"\nThe packages that the products share ({', '.join(shared)}) have {_lines_below(products, shared)} lines."
    yield f"The packages of the core below them ({', '.join(below)}) have {_lines_below(core, below)}."


def _lines_below(root: Path, folders: Iterable[str]) -> str:
    return _about(sum((_parts(root / name) for name in folders), Counter[str]()).total())


def _parts(folder: Path) -> Counter[str]:
    """The number of lines of a package, by purpose."""
    counts = Counter[str]()
    for path in (path for path in folder.rglob("*") if path.suffix in (".py", ".sql", ".js", ".css", ".html")):
        counts[_part(path)] += len(path.read_text("utf-8").splitlines())
    return counts


def _part(path: Path) -> str:
    if path.parent.name in ("static", "migrations"):
        return {"static": "page", "migrations": "tables"}[path.parent.name]
    if path.suffix == ".sql":
        return "queries"
    return "contract" if path.stem in ("kinds", "parameters", "routes", "wire") else "code"


def _about(count: int) -> str:
    return "–" if not count else "under 100" if count < 50 else f"{round(count, -2):,}"


# Shapes for the dashboard


def shapes() -> str:
    """The JSON of the API as TypeScript types: the dashboard's reads are checked against what the API writes."""
    found = [made for _, made in inspect.getmembers(wire, inspect.isclass) if _is_shape(made)]
    _, components = msgspec.json.schema_components(found, ref_template="{name}")
    return _SHAPES_HEAD + "".join(
        "\n" + "\n".join(_ts_declared(name, each)) + "\n" for name, each in sorted(components.items())
    )


def _is_shape(made: type) -> bool:
    return (
        issubclass(made, msgspec.Struct) and made.__module__.startswith(wire.__name__) and bool(made.__struct_fields__)
    )


def _ts_declared(name: str, schema: dict[str, Any]) -> Iterator[str]:
    if "properties" not in schema:
        yield f"export type {name} = {_ts_type(schema)};"
        return
    if "description" in schema:
        yield from _ts_comment(schema["description"], "")
    required = set(schema.get("required", ()))
    yield f"export interface {name} {{"
    for field, each in schema["properties"].items():
        if "description" in each:
            yield from _ts_comment(each["description"], "  ")
        yield f"  {_ts_name(field)}{'' if field in required else '?'}: {_ts_type(each)};"
    yield "}"


def _ts_type(schema: dict[str, Any]) -> str:
    given: Any = schema.get("type")
    if "$ref" in schema:
        return schema["$ref"]
    if "anyOf" in schema or isinstance(given, list):
        choices: Any = schema.get("anyOf") or [schema | {"type": each} for each in given]
        return " | ".join(dict.fromkeys(map(_ts_type, choices)))
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    if given == "array":
        inner = _ts_type(schema["items"]) if schema.get("items") else "unknown"
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if given == "object":
        more = schema.get("additionalProperties")
        return f"Record<string, {_ts_type(more) if isinstance(more, dict) else 'unknown'}>"
    return _PLAIN_TYPES.get(given or "", "unknown")


def _ts_name(field: str) -> str:
    return field if re.fullmatch(r"[A-Za-z_]\w*", field) else json.dumps(field)


def _ts_comment(text: str, indent: str) -> Iterator[str]:
    yield f"{indent}/** {' '.join(text.split()).replace('*/', '* /')} */"


def table(head: tuple[str, ...], rows: Any) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


def _field_docs(made: type) -> dict[str, str]:
    """The docstrings under the fields of a class."""
    body = ast.parse(inspect.cleandoc(inspect.getsource(made))).body[0].body  # pyright: ignore[reportAttributeAccessIssue]
    return {
        ast.unparse(field.target): _one_line(str(doc.value.value))
        for field, doc in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
    }


def _sentence(made: type) -> str:
    return _one_line(inspect.getdoc(made) or "")


def _first_line(made: type) -> str:
    return (inspect.getdoc(made) or "").splitlines()[0]


def _one_line(text: str) -> str:
    text = text.partition("\n\n")[0]
    text = re.sub(r":\w+:`~?(?:millpond\.)?([\w.]+)`", r"`\1`", text)
    return " ".join(text.replace("``", "`").split())


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "lifecycles": lifecycles,
    "lifecycle_events": lifecycle_events,
    "errors": error_codes,
    "error_tree": error_tree,
    "exit_codes": exit_codes,
    "http_routes": http_routes,
    "problems": problem_pages,
    "product_lifecycles": product_lifecycles,
    "settings": settings_table,
    "product_settings": product_settings,
    "log_events": log_events,
    "product_log_events": product_log_events,
    "commands": commands,
    "python_app": python_app,
    "python_kind": python_kind,
    "python_product": python_product,
    "python_job": python_job,
    "python_engine": python_engine,
    "python_submit": python_submit,
    "python_client": python_client,
    "python_handle": python_handle,
    "python_batch_handle": python_batch_handle,
    "python_client_errors": python_client_errors,
    "python_worker": python_worker,
    "python_records": python_records,
    "functions": functions,
    "invariants": invariants,
    "product_lines": product_lines,
}

if __name__ == "__main__":
    main()
