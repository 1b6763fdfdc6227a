"""Patches: a commit on top of a repository that adds a small client for events, in the repository's language.

It is made with git's plumbing commands in the bare clone: nothing of the repository is ever checked out.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files as packaged
from typing import TYPE_CHECKING, Final

import msgspec

from millpond_products.partner import identifiers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

    from millpond_products.partner.git import Git
    from millpond_products.partner.repositories import Repository

TITLE: Final = "Add a client for events of Millpond"
AUTHOR: Final[Mapping[str, str]] = {"name": "Millpond", "email": "millpond@users.noreply.github.com"}
_FOLDER: Final = "millpond"
_TRIES: Final = 100
_FILES: Final[Mapping[str, str]] = {
    "C#": "Events.cs",
    "Go": "events.go",
    "Java": "Events.java",
    "JavaScript": "events.js",
    "Kotlin": "Events.kt",
    "PHP": "events.php",
    "Python": "events.py",
    "Ruby": "events.rb",
    "Svelte": "events.js",
    "Swift": "Events.swift",
    "TypeScript": "events.ts",
    "Vue": "events.js",
}
_ANY: Final = "events.sh"
"""For all other languages."""


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that adds files."""

    files: dict[str, str]
    """By their paths."""
    commit: str
    parent: str
    parent_tree: str
    made_at: str
    text: str
    """The patch in the format of ``git am``."""

    @property
    def message(self) -> str:
        return f"{TITLE}\n\nIt sends nothing until MILLPOND_EVENTS_URL is set.\n"


def files(repository: Repository, language: str | None, project_id: UUID) -> dict[str, str]:
    """The files to add; none if the same client is there already, byte for byte."""
    name = _FILES.get(language or "", _ANY)
    words = {"PROJECT_ID": identifiers.text("prj", project_id), "FILE_NAME": name}
    made = {each: _filled(_stub(each), words) for each in (name, "README.md")}
    there = repository.listing.clients
    for folder in _folders():
        if there.get(f"{folder}/{name}") == _object_id(made[name]):
            return {}
        if folder not in _taken(repository):
            return {f"{folder}/{each}": text for each, text in made.items()}
    return {}


def _folders() -> Iterator[str]:
    yield _FOLDER
    yield from (f"{_FOLDER}-{number}" for number in range(2, _TRIES))


def _taken(repository: Repository) -> set[str]:
    """The names in the root folder, in lower case: some file systems ignore case."""
    lines = repository.top.decode("utf-8", "replace").split("\0")
    return {line.partition("\t")[2].lower() for line in lines}


def _object_id(text: str) -> str:
    content = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@cache
def _stub(name: str) -> str:
    return (packaged("millpond_products.partner") / "stubs" / f"{name}.txt").read_text()


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


async def make(git: Git, repository: Repository, added: Mapping[str, str]) -> Patch:
    """Write the commit. It has the date of its parent, so that each attempt makes the same commit."""
    inner = b""
    for path, text in added.items():
        blob = (await git.run("hash-object", "-w", "--stdin", given=text.encode())).line
        inner += f"100644 blob {blob}\t{path.partition('/')[2]}\0".encode()
    folder = (await git.run("mktree", "-z", given=inner)).line
    name = next(iter(added)).partition("/")[0]
    outer = repository.top + f"040000 tree {folder}\t{name}\0".encode()
    tree = (await git.run("mktree", "-z", "--missing", given=outer)).line
    draft = Patch(
        files=dict(added),
        commit="",
        parent=repository.commit,
        parent_tree=repository.tree,
        made_at=repository.committed_at,
        text="",
    )
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", AUTHOR["name"]), ("EMAIL", AUTHOR["email"]), ("DATE", repository.committed_at))
    }
    commit = (await git.run("commit-tree", tree, "-p", repository.commit, given=draft.message.encode(), more=who)).line
    words = (
        "format-patch",
        "-1",
        "--stdout",
        "--no-signature",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        commit,
    )
    return msgspec.structs.replace(draft, commit=commit, text=(await git.run(*words)).output.decode())
