"""``millpond run``: submit a job and follow it until it ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, single
from millpond.cli.options import Account, Tenant, optional, tags
from millpond.cli.output import UsageError, report

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = single()

Given = Annotated[
    list[str] | None,
    optional(
        "--input", "-i", metavar="K=V|@FILE|-", text="The input: k=v, @file.json, or - for standard input. Repeatable."
    ),
]
Timeout = Annotated[
    str | None,
    optional("--timeout", text="Stop waiting after this time, for example 90s. The job continues.", default="never"),
]


def status(followed: Any) -> int:
    from millpond.cli.follow import status as of

    return of(followed)


@command(app, "run", status=status)
async def run(
    api: ApiConnection,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind of job.")],
    given: Given = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the progress while waiting. This is the default.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait without showing the progress.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Submit the job and exit.")] = False,
    timeout: Timeout = None,
    tenant: Tenant = None,
    account: Account = None,
    priority: Annotated[
        int | None,
        optional("--priority", text="The priority, from -100 to 100. Higher starts first.", default="of the kind"),
    ] = None,
    run_at: Annotated[
        str | None,
        optional("--run-at", text="Start no earlier, for example 2030-01-31T12:00:00Z.", default="immediately"),
    ] = None,
    expires_in: Annotated[
        str | None,
        optional("--expires-in", text="Expire the job after this time, for example 15m.", default="of the kind"),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="KEY=VALUE", help="A tag, by which jobs are found. Repeatable.", show_default=False
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None, optional("--idempotency-key", text="Submit only once with this key.", default="a new key")
    ] = None,
) -> Any:
    """Submit a job, follow it, and print its output.

    The exit status depends on the outcome of the job.
    """
    from millpond.cli import follow

    if watch + wait + detach > 1:
        raise UsageError("--watch, --wait and --detach exclude each other.", hint="Use one of them.")
    seconds = patience(timeout)
    owner = api.owner(tenant, account)
    options = {"priority": priority, "run_at": run_at, "expires_in": expires_in, "tags": tags(tag)}
    body = _submission(kind, given, account=owner["account"], **options)
    accepted: wire.Accepted = await _submit(api, body, owner["tenant"], idempotency_key)
    if detach:
        return accepted
    report(f"{accepted.id} {accepted.state}")
    if wait or api.as_json:
        job = await follow.wait(api, accepted.id, seconds)
    else:
        with follow.bar(kind) as on_item:
            job = await follow.watch(api, accepted.id, seconds, on_item)
    return follow.conclude(job)


async def _submit(
    api: ApiConnection, body: dict[str, Any], tenant: str | None, idempotency_key: str | None
) -> wire.Accepted:
    import uuid

    from millpond import wire

    key = idempotency_key or f"cli-{uuid.uuid4().hex}"  # one run creates one job, even if the request is repeated
    return await api.send("POST", "/jobs", wire.Accepted, body, tenant=tenant, idempotency_key=key)


def _submission(kind: str, given: list[str] | None, **options: Any) -> dict[str, Any]:
    body = {"kind": kind, "input": read_input(given or [])}
    return body | {name: value for name, value in options.items() if value is not None}


def patience(timeout: str | None) -> float | None:
    if timeout is None:
        return None
    from millpond import values

    return values.duration_or_seconds(timeout, field="timeout").total_seconds()


def read_input(given: list[str]) -> dict[str, Any]:
    """The input from all of its parts; a later part overrides an earlier one."""
    made: dict[str, Any] = {}
    for word in given:
        made |= _read_word(word)
    return made


def _read_word(word: str) -> dict[str, Any]:
    if word == "-":
        return _object(sys.stdin.buffer.read(), "standard input")
    if word.startswith("@"):
        return _object(_file(Path(word[1:])), word[1:])
    name, sign, text = word.partition("=")
    if not sign or not name:
        raise UsageError(f"{word[:80]!r} is not K=V, @FILE or -.", field="--input")
    return {name: read_value(text)}


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", field="--input") from error


def _object(content: bytes, name: str) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} is not a JSON object: {error}.", field="--input") from error


def read_value(text: str) -> Any:
    """The value as JSON if it is valid JSON, otherwise as text."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
