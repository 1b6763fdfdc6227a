"""The options that commands share: one name, one help text, wherever they are accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from millpond.lifecycle import Outcome, Phase


def described(text: str, *, env: str | None = None, default: str | None = None) -> str:
    """A help text with the environment variable and the default of an option, which typer does not know."""
    facts = [f"env var: {env}"] if env else []
    facts += [f"default: {default}"] if default else []
    return f"{text}  [{'; '.join(facts)}]" if facts else text


def optional(*names: str, text: str, env: str | None = None, default: str | None = None, **more: Any) -> Any:
    """An option that may be omitted."""
    return typer.Option(*names, help=described(text, env=env, default=default), show_default=False, **more)


EvenIfSucceeded = Annotated[bool, typer.Option("--even-if-succeeded", help="Retry also what succeeded.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DatabaseUrl = Annotated[
    str | None,
    optional("--database-url", text="The PostgreSQL database to use, version 15 or later.", env="DATABASE_URL"),
]
DataDir = Annotated[
    Path | None,
    optional(
        "--data-dir",
        text="The data directory of the embedded PostgreSQL.",
        env="MILLPOND_DATA_DIR",
        default=".millpond",
    ),
]
Url = Annotated[str | None, optional("--url", text="The URL of the server.", env="MILLPOND_URL")]
Key = Annotated[str | None, optional("--key", text="The API key to send to the server.", env="MILLPOND_API_KEY")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

# Filters of lists.

Tenant = Annotated[str | None, optional("--tenant", text="The tenant. A client key implies its own.")]
Account = Annotated[str | None, optional("--account", text="The account. A client key implies its own.")]
Kind = Annotated[
    str | None, optional("--kind", text="Only jobs of this kind. image.* matches every kind that starts with image.")
]
State = Annotated[str | None, optional("--state", text="Only jobs in this state.")]
JobPhase = Annotated[Phase | None, optional("--phase", text="Only jobs in this phase.")]
JobOutcome = Annotated[Outcome | None, optional("--outcome", text="Only jobs that ended with this outcome.")]
ErrorCode = Annotated[str | None, optional("--error", text="Only jobs that failed with this error code.")]
Fingerprint = Annotated[str | None, optional("--fingerprint", text="Only jobs whose error has this fingerprint.")]
Stage = Annotated[str | None, optional("--stage", text="Only jobs in this stage.")]
Tagged = Annotated[
    list[str] | None,
    typer.Option(
        "--tag", metavar="KEY=VALUE", help="Only jobs with this tag. Repeatable; all must match.", show_default=False
    ),
]
Since = Annotated[
    str | None, optional("--since", text="Only jobs created since: an ISO 8601 time, or 24h for the last 24 hours.")
]
Until = Annotated[
    str | None, optional("--until", text="Only jobs created before: an ISO 8601 time, or 1h for one hour ago.")
]
Cursor = Annotated[str | None, optional("--cursor", text="Continue after the previous page: its next_cursor.")]
Limit = Annotated[int, typer.Option("--limit", help="The maximum number of results.", min=1, max=200)]

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The ID of the job: job_…", show_default=False)]
ArtifactId = Annotated[
    str, typer.Argument(metavar="ARTIFACT", help="The ID of the artifact: art_…", show_default=False)
]

# Options of long-running processes.

Host = Annotated[
    str | None, optional("--host", text="The address to listen on.", env="MILLPOND_HOST", default="127.0.0.1")
]
Port = Annotated[
    int | None,
    optional(
        "--port",
        text="The port to listen on. 0 chooses a free port.",
        env="MILLPOND_PORT",
        default="8686",
        min=0,
        max=65_535,
    ),
]
Slots = Annotated[
    int | None,
    optional(
        "--slots",
        text="The number of jobs to run at the same time.",
        env="MILLPOND_SLOTS",
        default="10",
        min=1,
        max=10_000,
    ),
]
Grace = Annotated[
    str | None,
    optional(
        "--grace",
        text="How long running jobs may take to finish when the worker stops.",
        env="MILLPOND_GRACE",
        default="30s",
    ),
]
ReadyFile = Annotated[
    Path | None, optional("--ready-file", text="Write a line of JSON to this file when the server is ready.")
]
Products = Annotated[
    list[str] | None,
    optional(
        "--product",
        text="Also serve this installed product, under /NAME. Repeatable; all enables every product.",
        env="MILLPOND_PRODUCTS",
        metavar="NAME",
    ),
]
AtRoot = Annotated[bool, typer.Option("--at-root", help="Serve the only product at / instead of under its name.")]
App = Annotated[
    str | None,
    typer.Argument(
        help=described("The file (app.py) or module (shop.jobs) that defines a Millpond().", env="MILLPOND_APP"),
        show_default=False,
    ),
]


def tags(given: list[str] | None) -> dict[str, str] | None:
    """The tags given as K=V."""
    from millpond import values

    return values.read_tags(given, separator="=", field="--tag") if given else None


def tag_filter(given: list[str] | None) -> list[str] | None:
    """The given tags in the form of the API's filter."""
    return [f"{key}:{value}" for key, value in (tags(given) or {}).items()] or None
