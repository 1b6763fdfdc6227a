"""``millpond autoscale``: scale EC2 Auto Scaling Groups to the load of routes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, single
from millpond.cli.options import optional

if TYPE_CHECKING:
    from millpond.cli.reach import ApiConnection
    from millpond.integrations.aws.autoscaler import Autoscaler, ScalingDecision, ScalingTarget

app = single()

_DURATIONS = ("target_wait", "cooldown")


class Report(str):
    """A decision as a line of text."""

    __slots__ = ("failed",)


def status(last: Any) -> int:
    """The exit code: 1 if an action of the last check failed."""
    return 1 if last is not None and last.failed else 0


@command(app, "autoscale", status=status)
async def autoscale(
    api: ApiConnection,
    route: Annotated[list[str] | None, optional("--route", text="A route to scale. Repeatable.")] = None,
    group: Annotated[
        list[str] | None,
        optional("--group", text="The Auto Scaling Group of each route, in the same order. Repeatable."),
    ] = None,
    file: Annotated[
        Path | None,
        optional("--file", text="A TOML file with routes, groups and limits, instead of --route and --group."),
    ] = None,
    low: Annotated[
        int | None,
        optional("--min", text="The minimum number of workers of a route.", default="of the group", metavar="N", min=0),
    ] = None,
    high: Annotated[
        int | None,
        optional("--max", text="The maximum number of workers of a route.", default="of the group", metavar="N", min=0),
    ] = None,
    jobs_per_worker: Annotated[
        int, typer.Option("--jobs-per-worker", help="The number of jobs that a worker runs at the same time.", min=1)
    ] = 1,
    target_wait: Annotated[
        str, typer.Option("--target-wait", help="The longest time that a job should wait for a worker. 0s means none.")
    ] = "60s",
    cooldown: Annotated[
        str, typer.Option("--cooldown", help="How long fewer workers must suffice before workers are removed.")
    ] = "5m",
    interval: Annotated[str, typer.Option("--interval", help="The time between two checks.")] = "30s",
    region: Annotated[str | None, optional("--region", text="The AWS region.", env="AWS_REGION")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Check once, then exit.")] = False,
) -> AsyncIterator[Any]:
    """Scale the Auto Scaling Group of each route to the load of its queue, until stopped.

    Instances are added immediately. Idle workers are removed once fewer have sufficed for the whole cooldown: a worker
    is drained first, and its instance is terminated when it holds no job. Protected instances are kept. Requires an
    admin key.
    """
    from millpond.cli.processes import configure_logs, stop_on_signals
    from millpond.integrations.aws.autoscaler import Autoscaler
    from millpond.integrations.aws.groups import Groups
    from millpond.settings import Settings

    given = {"jobs_per_worker": jobs_per_worker, "target_wait": target_wait, "cooldown": cooldown}
    targets = _targets(route or [], group or [], file, {"min": low, "max": high, **given})
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
                    yield decision if api.as_json else _report(decision)
            if once:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
    finally:
        await groups.close()


async def _look(scaler: Autoscaler, *, is_last: bool) -> ScalingDecision | None:
    """Check once; an error is only logged if another check follows."""
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


def _report(decision: ScalingDecision) -> Report:
    acts = [f"set capacity {decision.capacity}"] if decision.capacity is not None else []
    for verb in ("resume", "drain", "shrink", "replace"):
        acts += [f"{verb} {name}" for name in getattr(decision, verb)]
    seen = f"{decision.ready} ready, {decision.leased} leased: {decision.desired} desired of {decision.current}"
    done = "would " if decision.is_dry_run and acts else ""
    failed = f" (failed: {', '.join(decision.failed)})" if decision.failed else ""
    report = Report(f"{decision.route} in {decision.group}: {seen}; {done}{', '.join(acts) or 'nothing to do'}{failed}")
    report.failed = decision.failed
    return report


# What to scale


def _targets(routes: list[str], groups: list[str], file: Path | None, shared: dict[str, Any]) -> list[ScalingTarget]:
    from millpond.cli.output import UsageError

    if (file is None) == (not routes and not groups):
        raise UsageError("Routes and their groups are missing.", hint="Use --route and --group, or --file.")
    if len(routes) != len(groups):
        raise UsageError(f"There are {len(routes)} routes but {len(groups)} groups.", hint="Give each route one group.")
    named = [{"route": route, "group": group} for route, group in zip(routes, groups, strict=True)]
    targets = [_target(shared | each) for each in (named if file is None else _read(file))]
    if len({each.group for each in targets}) < len(targets):
        raise UsageError("Two routes have the same group.", hint="Give each route its own group.")
    return targets


def _target(fields: dict[str, Any]) -> ScalingTarget:
    import msgspec

    from millpond.cli.output import UsageError
    from millpond.integrations.aws.autoscaler import ScalingTarget

    unknown = fields.keys() - set(ScalingTarget.__struct_fields__)
    if unknown:
        raise UsageError(f"Unknown fields of a route: {', '.join(sorted(unknown))}.")
    try:
        read = {name: _seconds(value, name) if name in _DURATIONS else value for name, value in fields.items()}
        return msgspec.convert(read, ScalingTarget)
    except msgspec.ValidationError as error:
        raise UsageError(f"The route {fields.get('route')!r}: {error}.") from error


def _read(file: Path) -> list[dict[str, Any]]:
    import tomllib

    from millpond.cli.output import UsageError

    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}.") from error
    routes = content.pop("routes", None)
    if not routes or content:
        raise UsageError(f"{file} must contain [[routes]] tables and nothing else.")
    return routes


def _seconds(given: Any, name: str) -> float:
    """A duration in seconds, which may be zero for some options."""
    from millpond import values

    if name in _DURATIONS and str(given) in ("0", "0s"):
        return 0.0
    return values.duration(given, field=name).total_seconds()
