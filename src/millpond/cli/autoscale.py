"""``millpond autoscale``: give each route as many EC2 instances as it needs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, single

if TYPE_CHECKING:
    from millpond.aws.autoscaler import Autoscaler, Decision, Target
    from millpond.cli.reach import Api

app = single()

_DURATIONS = ("target_wait", "cooldown")


class Line(str):
    """A decision for people."""

    __slots__ = ("failed",)


def status(last: Any) -> int:
    """The exit code: 1 if something could not be done in the last look."""
    return 1 if last is not None and last.failed else 0


@command(app, "autoscale", status=status)
async def autoscale(
    api: Api,
    route: Annotated[
        list[str] | None, typer.Option("--route", help="A route to scale; once for each.", show_default=False)
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", help="The Auto Scaling Group of each route, in their order.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Routes, groups and limits as TOML instead.", show_default=False)
    ] = None,
    least: Annotated[
        int | None, typer.Option("--min", help="The least workers of a route.  [default: the group's]", min=0)
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", help="The most workers of a route.  [default: the group's]", min=0)
    ] = None,
    jobs_per_worker: Annotated[
        int, typer.Option("--jobs-per-worker", help="How many jobs a worker runs at once.", min=1)
    ] = 1,
    target_wait: Annotated[
        str, typer.Option("--target-wait", help="How long a job may wait for its start; 0s: not at all.")
    ] = "60s",
    cooldown: Annotated[
        str, typer.Option("--cooldown", help="How long fewer workers must have been enough before some go.")
    ] = "5m",
    interval: Annotated[str, typer.Option("--interval", help="How often to look.")] = "30s",
    region: Annotated[
        str | None, typer.Option("--region", help="The AWS region. [env: AWS_REGION]", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
) -> AsyncIterator[Any]:
    """Size the Auto Scaling Group of each route by what its queue needs, until told to stop.

    More instances are asked for at once. Idle workers go when fewer were enough for the whole cool-down: each is
    drained first, and its instance ends when it holds nothing. Protected instances stay. Needs an admin key.
    """
    from millpond.aws.autoscaler import Autoscaler
    from millpond.aws.groups import Groups
    from millpond.cli.processes import configure_logs, stop_on_signals
    from millpond.settings import Settings

    given = {"jobs_per_worker": jobs_per_worker, "target_wait": target_wait, "cooldown": cooldown}
    targets = _targets(route or [], group or [], file, {"min": least, "max": most, **given})
    pause = _seconds(interval, "interval")
    configure_logs(Settings.from_env())
    stop = stop_on_signals()
    groups = Groups(region=region)
    scalers = [Autoscaler(api.client, groups, target, is_dry_run=dry_run) for target in targets]
    try:
        while not stop.is_set():
            for scaler in scalers:
                decision = await _look(scaler, is_last=once)
                if decision is not None:
                    yield decision if api.as_json else _line(decision)
            if once:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
    finally:
        await groups.close()


async def _look(scaler: Autoscaler, *, is_last: bool) -> Decision | None:
    """One look; where there will be another, AWS or the API may be out of reach."""
    from millpond import logs
    from millpond.errors import MillpondError

    try:
        return await scaler.look()
    except MillpondError as error:
        if is_last:
            raise
        target = scaler.target
        logs.emit("autoscale.failed", route=target.route, group=target.group, act="look", error=str(error))
        return None


def _line(decision: Decision) -> Line:
    acts = [f"set capacity {decision.capacity}"] if decision.capacity is not None else []
    for verb in ("resume", "drain", "shrink", "replace"):
        acts += [f"{verb} {name}" for name in getattr(decision, verb)]
    seen = f"{decision.ready} ready, {decision.leased} leased: {decision.desired} desired of {decision.current}"
    done = "would " if decision.is_dry_run and acts else ""
    failed = f" (failed: {', '.join(decision.failed)})" if decision.failed else ""
    line = Line(f"{decision.route} in {decision.group}: {seen}; {done}{', '.join(acts) or 'nothing to do'}{failed}")
    line.failed = decision.failed
    return line


# What to scale


def _targets(routes: list[str], groups: list[str], file: Path | None, shared: dict[str, Any]) -> list[Target]:
    from millpond.cli.output import UsageError

    if (file is None) == (not routes and not groups):
        raise UsageError("Name routes with their groups, or a file of them.", hint="--route R --group G, or --file F.")
    if len(routes) != len(groups):
        raise UsageError(f"There are {len(routes)} routes and {len(groups)} groups; each route has one.")
    named = [{"route": route, "group": group} for route, group in zip(routes, groups, strict=True)]
    targets = [_target(shared | each) for each in (named if file is None else _read(file))]
    if len({each.group for each in targets}) < len(targets):
        raise UsageError("Two routes name the same group.", hint="Give each route a group of its own.")
    return targets


def _target(told: dict[str, Any]) -> Target:
    import msgspec

    from millpond.aws.autoscaler import Target
    from millpond.cli.output import UsageError

    unknown = told.keys() - set(Target.__struct_fields__)
    if unknown:
        raise UsageError(f"A route has no {', '.join(sorted(unknown))}.")
    try:
        read = {name: _seconds(value, name) if name in _DURATIONS else value for name, value in told.items()}
        return msgspec.convert(read, Target)
    except msgspec.ValidationError as error:
        raise UsageError(f"The route {told.get('route')!r}: {error}.") from error


def _read(file: Path) -> list[dict[str, Any]]:
    import tomllib

    from millpond.cli.output import UsageError

    try:
        told = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}.") from error
    routes = told.pop("routes", None)
    if not routes or told:
        raise UsageError(f"{file} must hold [[routes]], and nothing else.")
    return routes


def _seconds(told: Any, name: str) -> float:
    """A length of time; where it makes sense, none at all."""
    from millpond import values

    if name in _DURATIONS and str(told) in ("0", "0s"):
        return 0.0
    return values.duration(told, field=name).total_seconds()
