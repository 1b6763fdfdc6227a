"""Cloning: fetches the newest commit of a public repository into a bare clone, within limits."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from millpond.errors import InvalidError, OutboundRefusedError, PermanentError, TransientError
from millpond_products.partner.git import SECONDS_MAX, SIZE_MAX, Git, GitError

if TYPE_CHECKING:
    from millpond.product import Outbound, Proxy, Target

BRANCH_MAX: Final = 200
_REF: Final = re.compile(r"(?!-)(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|$)|[./]$))(?!/|\.)[^\x00-\x20\x7f~^:?*\[\\]+")
"""A name that git accepts for a branch, and that cannot be taken for an option."""
_TICK: Final = 1.0
_MIDDLE: Final = 8 * 1024 * 1024
"""Bytes at which a clone counts as half done; the total is not known in advance."""
_MESSAGE_MAX: Final = 300


def check(outbound: Outbound, url: str, *, field: str = "repoUrl") -> Target:
    """Refuse a URL that cannot be a repository. The outbound guard checks again with each connection."""
    try:
        target = outbound.check(url, field=field)
    except OutboundRefusedError as error:
        hint = "Use the https:// URL of a public repository."
        raise InvalidError(f"The repository cannot be cloned: {error.message}", field=field, hint=hint) from None
    if "?" in url or "#" in url or target.path.strip("/") == "":
        raise InvalidError(
            "The URL must have a path and no query to be a repository.",
            field=field,
            hint="Use a URL such as https://github.com/OWNER/NAME.",
        )
    return target


def check_branch(name: str, *, field: str = "branch") -> str:
    if len(name) > BRANCH_MAX or not _REF.fullmatch(name):
        raise InvalidError(
            "The value is not a valid branch name.", field=field, hint="Use a name such as main or release/1.0."
        )
    return name


async def clone(job: Any, git: Git, proxy: Proxy, url: str, branch: str | None, *, platform: str) -> None:
    """Clone the repository, and report the progress. The clone stops if the job must stop."""
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
    """Check that there is a commit, and that the requested branch is not a tag."""
    try:
        await git.run("rev-parse", "--quiet", "--verify", f"refs/heads/{branch}" if branch else "HEAD^{commit}")
    except GitError:
        if branch is None:
            raise _refusal("The URL is not a git repository, or the repository has no commits.") from None
        raise _no_branch(branch) from None


def _no_branch(branch: str | None) -> PermanentError:
    return PermanentError(f"The repository has no branch {branch!r}.", code="NOT_FOUND", field="branch")


_PERMANENT: Final = (
    (r"could not read Username|Authentication failed|returned error: 40[13]", "it is not public.", "NOT_FOUND"),
    (r"repository '.*' not found|returned error: (?:404|410)", "there is no repository at the URL.", "NOT_FOUND"),
    (
        r"is this a git repository|dumb http transport|invalid server response|protocol error: bad line",
        "the URL is not a git repository.",
        "VALIDATION",
    ),
    (r"File size limit|file write error|index-pack (?:died|failed)|out of memory", "it is too large.", "VALIDATION"),
)
"""Messages of git for errors that a retry would not change, with their meaning and code."""


def _failure(
    error: GitError | TimeoutError, proxy: Proxy, branch: str | None, platform: str
) -> PermanentError | TransientError:
    """Why the clone failed: the limits first, then git's message, then the network."""
    output = error.stderr if isinstance(error, GitError) else ""
    if proxy.refusal is not None:
        return _refusal(f"The repository cannot be cloned: {proxy.refusal.message}")
    if proxy.is_spent:
        return _refusal(f"The repository is larger than {SIZE_MAX // 1024**2} MiB without its history.")
    if "not found in upstream" in output:
        return _no_branch(branch)
    for words, meaning, code in _PERMANENT:
        if re.search(words, output):
            return _refusal(f"The repository could not be cloned: {meaning}", code)
    return _trouble(platform, *_cause(error, proxy))


def _refusal(message: str, code: str = "VALIDATION") -> PermanentError:
    return PermanentError(message, code=code, field="repoUrl")


def _cause(error: GitError | TimeoutError, proxy: Proxy) -> tuple[str, str]:
    """A code for the error, and its message."""
    if isinstance(error, TimeoutError):
        return "timeout", f"It took longer than {SECONDS_MAX:g} s."
    if proxy.failure is not None:
        return proxy.failure.reason, proxy.failure.message
    status = re.search(r"returned error: (\d{3})", error.stderr)
    return status[1] if status else "git", _last_error(error.stderr)


def _trouble(platform: str, code: str, detail: str) -> TransientError:
    message = f"The repository could not be cloned: {detail}"
    return TransientError(message, platform=platform, platformCode=code, platformMessage=detail)


def _last_error(output: str) -> str:
    """The last error that git printed, without URLs."""
    lines = [line for line in output.splitlines() if line.startswith(("fatal:", "error:"))] or ["git failed."]
    plain = re.sub(r"^\w+: (?:unable to access '[^']*': )?", "", lines[-1])
    return re.sub(r"https?://[^\s']+", "…", plain)[:_MESSAGE_MAX]
