"""What the actions that come with Millpond take."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

COMMAND_SECONDS_MAX: Final = 3_600
REQUEST_SECONDS_MAX: Final = 300
RUN_SECONDS_MAX: Final = 86_400

Argument = Annotated[str, Meta(max_length=32_768)]
Status = Annotated[int, Meta(ge=100, le=599)]
# A `$` alone lets a line feed pass at the very end; this says the same to Python and to JavaScript.
# An owner or a repository that begins with a dot would be a step in the path of a URL, and none of GitHub's does.
_REPOSITORY: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}$(?!\n)"
_WORKFLOW: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_. -]{0,199}$(?!\n)"


class Input(Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """What an action takes: a field that it does not know is an error."""


class RunCommand(Input):
    """A command of the operator's list, with arguments of one's own."""

    command: Annotated[str, Meta(min_length=1, max_length=100, description="Its name on the operator's list.")]
    arguments: Annotated[
        list[Argument], Meta(max_length=256, description="Put behind the operator's own, each as it is: no shell.")
    ] = []
    stdin: Annotated[str, Meta(description="What it reads.")] | None = None
    timeout_seconds: Annotated[
        float, Meta(ge=0.1, le=COMMAND_SECONDS_MAX, description="After that it is ended, and has failed.")
    ] = 600


class HttpRequest(Input):
    """One HTTP request to a URL that the world can reach."""

    url: Annotated[str, Meta(max_length=2_048, extra_json_schema={"format": "uri"})]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: Annotated[dict[str, str], Meta(max_length=100)] = {}
    body: Annotated[str, Meta(description="Sent as UTF-8.")] | None = None
    json: Annotated[Any, Meta(description="Sent as JSON, in the place of a body.")] | UnsetType = UNSET
    timeout_seconds: Annotated[
        float, Meta(ge=0.1, le=REQUEST_SECONDS_MAX, description="For all of it, from the name to the last byte.")
    ] = 30
    expect_status: Annotated[
        list[Status] | Status | None, Meta(description="The statuses that are well; without them, all below 400.")
    ] = None


class TriggerGithubWorkflow(Input):
    """A workflow of GitHub Actions to be dispatched and followed to the end of its run."""

    repository: Annotated[str, Meta(pattern=_REPOSITORY, examples=["octo-org/hello-world"])]
    workflow: Annotated[str, Meta(pattern=_WORKFLOW, description="Its file (ci.yml) or number.")]
    ref: Annotated[str, Meta(min_length=1, max_length=255, description="Without one: the default branch.")] | None = (
        None
    )
    inputs: Annotated[dict[str, str], Meta(max_length=25)] = {}
    run_name_input: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=100,
                description="An input of the workflow that its `run-name` shows: it is given the job's id, so that the"
                " run is found for sure on servers that do not tell which it is.",
            ),
        ]
        | None
    ) = None
    timeout_seconds: Annotated[
        float, Meta(ge=1, le=RUN_SECONDS_MAX, description="After that the run is cancelled, and the job has failed.")
    ] = 21_600
