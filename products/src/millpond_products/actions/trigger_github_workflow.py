"""trigger-github-workflow: dispatches a workflow, finds its run, and follows the run to its end.

A workflow is never dispatched twice. The job's memo records the dispatch before it is sent, and the run once it is
known: a worker that takes over follows that run, or looks for it. Newer GitHub servers return the run of a dispatch.
With older ones, the run is found by the name that the workflow gives it, or else as the only new run. If that is
ambiguous, or if it is unknown whether GitHub accepted the dispatch, the job fails, and its error says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from millpond.errors import (
    CanceledError,
    InputError,
    InterruptedJobError,
    LeaseLostError,
    MillpondError,
    PermanentError,
    TransientError,
)
from millpond.retry import Backoff
from millpond_products.actions import once
from millpond_products.allowed import Repositories
from millpond_products.github import GitHub

if TYPE_CHECKING:
    from millpond.kinds import Handler
    from millpond.product import Engine
    from millpond_products.actions.inputs import TriggerGithubWorkflow
    from millpond_products.settings import ProductSettings

FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = timedelta(seconds=15)
"""The pause between two polls of a run grows, because a token is limited to a few thousand requests per hour."""
FIND_LOOKS: Final = 12
"""How often to look for a run that GitHub did not return."""
FAILURES_MAX: Final = 8
"""The number of consecutive failed calls after which the job fails, while nothing has been dispatched."""
ABSENT_MAX: Final = 6
"""The number of consecutive 404s for a run after which the job fails. GitHub also returns them for new runs."""
CANCEL_SECONDS: Final = 10.0
"""The time limit of the request that cancels a run."""
LAST_SECONDS: Final = 2.0
"""The time limit of that request once the job is interrupted: less than a worker waits for an interrupted job."""
_CANCELING: Final = set[asyncio.Task[None]]()
_ABSENT: Final = "404"
_NOT_ACCEPTED: Final = frozenset({"403", "429", "dns", "connect", "tls"})
"""Failures of a dispatch that GitHub cannot have accepted: it may be sent again."""
_DETAILS: Final = "return_run_details"
_UNCONFIGURED: Final = "No GitHub token is configured."
_UNCONFIGURED_HINT: Final = (
    "An operator can set MILLPOND_GITHUB_TOKEN to a token that may run workflows of the repository."
)
_NOT_ALLOWED: Final = "Workflows of this repository are not allowed."
_NOT_ALLOWED_HINT: Final = (
    "An operator can add it to MILLPOND_REPOSITORIES, as owner/name, or owner/* for all repositories of an owner."
)


class _Repository(msgspec.Struct):
    default_branch: str


class _Dispatched(msgspec.Struct):
    workflow_run_id: int | None = None
    html_url: str = ""


class _Run(msgspec.Struct):
    id: int
    status: str
    conclusion: str | None = None
    html_url: str = ""
    display_title: str = ""


class _Runs(msgspec.Struct):
    workflow_runs: list[_Run]


class _Job(msgspec.Struct):
    id: int
    name: str
    status: str
    conclusion: str | None = None


class _Jobs(msgspec.Struct):
    jobs: list[_Job]


Shape = TypeVar("Shape", _Repository, _Run, _Runs, _Jobs)


class Memo(msgspec.Struct):
    """What a job stores about its dispatch, for a worker that takes over."""

    ref: str
    last: int
    """The newest run of the workflow before the dispatch."""
    is_taken: bool = False
    """Whether GitHub has confirmed the dispatch."""
    run: int | None = None
    url: str = ""
    """The page of the run."""
    is_sure: bool = False
    """Whether it is certain that the run belongs to the job."""


async def check(engine: Engine, settings: ProductSettings, given: TriggerGithubWorkflow) -> None:  # noqa: ARG001 - the signature of all checks
    """Refuse an input that could only fail."""
    if not settings.github_token:
        raise InputError(_UNCONFIGURED, field="action", hint=_UNCONFIGURED_HINT)
    if not Repositories.read(settings.repositories).has(given.repository):
        raise InputError(_NOT_ALLOWED, field="input.repository", hint=_NOT_ALLOWED_HINT)
    _check(given)


def _check(given: TriggerGithubWorkflow) -> None:
    if given.run_name_input is not None and given.run_name_input in given.inputs:
        raise InputError("The input is reserved for the job's id.", field=f"input.inputs.{given.run_name_input}")


def handler(engine: Engine, settings: ProductSettings, *, pause: float = FIRST_PAUSE) -> Handler:
    github = GitHub(engine.outbound, settings.github_url, settings.github_token or None)
    repositories = Repositories.read(settings.repositories)

    async def trigger(job: Any, given: TriggerGithubWorkflow) -> dict[str, Any]:
        if not github.has_token:
            raise PermanentError(_UNCONFIGURED, hint=_UNCONFIGURED_HINT)
        if not repositories.has(given.repository):
            raise PermanentError(_NOT_ALLOWED, hint=_NOT_ALLOWED_HINT)
        _check(given)
        return await Triggering(job, given, github, pause).run()

    return trigger


class Triggering:
    """One job: its dispatch and its run."""

    def __init__(self, job: Any, given: TriggerGithubWorkflow, github: GitHub, pause: float) -> None:
        self._job = job
        self._given = given
        self._github = github
        self._backoff = Backoff(first=timedelta(seconds=pause), factor=1.5, longest=LONGEST_PAUSE)
        self._repository = f"/repos/{given.repository}"
        self._workflow = f"{self._repository}/actions/workflows/{quote(given.workflow, safe='')}"
        self._memo: Memo | None = None
        """What is known about the dispatch; None until it is about to be sent."""
        self._seen: dict[int, str] = {}
        """The last known status of each job of the run."""

    async def run(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._given.timeout_seconds):
                memo = await self._dispatched()
                return await self._follow(memo if memo.run is not None else await self._found(memo))
        except CanceledError:
            await self._cancel()
            raise
        except asyncio.CancelledError:
            if self._is_given_up():
                await self._cancel()
            raise
        except TimeoutError:
            result = "and its cancellation was requested" if await self._cancel() else "and was not cancelled"
            raise self._with_run(
                PermanentError(f"The run did not end within {self._given.timeout_seconds:g} s, {result}.")
            ) from None
        except PermanentError as error:
            raise self._with_run(error) from None

    def _with_run(self, error: PermanentError) -> PermanentError:
        """Add the run to the details of an error, if it is known."""
        if self._memo is not None and self._memo.run is not None:
            error.details |= {"runId": self._memo.run, "url": self._memo.url, "isSure": self._memo.is_sure}
        return error

    def _is_given_up(self) -> bool:
        """Whether the job itself is ending. If only its worker stops or loses the lease, the next one takes over."""
        try:
            self._job.checkpoint()
        except (InterruptedJobError, LeaseLostError):
            return False
        except MillpondError:
            return True
        return False

    # Dispatching

    async def _dispatched(self) -> Memo:
        """The memo of the dispatch. The dispatch is sent unless an earlier worker has sent it."""
        if self._job.memo is not None:
            self._memo = msgspec.convert(self._job.memo, Memo)
            return self._memo
        ref = self._given.ref or (await self._ask(_Repository, self._repository)).default_branch
        newest = await self._runs(ref, 1)
        memo = await self._stored(Memo(ref, last=max((run.id for run in newest), default=0)))
        answer = await self._send(memo)
        if answer is None:
            return memo
        run = answer.workflow_run_id
        known = {"run": run, "url": answer.html_url, "is_sure": True} if run is not None else {}
        return await self._stored(msgspec.structs.replace(memo, is_taken=True, **known))

    async def _send(self, memo: Memo) -> _Dispatched | None:
        """Dispatch the workflow and return GitHub's answer; None if it is unknown whether GitHub accepted the dispatch.

        Only a dispatch that GitHub cannot have accepted is sent again.
        """
        body: dict[str, Any] = {"ref": memo.ref, "inputs": self._inputs(), _DETAILS: True}
        await self._job.log(f"Dispatching {self._given.workflow} of {self._given.repository} at {memo.ref}.")
        for failures in range(1, FAILURES_MAX + 1):
            try:
                answer = await self._github.call("POST", f"{self._workflow}/dispatches", body)
                return msgspec.convert(answer or {}, _Dispatched)
            except PermanentError as error:
                if _DETAILS not in error.message or _DETAILS not in body:
                    raise
                del body[_DETAILS]  # an older server does not know it
            except TransientError as error:
                if error.details["platformCode"] not in _NOT_ACCEPTED:
                    await self._job.log(f"{error.message} The workflow may have been dispatched; looking for its run.")
                    return None
                if failures == FAILURES_MAX:
                    raise PermanentError(error.message, **error.details) from None
                await self._pause(failures, error)
        return None

    def _inputs(self) -> dict[str, str]:
        marked = self._given.run_name_input
        return self._given.inputs if marked is None else {**self._given.inputs, marked: self._job.id}

    # Finding the run

    async def _found(self, memo: Memo) -> Memo:
        """Find the run of a dispatch if GitHub did not return it: by its name, or as the only new run."""
        by_name = self._given.run_name_input is not None
        before: set[int] = set()
        for look in range(1, FIND_LOOKS + 1):
            runs = [run for run in await self._runs(memo.ref, 100) if run.id > memo.last]
            found = {run.id: run.html_url for run in runs if not by_name or self._job.id in run.display_title}
            if len(found) == 1 and (by_name or set(found) == before):  # seen twice: other runs had time to appear
                return await self._chosen(memo, *found.popitem(), is_sure=by_name)
            if len(found) > 1:
                raise PermanentError(
                    f"The workflow was dispatched, but {len(found)} new runs exist, and the run of this "
                    "job cannot be identified.",
                    hint="Set runNameInput to an input that the workflow's run-name contains.",
                    runs=sorted(found),
                )
            before = set(found)
            await self._pause(look)
        raise PermanentError(
            "The workflow was or may have been dispatched, but no run has appeared. It is not dispatched again.",
            hint="Check the runs of the workflow, and retry the job if that is safe.",
        )

    async def _chosen(self, memo: Memo, run: int, url: str, *, is_sure: bool) -> Memo:
        """Accept the only candidate. If the dispatch is unconfirmed, the candidate may belong to another dispatch."""
        if not is_sure and not memo.is_taken:
            raise PermanentError(
                "The workflow was or may have been dispatched. One new run exists, but it may not belong "
                "to this job. The workflow is not dispatched again.",
                hint="Check that run, and retry the job if the run does not belong to it. Set runNameInput to "
                "make the run identifiable.",
                runs=[run],
            )
        if not is_sure:
            message = (
                f"Run {run} is followed as the only new one. It may not be this job's, so it will not be cancelled."
            )
            await self._job.log(message, level="warning")
        return await self._stored(msgspec.structs.replace(memo, run=run, url=url, is_sure=is_sure))

    async def _runs(self, ref: str, limit: int) -> list[_Run]:
        query = {"event": "workflow_dispatch", "branch": ref, "per_page": str(limit)}
        return (await self._ask(_Runs, f"{self._workflow}/runs", query)).workflow_runs

    # Following the run

    async def _follow(self, memo: Memo) -> dict[str, Any]:
        path = f"{self._repository}/actions/runs/{memo.run}"
        status = ""
        looks = 0
        while True:
            looks += 1
            run = await self._ask(_Run, path)
            self._memo = memo = msgspec.structs.replace(memo, url=run.html_url)
            if run.status != status:
                status = run.status
                await self._job.log(f"Run {run.id} is {_status(run)}" + (f": {run.html_url}" if looks == 1 else "."))
            jobs = await self._jobs(path)
            if status == "completed":
                return self._result(memo, run, jobs)
            await self._pause(looks)

    async def _jobs(self, path: str) -> list[_Job]:
        """The jobs of a run. Each change of a job's status is logged."""
        jobs = (await self._ask(_Jobs, f"{path}/jobs", {"per_page": "100"})).jobs
        for job in jobs:
            if self._seen.get(job.id) != _status(job):
                self._seen[job.id] = _status(job)
                await self._job.log(f"Job {job.name} is {_status(job)}.")
        return jobs

    def _result(self, memo: Memo, run: _Run, jobs: list[_Job]) -> dict[str, Any]:
        summary: dict[str, Any] = {
            "runId": run.id,
            "url": run.html_url,
            "conclusion": run.conclusion,
            "isSure": memo.is_sure,
        }
        if run.conclusion != "success":
            raise PermanentError(f"The run ended as {run.conclusion}.", **summary)
        return {**summary, "ref": memo.ref, "jobs": [{"name": job.name, "conclusion": job.conclusion} for job in jobs]}

    async def _cancel(self) -> bool:
        """Request the cancellation of the run if it certainly belongs to the job; return whether it was requested.

        A failure of the request is ignored. If the job is interrupted meanwhile, the request continues for a moment.
        """
        if self._memo is None or self._memo.run is None or not self._memo.is_sure:
            return False
        request = asyncio.create_task(self._request_cancel(self._memo.run))
        _CANCELING.add(request)
        request.add_done_callback(_CANCELING.discard)
        try:
            await asyncio.wait([request])
        except asyncio.CancelledError:
            await asyncio.wait([request], timeout=LAST_SECONDS)
            raise
        return True

    async def _request_cancel(self, run: int) -> None:
        with contextlib.suppress(PermanentError, TransientError, TimeoutError):  # GitHub refuses it for an ended run
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._github.call("POST", f"{self._repository}/actions/runs/{run}/cancel")

    # Common

    async def _stored(self, memo: Memo) -> Memo:
        answer = {"run": memo.run, "isTaken": memo.is_taken, "epoch": self._job.epoch}
        await self._job.proceed(answer, msgspec.to_builtins(memo))
        self._memo = memo
        return memo

    async def _ask(self, shape: type[Shape], path: str, query: dict[str, str] | None = None) -> Shape:
        """Send a GET request, and repeat it after transient failures and after the pauses that GitHub requests.

        A dispatched run continues even if it cannot be read, so from then on only the job's time limits the repetition.
        """
        failures = absences = 0
        while True:
            try:
                answer = await once.watched(self._job, self._github.call("GET", path, query=query or {}))
                return msgspec.convert(answer, shape)
            except msgspec.ValidationError as error:
                raise PermanentError(f"The response of GitHub is invalid: {error}.") from None
            except PermanentError as error:
                absences += 1
                if self._memo is None or error.details["platformCode"] != _ABSENT or absences == ABSENT_MAX:
                    raise
                await self._pause(absences)
            except TransientError as error:
                failures += 1
                if self._memo is None and failures == FAILURES_MAX:
                    raise PermanentError(error.message, **error.details) from None
                if failures == 1 and error.retry_after is None:
                    await self._job.log(f"{error.message} Trying again.", level="warning")
                await self._pause(failures, error)

    async def _pause(self, nth: int, error: TransientError | None = None) -> None:
        seconds = self._backoff.delay(nth, random.random()).total_seconds()  # noqa: S311 - jitter
        if error is not None and error.retry_after is not None:
            seconds = max(seconds, error.retry_after.total_seconds())
            await self._job.log(f"GitHub requested a pause of {seconds:.0f} s: {error.message}", level="warning")
        await once.watched(self._job, asyncio.sleep(seconds))


def _status(it: _Run | _Job) -> str:
    return f"{it.status} ({it.conclusion})" if it.conclusion else it.status
