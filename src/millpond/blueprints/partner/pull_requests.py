"""Pull requests: brings a patch to those who may take it.

Where GitHub can be asked, a branch and a pull request are made there; otherwise the branch is pushed to a repository of
the operator's; otherwise the patch is a file of the job. Each is named after the job, so that a second attempt finds
what the first has made, and makes nothing twice.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from millpond.blueprints.partner import envelopes, identifiers
from millpond.blueprints.partner.git import GitError
from millpond.blueprints.partner.patches import AUTHOR, TITLE
from millpond.errors import PermanentError, TransientError
from millpond.pages import reading

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from uuid import UUID

    from millpond.blueprints.partner.git import Git
    from millpond.blueprints.partner.patches import Patch
    from millpond.github import GitHub
    from millpond.outbound import Target

PATCH_TYPE: Final = "text/x-patch"
_PUBLIC_API: Final = "https://api.github.com"
_PUBLIC: Final = "https://github.com"
_REPOSITORY: Final = re.compile(r"/([A-Za-z0-9-]{1,100}/[\w.-]{1,100}?)(?:\.git)?/?", re.ASCII)
_CLOSED: Final = frozenset({"403", "404", "410", "451"})
"""What GitHub answers where the operator's token may not write."""
_ABSENT: Final = "404"
_UNFIT: Final = "422"
_BODY: Final = """\
This adds a small client that sends events of this project to Millpond, and a note on how to use it:

{files}

Nothing calls it yet, and it sends nothing until `MILLPOND_EVENTS_URL` says where to.

{mark}"""
_MARK: Final = "Project: `{project}`"
"""By this a later job knows it again."""
_BRANCH: Final = "millpond/job-"
_LOOKED_AT_MAX: Final = 100
_SECONDS_MAX: Final = 60.0
_TICK: Final = 0.05
_RECEIVE: Final = "git -c receive.shallowUpdate=true receive-pack"
"""Git does not pass on what it was told to who takes a push."""


def branch_name(job: Any) -> str:
    return f"{_BRANCH}{job.id.partition('_')[2].lower()}"


def repository_at(github: GitHub, target: Target) -> str | None:
    """What GitHub's API calls the repository of a URL (``owner/name``), if it is one of that GitHub's."""
    found = _REPOSITORY.fullmatch(target.path)
    site = _PUBLIC if github.origin == _PUBLIC_API else github.origin
    return found[1] if found and target.origin == site else None


# Through GitHub's API


async def open_one(
    github: GitHub, repository: str, branch: str, base: str, patch: Patch, *, project_id: UUID
) -> dict[str, Any]:
    """Make branch and pull request, or find them. Where the token may not write, it says so: ``refused``.

    One of an earlier job that is still open stays the only one: whoever reads twice wants no second.
    """
    mark = _MARK.format(project=identifiers.text("prj", project_id))
    try:
        pull = (
            await _found(github, repository, branch)
            or await _pending(github, repository, base, mark)
            or await _made(github, repository, branch, base, patch, mark=mark)
        )
    except PermanentError as error:
        if error.details.get("platformCode") not in _CLOSED:
            raise
        return {"refused": error.message}
    return {
        "delivery": "pull_request",
        "branch": _member(_member(pull, "head", dict), "ref", str),
        "pullRequestUrl": _member(pull, "html_url", str),
        "pullRequestNumber": _member(pull, "number", int),
    }


async def _found(github: GitHub, repository: str, branch: str) -> Any:
    owner = repository.partition("/")[0]
    query = {"head": f"{owner}:{branch}", "state": "all", "per_page": "1"}
    pulls = await github.call("GET", f"/repos/{repository}/pulls", query=query)
    return cast("list[Any]", pulls)[0] if isinstance(pulls, list) and pulls else None


async def _pending(github: GitHub, repository: str, base: str, mark: str) -> Any:
    """The newest that is open for this project. In a copy of the repository anybody may write the same."""
    query = {"base": base, "state": "open", "per_page": str(_LOOKED_AT_MAX)}
    pulls = await github.call("GET", f"/repos/{repository}/pulls", query=query)
    found = cast("list[Any]", pulls) if isinstance(pulls, list) else []
    return next((pull for pull in found if _is_ours(pull, repository, mark)), None)


def _is_ours(pull: Any, repository: str, mark: str) -> bool:
    told = cast("dict[str, Any]", pull) if isinstance(pull, dict) else {}
    head = reading.member(told, "head")
    place = str(reading.member(head, "repo").get("full_name"))
    is_here = place.lower() == repository.lower() and str(head.get("ref")).startswith(_BRANCH)
    return is_here and mark in str(told.get("body"))


async def _made(github: GitHub, repository: str, branch: str, base: str, patch: Patch, *, mark: str) -> Any:
    await _ensure_branch(github, repository, branch, patch)
    files = "\n".join(f"- `{path}`" for path in patch.files)
    body = {"title": TITLE, "head": branch, "base": base, "body": _BODY.format(files=files, mark=mark)}
    try:
        return await github.call("POST", f"/repos/{repository}/pulls", body)
    except PermanentError as error:
        if error.details.get("platformCode") != _UNFIT:
            raise
        found = await _found(github, repository, branch)  # somebody was faster: an attempt that is given up
        if found is None:
            raise
        return found


async def _ensure_branch(github: GitHub, repository: str, branch: str, patch: Patch) -> None:
    """The commit is whole before the branch is there: a branch that is found needs nothing more."""
    if await _has_branch(github, repository, branch):
        return
    at = f"/repos/{repository}/git"
    added = [{"path": path, "mode": "100644", "type": "blob", "content": text} for path, text in patch.files.items()]
    tree = await github.call("POST", f"{at}/trees", {"base_tree": patch.parent_tree, "tree": added})
    who = {**AUTHOR, "date": patch.made_at}
    told = {"message": patch.message, "tree": _member(tree, "sha", str), "parents": [patch.parent]}
    commit = await github.call("POST", f"{at}/commits", told | {"author": who, "committer": who})
    try:
        await github.call("POST", f"{at}/refs", {"ref": f"refs/heads/{branch}", "sha": _member(commit, "sha", str)})
    except PermanentError as error:
        is_there = error.details.get("platformCode") == _UNFIT and await _has_branch(github, repository, branch)
        if not is_there:
            raise


async def _has_branch(github: GitHub, repository: str, branch: str) -> bool:
    try:
        await github.call("GET", f"/repos/{repository}/git/ref/heads/{quote(branch)}")
    except PermanentError as error:
        if error.details.get("platformCode") != _ABSENT:
            raise
        return False
    return True


def _member(answer: Any, name: str, kind: type[Any]) -> Any:
    found = cast("dict[str, Any]", answer).get(name) if isinstance(answer, dict) else None
    if not isinstance(found, kind):
        said = f"GitHub's answer has no {name} that could be read."
        raise TransientError(said, platform="github", platformCode="answer", platformMessage=said)
    return found


# Without it


def place(folder: str, tenant: str, target: Target) -> Path:
    """The tenant's own copy of the repository, below the operator's folder."""
    name = target.authority + target.path.removesuffix("/").removesuffix(".git")
    return Path(folder).absolute() / _safe(tenant) / f"{_safe(name)}.git"


async def push(git: Git, place: Path, branch: str, patch: Patch) -> dict[str, Any]:
    """Push the branch to a bare repository on this machine, which is made where there is none."""
    there, ref = {"GIT_DIR": str(place)}, f"refs/heads/{branch}"
    try:
        await asyncio.to_thread(place.parent.mkdir, parents=True, exist_ok=True)
        async with _alone(place):
            await _ensure_repository(git, place)
            commit = await _at(git, ref, there)
            if commit is None:
                words = ("push", "--quiet", f"--receive-pack={_RECEIVE}", "--", str(place), f"{patch.commit}:{ref}")
                await git.run(*words, protocols="file")
                commit = patch.commit
    except (GitError, OSError) as error:
        raise TransientError("The branch could not be pushed to the operator's repository.") from error
    name = f"{place.parent.name}/{place.name}"
    return {"delivery": "branch", "branch": branch, "repository": name, "commit": commit}


@asynccontextmanager
async def _alone(place: Path) -> AsyncGenerator[None]:
    """One push at a time: git's own locks do not wait, and outlast whoever is killed. This one does neither."""
    lock = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        async with asyncio.timeout(_SECONDS_MAX):  # a TimeoutError is an OSError
            while not _locked(lock):  # noqa: ASYNC110 - who holds it may be another process
                await asyncio.sleep(_TICK)
        yield
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _ensure_repository(git: Git, place: Path) -> None:
    """It is whole from the first moment on: made beside its place, and put there."""
    if (place / "HEAD").exists():
        return
    draft = place.with_suffix(".draft")  # what a killed one has left is in nobody's way
    await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
    await git.run("init", "--bare", "--quiet", "--template=", more={"GIT_DIR": str(draft)})
    await asyncio.to_thread(draft.rename, place)


async def _at(git: Git, ref: str, there: dict[str, str]) -> str | None:
    try:
        return (await git.run("rev-parse", "--quiet", "--verify", ref, more=there)).line
    except GitError:
        return None


def _safe(text: str) -> str:
    """A name for a folder: readable, and one of its own for each text."""
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^a-z0-9.]+', '-', text.lower()).strip('-.')[:80] or 'x'}-{mark}"


async def save(job: Any, patch: Patch) -> dict[str, Any]:
    """Keep the patch with the job."""
    file = await job.save("millpond.patch", patch.text, PATCH_TYPE)
    return {"delivery": "artifact", "assets": [envelopes.asset(file, "patch")]}
