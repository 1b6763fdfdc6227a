"""``millpond jobs bulk``: something done to all jobs that have something in common, in the background."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millpond.cli.command import command, group
from millpond.cli.errands import status
from millpond.cli.options import Account, Tenant, Yes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from millpond.cli.reach import Api

app = group("Do something to all jobs that have something in common.")

FILTERS: Final[dict[str, Any]] = {
    "kind": Annotated[
        str | None, typer.Option(help="Only this kind; image.* for all that begin so.", show_default=False)
    ],
    "state": Annotated[str | None, typer.Option(help="Only in this state.", show_default=False)],
    "phase": Annotated[str | None, typer.Option(help="Only in this phase.", show_default=False)],
    "outcome": Annotated[str | None, typer.Option(help="Only with this outcome.", show_default=False)],
    "error": Annotated[str | None, typer.Option(help="Only those that failed with this code.", show_default=False)],
    "fingerprint": Annotated[str | None, typer.Option(help="Only those that failed like this.", show_default=False)],
    "stage": Annotated[str | None, typer.Option(help="Only in this stage.", show_default=False)],
    "since": Annotated[str | None, typer.Option(help="Only those born since: 24h, or a time.", show_default=False)],
    "until": Annotated[str | None, typer.Option(help="Only those born before: 1h, or a time.", show_default=False)],
    "tenant": Tenant,
    "account": Account,
}
"""What jobs may have in common."""
_FLAGS: Final[dict[str, Any]] = {
    "all": Annotated[bool, typer.Option("--all", help="Every job is meant, where nothing says which.")],
    "dry_run": Annotated[bool, typer.Option("--dry-run", help="Only tell which jobs it would be about.")],
    "watch": Annotated[bool, typer.Option("--watch", help="Follow it until it is over; the exit status tells how.")],
    "yes": Yes,
}
_JOBS: Final[Any] = Annotated[
    list[str] | None, typer.Option("--job", metavar="JOB", help="This job; may be given often.", show_default=False)
]
_WHY: Final[Any] = Annotated[str | None, typer.Option("--reason", help="Why; it is audited.", show_default=False)]


def _declare(action: str, told: str, **own: Any) -> None:
    """The command of an action: what all have, and what it has of its own."""
    options = {**FILTERS, "job": _JOBS, **own, "reason": _WHY, **_FLAGS}

    async def run(api: Api, **given: Any) -> AsyncGenerator[Any]:
        async for seen in _order(api, action, given, list(own)):
            yield seen

    run.__doc__ = told
    run.__annotations__ = options
    keyword = inspect.Parameter.KEYWORD_ONLY
    run.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [
            inspect.Parameter("api", inspect.Parameter.POSITIONAL_ONLY),
            *(
                inspect.Parameter(name, keyword, default=False if name in _FLAGS else None, annotation=hint)
                for name, hint in options.items()
            ),
        ]
    )
    command(app, action, status=status)(run)


_declare("retry", "Run ended jobs once more.")
_declare("cancel", "Cancel jobs: at once where they have not started, else at their next checkpoint.")
_declare("refund", "Give back what ended jobs have cost. It needs a reason, and a key of scope admin.")
_declare(
    "priority",
    "Give jobs that wait for their turn another priority.",
    priority=Annotated[int | None, typer.Option(help="The highest goes first.", min=-100, max=100, show_default=False)],
)
_declare(
    "export",
    "Write jobs to a file, which is kept for seven days.",
    format=Annotated[str | None, typer.Option(help="ndjson (whole jobs), or csv.", show_default=False)],
)


async def _order(api: Api, action: str, given: dict[str, Any], own: list[str]) -> AsyncGenerator[Any]:
    """See which jobs are meant, ask, order it, and follow it where that is wanted."""
    import uuid

    from millpond import wire
    from millpond.cli.errands import follow
    from millpond.cli.output import confirm, say

    wanted = {name: given[name] for name in FILTERS if given[name] is not None}
    if given["job"]:
        wanted["ids"] = given["job"]
    seen: wire.ErrandPreview = await api.send("POST", "/errands/preview", wire.ErrandPreview, {"filter": wanted})
    if given["dry_run"]:
        yield seen
        return
    about = f"{seen.matched:,}{' or more' if seen.is_capped or seen.searched_to else ''} jobs"
    if action != "export":
        confirm(f"{action.capitalize()} {about}?", yes=given["yes"])
    body = {"action": action, "filter": wanted, "all": given["all"], "reason": given["reason"]}
    body |= {name: given[name] for name in own}
    order = {name: value for name, value in body.items() if value is not None}
    key = f"cli-{uuid.uuid4().hex}"  # one command is one errand, however often it must be sent
    errand: wire.Errand = await api.send("POST", "/errands", wire.Errand, order, idempotency_key=key)
    if not given["watch"]:
        yield errand
        return
    say(f"{errand.id}: {about}")
    async for last in follow(api, errand):
        yield last
