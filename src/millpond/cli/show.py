"""The format of results: JSON for programs, tables and lines for people."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from millpond import wire
from millpond.cli.follow import EndedText, FailedJob, Outcome, harmless
from millpond.cli.forward import Forwarded
from millpond.cli.output import print_json, report, verdict_line
from millpond.cli.tree import TreeLine

COLUMNS: Final[dict[type, tuple[str, ...]]] = {
    wire.Job: ("id", "kind", "state", "stage", "progress", "price", "account", "created_at"),
    wire.JobSummary: ("id", "kind", "state", "stage", "progress", "error_code", "worker", "account", "created_at"),
    wire.BulkOperation: ("id", "action", "state", "done", "refused", "estimate", "actor", "created_at", "finished_at"),
    wire.Artifact: ("id", "name", "content_type", "size", "job_id", "created_at"),
    wire.KindInfo: ("name", "price", "queue", "summary"),
    wire.QueueInfo: ("queue", "verdict", "ready", "leased", "waiting", "parked", "workers", "reason"),
    wire.WorkerInfo: ("id", "worker", "status", "jobs", "slots", "routes", "address", "heard_at", "expires_at"),
    wire.RouteInfo: ("route", "ready", "leased", "oldest_wait_seconds", "workers", "slots", "paused_at"),
    wire.Scaling: ("route", "desired_workers", "ready", "leased", "oldest_wait_seconds", "workers", "expected_seconds"),
    wire.TenantInfo: ("tenant", "created_at"),
    wire.Wallet: ("tenant", "account", "available", "held", "active", "active_max"),
    wire.Entry: ("seq", "at", "type", "available", "held", "available_after", "held_after", "job_id", "reason"),
    wire.KeyInfo: ("id", "hint", "scope", "tenant", "account", "name", "expires_at", "revoked_at", "last_used_at"),
    wire.EndpointInfo: ("id", "url", "events", "kinds", "description", "failing_since", "disabled_at"),
    wire.Delivery: ("id", "event", "state", "tries", "job_id", "endpoint_id", "created_at", "due_at"),
    wire.DeliveryTry: ("number", "at", "seconds", "status", "error"),
    wire.SearchResult: ("type", "id", "tenant", "title", "by"),
    wire.Batch: (
        "id",
        "name",
        "state",
        "progress",
        "total",
        "succeeded",
        "failed",
        "canceled",
        "captured",
        "created_at",
    ),
    wire.ScheduleInfo: ("id", "name", "kind", "cron", "every_seconds", "zone", "state", "due_at", "tenant", "account"),
    wire.Fire: ("due_at", "outcome", "times", "cause", "reason", "job_id", "job_state", "at"),
    wire.Hold: ("job_id", "tenant", "account", "kind", "state", "price", "held_at"),
    wire.Question: ("name", "question", "who", "asked_at", "due_at", "answered_by", "answer"),
    wire.RunningQuery: ("pid", "seconds", "state", "query"),
    wire.TableInfo: ("table", "bytes", "rows", "dead", "vacuumed_at"),
    wire.Violation: ("invariant", "subject", "job_id", "detail"),
}
"""The columns of a list by type; JSON has all fields."""


class Document:
    """A value that is printed as JSON even without ``--json``."""

    def __init__(self, content: Any) -> None:
        self.content = content


def show(value: Any, *, as_json: bool) -> Any:
    """Print a result on standard output, and return it."""
    if value is None:
        return None
    if as_json:
        print_json(_bare(value))
    else:
        _show_to_people(value)
    return value


def _bare(value: Any) -> Any:
    match value:
        case Document(content=content):
            return content
        case Outcome(job=job) | EndedText(job=job):
            return job
        case FailedJob(job=job, traceback=traceback):
            return msgspec.structs.asdict(job) | {"traceback": traceback}
        case _:
            return value


def _show_to_people(value: Any) -> None:
    view = next((view for shape, view in _VIEWS.items() if isinstance(value, shape)), _show_thing)
    view(value)
    sys.stdout.flush()


def _show_text(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def _show_outcome(outcome: Outcome) -> None:
    if outcome.job.output is not None:
        _print_document(outcome.job.output)


def _show_failed_job(failed: FailedJob) -> None:
    _show_fields(msgspec.structs.asdict(failed.job))
    _show_text(f"\n{failed.traceback}")


def _show_event(event: wire.Event) -> None:
    data = "" if event.data in (None, {}) else _cell(event.data)
    _show_text(f"{_cell(event.at)}  {event.seq:>4}  {event.type:<12} {event.state:<12} {data}".rstrip())


def _show_chunk(chunk: wire.Chunk) -> None:
    sys.stdout.write(harmless(chunk.text) if sys.stdout.isatty() else chunk.text)


def _show_line(line: wire.LogLine) -> None:
    _show_text(f"{_cell(line.at)}  {line.level or 'info':<7} {line.text}")


def _show_children(children: wire.Children) -> None:
    """The children as a table, then their counts and the budget."""
    counts, budget = children.counts, children.budget
    _show_page(children.data, children.next_cursor)
    if counts.submitted:
        ends = ("succeeded", "failed", "canceled")
        ended = ", ".join(f"{getattr(counts, end):,} {end}" for end in ends if getattr(counts, end))
        _show_text(f"{counts.ended:,} of {counts.submitted:,} have ended" + (f": {ended}" if ended else ""))
    if budget is not None:
        left = budget.amount - budget.spent - budget.reserved
        _show_text(
            f"Of {budget.amount:,} credits, {budget.spent:,} are spent, {budget.reserved:,} reserved, {left:,} left"
        )


def _show_tree_line(line: TreeLine) -> None:
    cost = line.captured if line.captured is not None else line.price
    wait = f" (waits for {_WAITS[line.waits_for]})" if line.waits_for in _WAITS else ""
    _show_text(f"{'  ' * line.depth}{line.id}  {line.kind}  {line.state}{wait}" + (f"  {cost} credits" if cost else ""))


_WAITS: Final = {"children": "children", "time": "a time", "question": "an answer"}


def _show_delivery(delivery: wire.DeliveryLog) -> None:
    """The delivery field by field, and its tries as a table; JSON has their headers too."""
    _show_fields({name: value for name, value in msgspec.structs.asdict(delivery).items() if name != "log"})
    if delivery.log:
        _show_text("")
        _show_page(delivery.log, None)


def _show_schedule(schedule: wire.ScheduleDetail) -> None:
    """The schedule field by field, its next due times, and its last fires as a table."""
    apart = {"upcoming", "fires", "last_fire"}
    _show_fields({name: value for name, value in msgspec.structs.asdict(schedule).items() if name not in apart})
    _show_text("")
    _show_upcoming(schedule)
    if schedule.fires:
        _show_text("")
        _show_page(schedule.fires, None)


def _show_upcoming(seen: wire.ScheduleDetail | wire.SchedulePreview) -> None:
    for due_at in seen.upcoming:
        _show_text(f"due {_cell(due_at)}")


def _show_forwarded(sent: Forwarded) -> None:
    outcome = sent.error if sent.status is None else sent.status
    _show_text(
        f"{_cell(sent.at)}  {sent.event or '–':<16} {sent.job_id or '–':<30} {outcome}  {sent.seconds * 1000:.0f} ms"
    )


def _show_preview(seen: wire.BulkOperationPreview) -> None:
    more = " or more" if seen.is_capped or seen.searched_to else ""
    _show_page(seen.sample, None)
    _show_text(f"{seen.matched:,}{more} jobs")


def _show_verification(found: wire.Verification) -> None:
    for violation in found.violations:
        job = f" {violation.job_id}" if violation.job_id else ""
        _show_text(f"{violation.invariant}: {violation.subject}{job}: {violation.detail}")
    _show_text("verify: ok" if found.ok else f"verify: {len(found.violations)} violations")


def _show_system(seen: wire.System) -> None:
    """The most important fields and the checks; JSON has the rest."""
    process = {name: getattr(seen, name) for name in ("version", "python", "host", "pid", "started_at")}
    _show_fields(process | {f"database {name}": value for name, value in msgspec.structs.asdict(seen.database).items()})
    _show_text("")
    for check in seen.checks:
        _show_text(verdict_line(check.check, check.detail, is_well=check.verdict == "ok"))
    for items in (seen.tables, seen.running):
        if items:
            _show_text("")
            _show_page(items, None)


def _show_thing(thing: Any) -> None:
    """A page as a table, a single thing field by field."""
    if hasattr(thing, "data"):
        _show_page(thing.data, getattr(thing, "next_cursor", None))
    else:
        _show_fields(msgspec.structs.asdict(thing))


def _print_document(content: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(content, enc_hook=str).decode(), indent=2) + "\n")


def _show_page(items: list[Any], cursor: str | None) -> None:
    if not items:
        report("No results.")
        return
    names = COLUMNS[type(items[0])]
    _print_table([[_cell(getattr(item, name), name) for name in names] for item in items], names)
    if cursor:
        report(f"More results: --cursor {cursor}")


def _show_fields(fields: dict[str, Any]) -> None:
    _print_table(
        [[name, _cell(value, name)] for name, value in fields.items() if value is not None and name != "links"]
    )


_VIEWS: Final[dict[type, Callable[[Any], None]]] = {
    str: _show_text,
    Document: lambda document: _print_document(document.content),
    Outcome: _show_outcome,
    FailedJob: _show_failed_job,
    wire.Event: _show_event,
    wire.Chunk: _show_chunk,
    EndedText: lambda _: None,
    wire.LogLine: _show_line,
    wire.Children: _show_children,
    TreeLine: _show_tree_line,
    wire.DeliveryLog: _show_delivery,
    Forwarded: _show_forwarded,
    wire.ScheduleDetail: _show_schedule,
    wire.SchedulePreview: _show_upcoming,
    wire.BulkOperationPreview: _show_preview,
    wire.Verification: _show_verification,
    wire.System: _show_system,
    dict: _show_fields,
}


def _print_table(rows: list[list[str]], head: tuple[str, ...] = ()) -> None:
    if sys.stdout.isatty():
        _print_rich_table(rows, head)
        return
    lines = [list(head), *rows] if head else rows
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        _show_text("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_rich_table(rows: list[list[str]], head: tuple[str, ...]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=bool(head), header_style="bold")
    for name in head or rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def _cell(value: Any, name: str = "") -> str:
    match value:
        case None:
            return "–"
        case str():
            return value
        case datetime():
            return value.astimezone().isoformat(" ", "seconds")
        case float() if name == "progress":
            return f"{value:.0%}"
        case _:
            return msgspec.json.encode(value, enc_hook=str).decode()
