"""Pull requests: delivers a patch.

If GitHub's API can be used, a branch and a pull request are made there; otherwise the branch is pushed to a repository
of the operator; otherwise the patch is a file of the job. Each is named after the job, so that a second attempt finds
what the first one has made, and makes nothing twice.
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

from millpond.errors import PermanentError, TransientError
from millpond_products.pages import reading
from millpond_products.partner import envelopes, identifiers
from millpond_products.partner.git import GitError
from millpond_products.partner.patches import AUTHOR, TITLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from uuid import UUID

    from millpond.product import Target
    from millpond_products.github import GitHub
    from millpond_products.partner.git import Git
    from millpond_products.partner.patches import Patch

PATCH_TYPE: Final = "text/x-patch"
_PUBLIC_API: Final = "https://api.github.com"
_PUBLIC: Final = "https://github.com"
_REPOSITORY: Final = re.compile(r"/([A-Za-z0-9-]{1,100}/[\w.-]{1,100}?)(?:\.git)?/?", re.ASCII)
_CLOSED: Final = frozenset({"403", "404", "410", "451"})
"""GitHub's statuses if the operator's token may not write."""
_ABSENT: Final = "404"
_UNPROCESSABLE: Final = "422"
_BODY: Final = """\
This adds a small client that sends events of this project to Millpond, and a note on how to use it:

{files}

Nothing calls it yet, and it sends nothing until `MILLPOND_EVENTS_URL` is set.

{mark}"""
_MARK: Final = "Project: `{project}`"
"""A later job recognizes the pull request by it."""
_BRANCH: Final = "millpond/job-"
_LOOKED_AT_MAX: Final = 100
_SECONDS_MAX: Final = 60.0
_TICK: Final = 0.05
_RECEIVE: Final = "git -c receive.shallowUpdate=true receive-pack"
"""Git does not pass its configuration on to the command that receives a push."""


def branch_name(job: Any) -> str:
    return f"{_BRANCH}{job.id.partition('_')[2].lower()}"


def repository_at(github: GitHub, target: Target) -> str | None:
    """The name of a URL's repository in GitHub's API (``owner/name``), if it is on that GitHub."""
    found = _REPOSITORY.fullmatch(target.path)
    site = _PUBLIC if github.origin == _PUBLIC_API else github.origin
    return found[1] if found and target.origin == site else None


# Through GitHub's API


async def open_one(
    github: GitHub, repository: str, branch: str, base: str, patch: Patch, *, project_id: UUID
) -> dict[str, Any]:
    """Make the branch and the pull request, or find them. ``refused`` in the result: the token may not write.

    If the pull request of an earlier job is still open, it is the result: another ingest needs no second one.
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
    """The newest open one for this project. One from a fork does not count: anybody could write the same there."""
    query = {"base": base, "state": "open", "per_page": str(_LOOKED_AT_MAX)}
    pulls = await github.call("GET", f"/repos/{repository}/pulls", query=query)
    found = cast("list[Any]", pulls) if isinstance(pulls, list) else []
    return next((pull for pull in found if _is_ours(pull, repository, mark)), None)


def _is_ours(pull: Any, repository: str, mark: str) -> bool:
    members = cast("dict[str, Any]", pull) if isinstance(pull, dict) else {}
    head = reading.member(members, "head")
    place = str(reading.member(head, "repo").get("full_name"))
    is_here = place.lower() == repository.lower() and str(head.get("ref")).startswith(_BRANCH)
    return is_here and mark in str(members.get("body"))


async def _made(github: GitHub, repository: str, branch: str, base: str, patch: Patch, *, mark: str) -> Any:
    await _ensure_branch(github, repository, branch, patch)
    files = "\n".join(f"- `{path}`" for path in patch.files)
    body = {"title": TITLE, "head": branch, "base": base, "body": _BODY.format(files=files, mark=mark)}
    try:
        return await github.call("POST", f"/repos/{repository}/pulls", body)
    except PermanentError as error:
        if error.details.get("platformCode") != _UNPROCESSABLE:
            raise
        found = await _found(github, repository, branch)  # an abandoned attempt was faster
        if found is None:
            raise
        return found


async def _ensure_branch(github: GitHub, repository: str, branch: str, patch: Patch) -> None:
    """Make the commit, then the branch: so a branch that exists is always complete."""
    if await _has_branch(github, repository, branch):
        return
    at = f"/repos/{repository}/git"
    added = [{"path": path, "mode": "100644", "type": "blob", "content": text} for path, text in patch.files.items()]
    tree = await github.call("POST", f"{at}/trees", {"base_tree": patch.parent_tree, "tree": added})
    who = {**AUTHOR, "date": patch.made_at}
    fields = {"message": patch.message, "tree": _member(tree, "sha", str), "parents": [patch.parent]}
    commit = await github.call("POST", f"{at}/commits", fields | {"author": who, "committer": who})
    try:
        await github.call("POST", f"{at}/refs", {"ref": f"refs/heads/{branch}", "sha": _member(commit, "sha", str)})
    except PermanentError as error:
        is_there = error.details.get("platformCode") == _UNPROCESSABLE and await _has_branch(github, repository, branch)
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
        message = f"GitHub's response has no valid {name}."
        raise TransientError(message, platform="github", platformCode="answer", platformMessage=message)
    return found


# Without GitHub's API


def place(folder: str, tenant: str, target: Target) -> Path:
    """The tenant's own copy of the repository, below the operator's folder."""
    name = target.authority + target.path.removesuffix("/").removesuffix(".git")
    return Path(folder).absolute() / _safe(tenant) / f"{_safe(name)}.git"


async def push(git: Git, place: Path, branch: str, patch: Patch) -> dict[str, Any]:
    """Push the branch to a bare repository on this machine, which is made if it does not exist."""
    there, ref = {"GIT_DIR": str(place)}, f"refs/heads/{branch}"
    try:
        await asyncio.to_thread(place.parent.mkdir, parents=True, exist_ok=True)
        async with _exclusive(place):
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
async def _exclusive(place: Path) -> AsyncGenerator[None]:
    """One push at a time. Git's own locks do not wait, and outlast a killed process; this one waits, and does not."""
    lock = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        async with asyncio.timeout(_SECONDS_MAX):  # a TimeoutError is an OSError
            while not _locked(lock):  # noqa: ASYNC110 - another process may hold it
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
    """Make the repository beside its place, and rename it: so it is complete from the first moment on."""
    if (place / "HEAD").exists():
        return
    draft = place.with_suffix(".draft")  # a killed process may have left one
    await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
    await git.run("init", "--bare", "--quiet", "--template=", more={"GIT_DIR": str(draft)})
    await asyncio.to_thread(draft.rename, place)


async def _at(git: Git, ref: str, there: dict[str, str]) -> str | None:
    try:
        return (await git.run("rev-parse", "--quiet", "--verify", ref, more=there)).line
    except GitError:
        return None


def _safe(text: str) -> str:
    """A name for a folder: readable, and different for each text."""
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^a-z0-9.]+', '-', text.lower()).strip('-.')[:80] or 'x'}-{mark}"


async def save(job: Any, patch: Patch) -> dict[str, Any]:
    """Keep the patch with the job."""
    file = await job.save("millpond.patch", patch.text, PATCH_TYPE)
    return {"delivery": "artifact", "assets": [envelopes.asset(file, "patch")]}
