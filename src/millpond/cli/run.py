"""``millpond run``: submit a job and follow it to its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, single
from millpond.cli.options import Account, Tenant
from millpond.cli.output import UsageError, say

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = single()

Given = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="K=V|@FILE|-", help="The input: k=v, @file.json, or - for standard input."),
]


def status(followed: Any) -> int:
    from millpond.cli.follow import status as of

    return of(followed)


@command(app, "run", status=status)
async def run(
    api: Api,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What kind of job.")],
    given: Given = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show how it goes on; this is the default.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait in silence.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait.")] = False,
    timeout: Annotated[str | None, typer.Option(help="Wait no longer than this, e.g. 90s.", show_default=False)] = None,
    tenant: Tenant = None,
    account: Account = None,
    priority: Annotated[
        int | None, typer.Option(help="From -100 to 100; the highest goes first.", show_default=False)
    ] = None,
    run_at: Annotated[
        str | None, typer.Option(help="Not before this time, e.g. 2030-01-31T12:00:00Z.", show_default=False)
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option(help="Give up after this time, e.g. 15m.", show_default=False)
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key submits once, however often it is sent.", show_default=False)
    ] = None,
) -> Any:
    """Submit a job, watch it, print its output. The exit status tells how it ended."""
    from millpond.cli import follow

    if watch + wait + detach > 1:
        raise UsageError("--watch, --wait and --detach exclude each other.", hint="Give one.")
    seconds = patience(timeout)
    owner = api.owner(tenant, account)
    body = _submission(kind, given, account=owner["account"], priority=priority, run_at=run_at, expires_in=expires_in)
    accepted: wire.Accepted = await _submit(api, body, owner["tenant"], idempotency_key)
    if detach:
        return accepted
    say(f"{accepted.id} {accepted.state}")
    if wait or api.as_json:
        job = await follow.wait(api, accepted.id, seconds)
    else:
        with follow.bar(kind) as tell:
            job = await follow.watch(api, accepted.id, seconds, tell)
    return follow.conclude(job)


async def _submit(api: Api, body: dict[str, Any], tenant: str | None, idempotency_key: str | None) -> wire.Accepted:
    import uuid

    from millpond import wire

    key = idempotency_key or f"cli-{uuid.uuid4().hex}"  # one run is one job, however often it must be sent
    return await api.send("POST", "/jobs", wire.Accepted, body, tenant=tenant, idempotency_key=key)


def _submission(kind: str, given: list[str] | None, **options: Any) -> dict[str, Any]:
    body = {"kind": kind, "input": read_input(given or [])}
    return body | {name: value for name, value in options.items() if value is not None}


def patience(timeout: str | None) -> float | None:
    if timeout is None:
        return None
    from millpond import values

    length = float(timeout) if timeout.replace(".", "", 1).isdigit() else timeout
    return values.duration(length, field="timeout").total_seconds()


def read_input(given: list[str]) -> dict[str, Any]:
    """The input that the words make together; a later one goes before an earlier one."""
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
    """A value that reads as JSON is JSON; all others are text."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
