"""OpenAPI documents held against the server that they describe: schemathesis tries to find where they do not fit."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from tests.children import spawned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CONFIG = """
max-stream-events = 1

[generation]
allow-x00 = false

[phases.coverage] # one is as good as another where the path leads nowhere with it
unexpected-methods = ["TRACE"]

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "302", "304", "401", "402", "403", "404", "409", "429"]
"""
HOOKS = """
from datetime import datetime

import schemathesis
from hypothesis import strategies as st

# What no schema can tell: a job can be put off to the year 9000, not to any year; two keys must agree; a client's key
# is for an account; a whole number in an input is written as one (30, not 30.0); how large a file may be is a setting;
# which URLs may be called is one too; which states there are depends on the kinds; what a bulk operation must say
# depends on its action, and what ends begins before that; a batch has jobs, and not more than its total; a schedule is
# due in the future, of one kind; and nobody here has the patience to wait a minute.
times = st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1))
schemathesis.openapi.format("date-time", times.map(lambda moment: moment.isoformat() + "Z"))
schemathesis.openapi.format("uri", st.just("http://127.0.0.1:9/hooks"))
schemathesis.openapi.format("cron", st.just("0 3 * * *"))
schemathesis.openapi.format("time-zone", st.just("Europe/Berlin"))


@schemathesis.hook
def filter_case(context, case):
    body = case.body if isinstance(case.body, dict) else {}
    if case.path == "/v1/keys" and case.method == "POST":
        return bool(body.get("tenant") and body.get("account"))
    if case.path in ("/v1/artifacts", "/v1/worker/upload") and isinstance(body.get("size"), (int, float)):
        return body["size"] <= 5 * 1024**3
    if case.path in ("/v1/jobs", "/v1/board/jobs") and case.method == "GET":
        asked = case.query or {}
        if {"since", "until"} <= asked.keys() or asked.get("state") not in (None, "queued", "running"):
            return False
    if case.path.startswith("/v1/bulk") and body and case.meta.generation.mode.is_positive:
        return is_meant(body, is_order=case.path == "/v1/bulk")
    if case.path == "/v1/batches" and case.method == "POST" and case.meta.generation.mode.is_positive:
        if not (jobs_of(body) or body.get("total")) or len(jobs_of(body)) > (body.get("total") or 1_000):
            return False
    if any(is_pointed(job.get("input")) for job in (body, *jobs_of(body)) if isinstance(job, dict)):
        return False
    return "Idempotency-Key" not in (case.headers or {}) or "idempotency_key" not in body


def is_meant(body, is_order):
    wanted = {name: value for name, value in (body.get("filter") or {}).items() if value is not None}
    action = body.get("action")
    own = {"priority": "priority", "format": "export"}
    strays = [name for name, of in own.items() if body.get(name) is not None and action != of]
    needs = {"priority": "priority", "refund": "reason"}.get(action, "action")
    is_whole = body.get(needs) is not None and bool(wanted or body.get("all")) and action != "verify"
    is_documented = not {"kind", "state"} & wanted.keys() and not {"since", "until"} <= wanted.keys()
    return is_documented and (not is_order or is_whole and not strays)


def jobs_of(body):
    return body["jobs"] if isinstance(body.get("jobs"), list) else []


def is_pointed(given):
    members = given.values() if isinstance(given, dict) else ()
    return any(isinstance(value, float) and value.is_integer() for value in members)


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.path.endswith("/stream"):  # where no event comes, it goes on for as long as its job does
        kwargs["timeout"] = 2
    try:
        if 0 < float((case.query or {})["wait"]) <= 60:
            case.query["wait"] = 0.1
    except (KeyError, TypeError, ValueError):
        pass
    if isinstance(case.body, dict) and isinstance(case.body.get("wait"), (int, float)):
        case.body["wait"] = min(case.body["wait"], 0.1)
    if case.path.startswith("/v1/batches") and isinstance(case.body, dict) and case.meta.generation.mode.is_positive:
        case.body = case.body | {"jobs": [job | {"kind": "nap", "input": {}} for job in jobs_of(case.body) or [{}]]}
    if case.path.startswith("/v1/schedules") and isinstance(case.body, dict) and case.meta.generation.mode.is_positive:
        case.body = scheduled(case.body)


def scheduled(body):
    times = [name for name in ("cron", "every", "at") if body.get(name) is not None]
    meant = {name: value for name, value in body.items() if name not in times[1:]}
    valid = {"cron": "@daily", "every": "1h", "at": "2099-01-01T00:00:00Z", "kind": "nap", "input": {}}
    meant |= {name: value for name, value in valid.items() if meant.get(name) is not None}
    for name in ("jitter", "due_field", "tags", *(() if times[:1] == ["cron"] else ("zone",))):
        meant.pop(name, None)
    return meant | ({"since": "2h", "until": "1h"} if "since" in meant else {})
"""


async def examined(
    url: str,
    folder: Path,
    key: str,
    *more: str,
    examples: int,
    keys: Mapping[str, Mapping[str, str]] | None = None,
    hooks: str = HOOKS,
    config: str = CONFIG,
) -> tuple[int | None, str]:
    """What was found, and all that was said. ``keys`` are the headers of other callers, by what paths begin with."""
    (folder / "hooks.py").write_text(hooks)
    (folder / "schemathesis.toml").write_text(config + "".join(_operations(keys or {})))
    command = ["-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", "all", "--mode", "all"]
    command += ["--max-examples", str(examples), "--seed", "1", "--no-color", "--generation-database", "none"]
    command += ["--header", f"Authorization: Bearer {key}", "--request-timeout", "60", "--continue-on-failure", *more]
    async with spawned(
        sys.executable,
        *command,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    ) as process:
        output, _ = await process.communicate()
    return process.returncode, output.decode()


def _operations(keys: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for start, headers in keys.items():
        described = ", ".join(f"{name} = {json.dumps(value)}" for name, value in headers.items())
        yield f'\n[[operations]]\ninclude-path-regex = "^{start}"\nheaders = {{ {described} }}\n'
