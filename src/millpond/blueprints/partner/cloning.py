"""Cloning: brings a repository of anybody's here: its newest commit alone, bare, and within limits."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from millpond.blueprints.partner.git import SECONDS_MAX, SIZE_MAX, Git, GitError
from millpond.errors import InvalidError, OutboundRefusedError, PermanentError, TransientError

if TYPE_CHECKING:
    from millpond.outbound import Outbound, Target
    from millpond.outbound.proxy import Proxy

BRANCH_MAX: Final = 200
_REF: Final = re.compile(r"(?!-)(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|$)|[./]$))(?!/|\.)[^\x00-\x20\x7f~^:?*\[\\]+")
"""What git takes for a name of a branch, and what no option could be."""
_TICK: Final = 1.0
_MIDDLE: Final = 8 * 1024 * 1024
"""Bytes at which a clone is taken to be half done; how much there is, nobody tells before."""
_MESSAGE_MAX: Final = 300


def check(outbound: Outbound, url: str, *, field: str = "repoUrl") -> Target:
    """Refuse what can be seen to be no repository for us; whatever it leads to is looked at again at each call."""
    try:
        target = outbound.check(url, field=field)
    except OutboundRefusedError as error:
        hint = "Give the https:// address under which anybody can clone it."
        raise InvalidError(f"The repository cannot be cloned: {error.message}", field=field, hint=hint) from None
    if "?" in url or "#" in url or target.path.strip("/") == "":
        raise InvalidError(
            "The URL names no repository: it needs a path, and no query.",
            field=field,
            hint="Such as https://github.com/OWNER/NAME.",
        )
    return target


def check_branch(name: str, *, field: str = "branch") -> str:
    if len(name) > BRANCH_MAX or not _REF.fullmatch(name):
        raise InvalidError("It is no name that a branch can have.", field=field, hint="Such as main or release/1.0.")
    return name


async def clone(job: Any, git: Git, proxy: Proxy, url: str, branch: str | None, *, platform: str) -> None:
    """Clone it, and say how far that is; a job that must stop stops it."""
    words = ["clone", "--bare", "--quiet", "--depth=1", "--single-branch", "--no-tags", "--template="]
    words += [] if branch is None else [f"--branch={branch}"]
    running = asyncio.ensure_future(
        git.run(*words, "--", url, str(git.repository), protocols="http:https", seconds=SECONDS_MAX)
    )
    try:
        while not (await asyncio.wait({running}, timeout=_TICK))[0]:
            await job.progress(0.02 + 0.3 * proxy.size / (proxy.size + _MIDDLE))
        await running
        await _check_head(git, branch)
    except (GitError, TimeoutError) as error:
        raise _failure(error, proxy, branch, platform) from error
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _check_head(git: Git, branch: str | None) -> None:
    """There may be no commit at all, and what was asked for may be a tag."""
    try:
        await git.run("rev-parse", "--quiet", "--verify", f"refs/heads/{branch}" if branch else "HEAD^{commit}")
    except GitError:
        if branch is None:
            raise _refusal("What is at the URL has no commit, or is no git repository.") from None
        raise _no_branch(branch) from None


def _no_branch(branch: str | None) -> PermanentError:
    return PermanentError(f"The repository has no branch {branch!r}.", code="NOT_FOUND", field="branch")


_FINDINGS: Final = (
    (r"could not read Username|Authentication failed|returned error: 40[13]", "it is not open to all.", "NOT_FOUND"),
    (r"repository '.*' not found|returned error: (?:404|410)", "there is none at the URL.", "NOT_FOUND"),
    (
        r"is this a git repository|dumb http transport|invalid server response|protocol error: bad line",
        "what is at the URL is no git repository.",
        "VALIDATION",
    ),
    (r"File size limit|file write error|index-pack (?:died|failed)|out of memory", "it is too large.", "VALIDATION"),
)
"""What git's words mean: for whoever gave the URL, trying again would change nothing."""


def _failure(
    error: GitError | TimeoutError, proxy: Proxy, branch: str | None, platform: str
) -> PermanentError | TransientError:
    """What stopped it: our own limits first, then what git says, then what the network did."""
    said = error.said if isinstance(error, GitError) else ""
    if proxy.refusal is not None:
        return _refusal(f"The repository may not be cloned: {proxy.refusal.message}")
    if proxy.is_spent:
        return _refusal(f"The repository is larger than {SIZE_MAX // 1024**2} MiB, even without its history.")
    if "not found in upstream" in said:
        return _no_branch(branch)
    for words, meaning, code in _FINDINGS:
        if re.search(words, said):
            return _refusal(f"The repository could not be cloned: {meaning}", code)
    return _trouble(platform, *_cause(error, proxy))


def _refusal(told: str, code: str = "VALIDATION") -> PermanentError:
    return PermanentError(told, code=code, field="repoUrl")


def _cause(error: GitError | TimeoutError, proxy: Proxy) -> tuple[str, str]:
    """A word for it, and what is said of it."""
    if isinstance(error, TimeoutError):
        return "timeout", f"It was not there within {SECONDS_MAX:g} s."
    if proxy.failure is not None:
        return proxy.failure.reason, proxy.failure.message
    status = re.search(r"returned error: (\d{3})", error.said)
    return status[1] if status else "git", _last_word(error.said)


def _trouble(platform: str, code: str, said: str) -> TransientError:
    told = f"The repository could not be cloned: {said}"
    return TransientError(told, platform=platform, platformCode=code, platformMessage=said)


def _last_word(said: str) -> str:
    """Git's last word; who called whom where is left out."""
    lines = [line for line in said.splitlines() if line.startswith(("fatal:", "error:"))] or ["git failed."]
    plain = re.sub(r"^\w+: (?:unable to access '[^']*': )?", "", lines[-1])
    return re.sub(r"https?://[^\s']+", "…", plain)[:_MESSAGE_MAX]
