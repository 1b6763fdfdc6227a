"""The inputs of the built-in actions."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

COMMAND_SECONDS_MAX: Final = 3_600
REQUEST_SECONDS_MAX: Final = 300
RUN_SECONDS_MAX: Final = 86_400

Argument = Annotated[str, Meta(max_length=32_768)]
Status = Annotated[int, Meta(ge=100, le=599)]
# In Python, `$` also matches before a final line feed; with `(?!\n)` it means the same in Python and JavaScript.
# `.` and `..` are refused, because they would change the path of the URL; `.github` is the name of many repositories.
_REPOSITORY: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}/(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}$(?!\n)"
_WORKFLOW: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_. -]{0,199}$(?!\n)"


class Input(Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The input of an action. An unknown field is an error."""


class RunCommand(Input):
    """An allowed command with additional arguments."""

    command: Annotated[str, Meta(min_length=1, max_length=100, description="The name of an allowed command.")]
    arguments: Annotated[
        list[Argument], Meta(max_length=256, description="Appended to the configured arguments; no shell is used.")
    ] = []
    stdin: Annotated[str, Meta(description="The standard input.")] | None = None
    timeout_seconds: Annotated[
        float,
        Meta(
            ge=0.1,
            le=COMMAND_SECONDS_MAX,
            description="The time limit. The command is stopped and the job fails when it is exceeded.",
        ),
    ] = 600


class HttpRequest(Input):
    """One HTTP request to a public URL."""

    url: Annotated[str, Meta(max_length=2_048, extra_json_schema={"format": "uri"})]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: Annotated[dict[str, str], Meta(max_length=100)] = {}
    body: Annotated[str, Meta(description="Sent as UTF-8.")] | None = None
    json: Annotated[Any, Meta(description="Sent as JSON instead of body.")] | UnsetType = UNSET
    timeout_seconds: Annotated[
        float,
        Meta(
            ge=0.1,
            le=REQUEST_SECONDS_MAX,
            description="The time limit of the whole request, including name resolution.",
        ),
    ] = 30
    expect_status: Annotated[
        list[Status] | Status | None, Meta(description="The expected statuses; by default, all below 400.")
    ] = None


class TriggerGithubWorkflow(Input):
    """A GitHub Actions workflow to dispatch and to follow to the end of its run."""

    repository: Annotated[str, Meta(pattern=_REPOSITORY, examples=["octo-org/hello-world"])]
    workflow: Annotated[str, Meta(pattern=_WORKFLOW, description="The file name (ci.yml) or number of the workflow.")]
    ref: Annotated[str, Meta(min_length=1, max_length=255, description="Defaults to the default branch.")] | None = None
    inputs: Annotated[dict[str, str], Meta(max_length=25)] = {}
    run_name_input: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=100,
                description="An input of the workflow that its `run-name` contains. It receives the "
                "job's id, which identifies the run on servers that do not return its id.",
            ),
        ]
        | None
    ) = None
    timeout_seconds: Annotated[
        float,
        Meta(
            ge=1,
            le=RUN_SECONDS_MAX,
            description="The time limit. The run is cancelled and the job fails when it is exceeded.",
        ),
    ] = 21_600
