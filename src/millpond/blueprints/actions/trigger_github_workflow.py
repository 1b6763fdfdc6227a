"""trigger-github-workflow: dispatches a workflow, finds its run, and follows that to its end.

A dispatch is never sent twice. Before it is sent that is noted with the job, and so is the run once it is known: a
worker that takes over follows that run, or looks for it. Newer servers answer a dispatch with its run. Where one does
not, the run is found by the name that the workflow gives it, or else as the only one that is new; where that is not
clear, or where it is not even known whether the dispatch was taken, the job fails and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from millpond.allowed import Repositories
from millpond.blueprints.actions import once
from millpond.errors import (
    CanceledError,
    InputError,
    InterruptedJobError,
    LeaseLostError,
    MillpondError,
    PermanentError,
    TransientError,
)
from millpond.github import GitHub
from millpond.retry import Backoff

if TYPE_CHECKING:
    from millpond.blueprints.actions.inputs import TriggerGithubWorkflow
    from millpond.engine.engine import Engine
    from millpond.kinds import Handler
    from millpond.settings import Settings

FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = timedelta(seconds=15)
"""Seconds between two looks at a run; they grow, for a token may ask some thousand times an hour."""
FIND_LOOKS: Final = 12
"""How often a run is looked for that GitHub did not name."""
FAILURES_MAX: Final = 8
"""How many calls in a row may fail before the job does, as long as nothing is dispatched."""
ABSENT_MAX: Final = 6
"""How often in a row GitHub may say that there is no such run: it says so of new ones too."""
CANCEL_SECONDS: Final = 10.0
"""How long a run is told to end."""
LAST_SECONDS: Final = 2.0
"""How long that goes on when the job is cut off meanwhile: less than a worker waits for its last words."""
_TELLING: Final = set[asyncio.Task[None]]()
_ABSENT: Final = "404"
_NOT_TAKEN: Final = frozenset({"403", "429", "dns", "connect", "tls"})
"""What a dispatch failed with that cannot have been taken: it may be sent again."""
_DETAILS: Final = "return_run_details"
_UNKNOWN: Final = "There is no token for GitHub."
_UNKNOWN_HINT: Final = "An operator sets MILLPOND_GITHUB_TOKEN to one that may run workflows of the repository."
_CLOSED: Final = "Workflows of this repository are not run from here."
_CLOSED_HINT: Final = "An operator puts it into MILLPOND_REPOSITORIES: owner/name, or owner/* for all of an owner."


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


Told = TypeVar("Told", _Repository, _Run, _Runs, _Jobs)


class Memo(msgspec.Struct):
    """What a job keeps of its dispatch, for whoever takes over."""

    ref: str
    last: int
    """The newest run of the workflow before the dispatch."""
    is_taken: bool = False
    """Whether GitHub has said that it took the dispatch."""
    run: int | None = None
    url: str = ""
    """Where a person looks at the run."""
    is_sure: bool = False
    """Whether it is certain that the run is ours."""


async def check(engine: Engine, settings: Settings, given: TriggerGithubWorkflow) -> None:  # noqa: ARG001 - as all
    """Refuse at once what could only fail."""
    if not settings.github_token:
        raise InputError(_UNKNOWN, field="action", hint=_UNKNOWN_HINT)
    if not Repositories.read(settings.repositories).has(given.repository):
        raise InputError(_CLOSED, field="input.repository", hint=_CLOSED_HINT)
    _check(given)


def _check(given: TriggerGithubWorkflow) -> None:
    if given.run_name_input is not None and given.run_name_input in given.inputs:
        raise InputError("It is given the job's id.", field=f"input.inputs.{given.run_name_input}")


def handler(engine: Engine, settings: Settings, *, pause: float = FIRST_PAUSE) -> Handler:
    github = GitHub(engine.outbound, settings.github_url, settings.github_token or None)
    repositories = Repositories.read(settings.repositories)

    async def trigger(job: Any, given: TriggerGithubWorkflow) -> dict[str, Any]:
        if not github.has_token:
            raise PermanentError(_UNKNOWN, hint=_UNKNOWN_HINT)
        if not repositories.has(given.repository):
            raise PermanentError(_CLOSED, hint=_CLOSED_HINT)
        _check(given)
        return await Triggering(job, given, github, pause).run()

    return trigger


class Triggering:
    """One job on its way through GitHub."""

    def __init__(self, job: Any, given: TriggerGithubWorkflow, github: GitHub, pause: float) -> None:
        self._job = job
        self._given = given
        self._github = github
        self._backoff = Backoff(first=timedelta(seconds=pause), factor=1.5, longest=LONGEST_PAUSE)
        self._repository = f"/repos/{given.repository}"
        self._workflow = f"{self._repository}/actions/workflows/{quote(given.workflow, safe='')}"
        self._memo: Memo | None = None
        """What is known of the dispatch; none before it is about to be sent."""
        self._seen: dict[int, str] = {}
        """Where each job of the run was when it was last looked at."""

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
            fate = "and was told to" if await self._cancel() else "and is left alone"
            raise self._named(
                PermanentError(f"The run did not end within {self._given.timeout_seconds:g} s, {fate}.")
            ) from None
        except PermanentError as error:
            raise self._named(error) from None

    def _named(self, error: PermanentError) -> PermanentError:
        """Whatever has failed: which run it is about, as soon as that is known."""
        if self._memo is not None and self._memo.run is not None:
            error.details |= {"runId": self._memo.run, "url": self._memo.url, "isSure": self._memo.is_sure}
        return error

    def _is_given_up(self) -> bool:
        """Whether a job that is cut off ends with that; where only its worker goes, the next one follows the run."""
        try:
            self._job.checkpoint()
        except (InterruptedJobError, LeaseLostError):
            return False
        except MillpondError:
            return True
        return False

    # Sending it

    async def _dispatched(self) -> Memo:
        """The note of a dispatch that was sent, by this worker or by one before."""
        if self._job.memo is not None:
            self._memo = msgspec.convert(self._job.memo, Memo)
            return self._memo
        ref = self._given.ref or (await self._ask(_Repository, self._repository)).default_branch
        newest = await self._runs(ref, 1)
        memo = await self._kept(Memo(ref, last=max((run.id for run in newest), default=0)))
        answer = await self._send(memo)
        if answer is None:
            return memo
        run = answer.workflow_run_id
        told = {"run": run, "url": answer.html_url, "is_sure": True} if run is not None else {}
        return await self._kept(msgspec.structs.replace(memo, is_taken=True, **told))

    async def _send(self, memo: Memo) -> _Dispatched | None:
        """Dispatch; tells what GitHub answers. Only what cannot have been taken is sent again."""
        body: dict[str, Any] = {"ref": memo.ref, "inputs": self._inputs(), _DETAILS: True}
        await self._job.log(f"Dispatching {self._given.workflow} of {self._given.repository} at {memo.ref}.")
        for failures in range(1, FAILURES_MAX + 1):
            try:
                answer = await self._github.call("POST", f"{self._workflow}/dispatches", body)
                return msgspec.convert(answer or {}, _Dispatched)
            except PermanentError as error:
                if _DETAILS not in error.message or _DETAILS not in body:
                    raise
                del body[_DETAILS]  # an older server, which does not know it
            except TransientError as error:
                if error.details["platformCode"] not in _NOT_TAKEN:
                    await self._job.log(f"{error.message} It may have been taken: its run is looked for.")
                    return None
                if failures == FAILURES_MAX:
                    raise PermanentError(error.message, **error.details) from None
                await self._rest(failures, error)
        return None

    def _inputs(self) -> dict[str, str]:
        marked = self._given.run_name_input
        return self._given.inputs if marked is None else {**self._given.inputs, marked: self._job.id}

    # Finding its run

    async def _found(self, memo: Memo) -> Memo:
        """The run of a dispatch whose answer did not name it: by its name, or as the only new one."""
        by_name = self._given.run_name_input is not None
        before: set[int] = set()
        for look in range(1, FIND_LOOKS + 1):
            runs = [run for run in await self._runs(memo.ref, 100) if run.id > memo.last]
            found = {run.id: run.html_url for run in runs if not by_name or self._job.id in run.display_title}
            if len(found) == 1 and (by_name or set(found) == before):  # twice the same: others had time to appear
                return await self._chosen(memo, *found.popitem(), is_sure=by_name)
            if len(found) > 1:
                raise PermanentError(
                    f"The workflow was dispatched, and {len(found)} runs of it are new: which is ours is not known.",
                    hint="Name an input that the workflow's run-name shows, as runNameInput.",
                    runs=sorted(found),
                )
            before = set(found)
            await self._rest(look)
        raise PermanentError(
            "The workflow was dispatched, or about to be, and no run of it has appeared. It is not dispatched again.",
            hint="Look at the workflow's runs, and retry the job if that is right.",
        )

    async def _chosen(self, memo: Memo, run: int, url: str, *, is_sure: bool) -> Memo:
        """The one run that may be ours. Where it need not even be there, it may as well be somebody else's."""
        if not is_sure and not memo.is_taken:
            raise PermanentError(
                "The workflow was dispatched, or about to be, and one run of it is new: whether that is ours is not"
                " known. It is not dispatched again.",
                hint="Look at that run, and retry the job if it is another's. With runNameInput it would be known.",
                runs=[run],
            )
        if not is_sure:
            told = f"Run {run} is the only new one, so it is followed. It may be another's: it will not be cancelled."
            await self._job.log(told, level="warning")
        return await self._kept(msgspec.structs.replace(memo, run=run, url=url, is_sure=is_sure))

    async def _runs(self, ref: str, most: int) -> list[_Run]:
        query = {"event": "workflow_dispatch", "branch": ref, "per_page": str(most)}
        return (await self._ask(_Runs, f"{self._workflow}/runs", query)).workflow_runs

    # Following it

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
                await self._job.log(f"Run {run.id} is {_said(run)}" + (f": {run.html_url}" if looks == 1 else "."))
            jobs = await self._jobs(path)
            if status == "completed":
                return self._judged(memo, run, jobs)
            await self._rest(looks)

    async def _jobs(self, path: str) -> list[_Job]:
        """The jobs of a run; a line for each that is somewhere else than before."""
        jobs = (await self._ask(_Jobs, f"{path}/jobs", {"per_page": "100"})).jobs
        for job in jobs:
            if self._seen.get(job.id) != _said(job):
                self._seen[job.id] = _said(job)
                await self._job.log(f"Job {job.name} is {_said(job)}.")
        return jobs

    def _judged(self, memo: Memo, run: _Run, jobs: list[_Job]) -> dict[str, Any]:
        told: dict[str, Any] = {
            "runId": run.id,
            "url": run.html_url,
            "conclusion": run.conclusion,
            "isSure": memo.is_sure,
        }
        if run.conclusion != "success":
            raise PermanentError(f"The run ended as {run.conclusion}.", **told)
        return {**told, "ref": memo.ref, "jobs": [{"name": job.name, "conclusion": job.conclusion} for job in jobs]}

    async def _cancel(self) -> bool:
        """Have the run end, if it surely is ours; tells whether it was. One that cannot be reached goes on.

        It goes on when the job is cut off meanwhile, and whoever does that waits a moment for it.
        """
        if self._memo is None or self._memo.run is None or not self._memo.is_sure:
            return False
        telling = asyncio.create_task(self._tell_end(self._memo.run))
        _TELLING.add(telling)
        telling.add_done_callback(_TELLING.discard)
        try:
            await asyncio.wait([telling])
        except asyncio.CancelledError:
            await asyncio.wait([telling], timeout=LAST_SECONDS)
            raise
        return True

    async def _tell_end(self, run: int) -> None:
        with contextlib.suppress(PermanentError, TransientError, TimeoutError):  # one that has ended refuses
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._github.call("POST", f"{self._repository}/actions/runs/{run}/cancel")

    # Both

    async def _kept(self, memo: Memo) -> Memo:
        answer = {"run": memo.run, "isTaken": memo.is_taken, "epoch": self._job.epoch}
        await self._job.proceed(answer, msgspec.to_builtins(memo))
        self._memo = memo
        return memo

    async def _ask(self, shape: type[Told], path: str, query: dict[str, str] | None = None) -> Told:
        """What can be asked again: GitHub is given time where it asks for some, or does not answer.

        What was dispatched runs on, whether it can be looked at or not: so from then on only the job's time is a limit.
        """
        failures = absences = 0
        while True:
            try:
                answer = await once.watched(self._job, self._github.call("GET", path, query=query or {}))
                return msgspec.convert(answer, shape)
            except msgspec.ValidationError as error:
                raise PermanentError(f"GitHub answered with something that is not understood: {error}.") from None
            except PermanentError as error:
                absences += 1
                if self._memo is None or error.details["platformCode"] != _ABSENT or absences == ABSENT_MAX:
                    raise
                await self._rest(absences)
            except TransientError as error:
                failures += 1
                if self._memo is None and failures == FAILURES_MAX:
                    raise PermanentError(error.message, **error.details) from None
                if failures == 1 and error.retry_after is None:
                    await self._job.log(f"{error.message} It is asked again.", level="warning")
                await self._rest(failures, error)

    async def _rest(self, nth: int, error: TransientError | None = None) -> None:
        seconds = self._backoff.delay(nth, random.random()).total_seconds()  # noqa: S311 - jitter
        if error is not None and error.retry_after is not None:
            seconds = max(seconds, error.retry_after.total_seconds())
            await self._job.log(f"GitHub asks for a pause of {seconds:.0f} s: {error.message}", level="warning")
        await once.watched(self._job, asyncio.sleep(seconds))


def _said(it: _Run | _Job) -> str:
    return f"{it.status} ({it.conclusion})" if it.conclusion else it.status
