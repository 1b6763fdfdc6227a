"""Repositories: the facts in the newest commit of a repository. All files are listed; a few small ones are read."""

from __future__ import annotations

import asyncio
import re
from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.errors import PermanentError
from millpond_products.pages.reading import clean
from millpond_products.partner import manifests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millpond_products.partner.git import Git
    from millpond_products.partner.manifests import Manifest

ENTRIES_MAX: Final = 250_000
"""Files that are listed; a repository may have any number."""
_ENTRY_MAX: Final = 64 * 1024
"""Bytes of a path; a file with a longer one is ignored."""
_LISTING_MAX: Final = 64 * 1024 * 1024
FILE_MAX: Final = 128 * 1024
"""Bytes of a file that is read; a larger one is only listed."""
_HEAD: Final = 8 * 1024
"""Characters of a README or a licence that are read: the beginning is sufficient."""
_MANIFESTS_MAX: Final = 40
_DEPENDENCIES_MAX: Final = 300
"""For all manifests together."""
_LANGUAGES_MAX: Final = 12
_KEYWORDS_MAX: Final = 20
_TITLE_MAX: Final = 200
_TEXT_MAX: Final = 1_000
_CLIENTS_MAX: Final = 1_000
_CLIENT: Final = re.compile(r"millpond(?:-[0-9]{1,2})?/events\.[a-z]{1,6}", re.IGNORECASE)
"""The paths that an earlier patch may have added a client at."""
_PLAIN_MODES: Final = frozenset({b"100644", b"100755"})

_LANGUAGES: Final[Mapping[str, str]] = {
    ending: language
    for language, endings in {
        "C": "c h",
        "C#": "cs",
        "C++": "cc cpp cxx hpp hh",
        "CSS": "css scss sass less",
        "Clojure": "clj cljs",
        "Dart": "dart",
        "Elixir": "ex exs",
        "Erlang": "erl",
        "Go": "go",
        "HTML": "html htm",
        "Haskell": "hs",
        "Java": "java",
        "JavaScript": "js jsx mjs cjs",
        "Julia": "jl",
        "Kotlin": "kt kts",
        "Lua": "lua",
        "Objective-C": "m mm",
        "PHP": "php",
        "Perl": "pl pm",
        "Python": "py pyi",
        "R": "r",
        "Ruby": "rb",
        "Rust": "rs",
        "SQL": "sql",
        "Scala": "scala",
        "Shell": "sh bash zsh",
        "Svelte": "svelte",
        "Swift": "swift",
        "TypeScript": "ts tsx mts cts",
        "Vue": "vue",
        "Zig": "zig",
    }.items()
    for ending in endings.split()
}
_MARKUP: Final = frozenset({"CSS", "HTML", "SQL"})
"""Not the main language of a project that has any other."""
_OTHERS: Final = re.compile(
    r"(?:^|/)(?:node_modules|vendor|third_party|dist|build|Pods|\.venv|venv|target)/|\.min\.(?:js|css)$|-lock\.json$"
)
"""Files in a repository that its authors have not written."""
_FRAMEWORKS: Final[Mapping[str, str]] = {
    "@angular/core": "Angular",
    "@nestjs/core": "NestJS",
    "@sveltejs/kit": "SvelteKit",
    "actix-web": "Actix",
    "astro": "Astro",
    "axum": "Axum",
    "django": "Django",
    "electron": "Electron",
    "expo": "Expo",
    "express": "Express",
    "fastapi": "FastAPI",
    "fastify": "Fastify",
    "flask": "Flask",
    "flutter": "Flutter",
    "github.com/gin-gonic/gin": "Gin",
    "github.com/gofiber/fiber": "Fiber",
    "github.com/labstack/echo": "Echo",
    "hono": "Hono",
    "laravel/framework": "Laravel",
    "next": "Next.js",
    "nuxt": "Nuxt",
    "org.springframework.boot": "Spring Boot",
    "phoenix": "Phoenix",
    "rails": "Rails",
    "react": "React",
    "react-native": "React Native",
    "sinatra": "Sinatra",
    "starlette": "Starlette",
    "streamlit": "Streamlit",
    "svelte": "Svelte",
    "symfony/framework-bundle": "Symfony",
    "tauri": "Tauri",
    "vapor": "Vapor",
    "vue": "Vue",
}
_LICENSES: Final = (
    (r"GNU AFFERO GENERAL PUBLIC LICENSE\s+Version 3", "AGPL-3.0"),
    (r"GNU LESSER GENERAL PUBLIC LICENSE\s+Version 3", "LGPL-3.0"),
    (r"GNU LESSER GENERAL PUBLIC LICENSE\s+Version 2\.1", "LGPL-2.1"),
    (r"GNU GENERAL PUBLIC LICENSE\s+Version 3", "GPL-3.0"),
    (r"GNU GENERAL PUBLIC LICENSE\s+Version 2", "GPL-2.0"),
    (r"Apache License\s+Version 2\.0", "Apache-2.0"),
    (r"Mozilla Public License,? [Vv]ersion 2\.0", "MPL-2.0"),
    (r"Permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"),
    (r"Permission to use, copy, modify, and(?:/or)? distribute this software", "ISC"),
    (r"Redistribution and use in source and binary forms[\s\S]*Neither the name", "BSD-3-Clause"),
    (r"Redistribution and use in source and binary forms", "BSD-2-Clause"),
    (r"This is free and unencumbered software", "Unlicense"),
)
"""The first one that matches a licence is its name."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file of the commit."""

    object_id: str
    size: int
    path: str
    """Decoded from UTF-8; invalid bytes are replaced."""
    is_plain: bool
    """Neither a link nor a submodule."""

    @property
    def depth(self) -> int:
        return self.path.count("/")

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The newest commit of a branch, as far as it was read."""

    branch: str
    commit: str
    tree: str
    committed_at: str
    top: bytes = field(repr=False)
    """Its root folder, as git lists it."""
    listing: Listing = field(repr=False)
    is_cut: bool
    """It has more files than were listed."""
    texts: dict[str, str] = field(repr=False)
    """The files that were read, by their paths."""


@dataclass(slots=True)
class Listing:
    """Statistics of the files of a commit. They are counted as git lists the files; only a few entries are kept."""

    files: int = 0
    bytes: int = 0
    spoken: Counter[str] = field(default_factory=Counter[str])
    """Bytes by language."""
    manifests: list[TreeEntry] = field(default_factory=list[TreeEntry])
    top: list[TreeEntry] = field(default_factory=list[TreeEntry])
    """The READMEs and licences in the root folder."""
    clients: dict[str, str] = field(default_factory=dict[str, str])
    """The object ids of files that may be a client of an earlier patch, by their paths."""
    is_cut: bool = False
    _rest: bytes = b""

    async def take(self, piece: bytes) -> None:
        """Process the next piece of git's output, which does not end where a line ends."""
        await asyncio.to_thread(self._take, piece)

    def _take(self, piece: bytes) -> None:
        *lines, rest = (self._rest + piece).split(b"\0")
        self._rest = rest[: 2 * _ENTRY_MAX]
        for line in lines:
            if self.files == ENTRIES_MAX:
                self.is_cut = True
                return
            if (entry := _entry(line)) is not None:
                self._count(entry)

    def _count(self, entry: TreeEntry) -> None:
        self.files += 1
        self.bytes += entry.size
        if not entry.is_plain:
            return
        is_other = _OTHERS.search(entry.path) is not None
        ending = entry.name.rpartition(".")[2].lower() if "." in entry.name else ""
        if ending in _LANGUAGES and not is_other:
            self.spoken[_LANGUAGES[ending]] += entry.size
        if _CLIENT.fullmatch(entry.path) and len(self.clients) < _CLIENTS_MAX:
            self.clients[entry.path] = entry.object_id
        if entry.size <= FILE_MAX:
            self._keep(entry, is_own=not is_other)

    def _keep(self, entry: TreeEntry, *, is_own: bool) -> None:
        """Keep the entries to read: manifests, the outermost first, and READMEs and licences in the root folder."""
        if is_own and manifests.is_manifest(entry.name):
            insort(self.manifests, entry, key=lambda each: (each.depth, each.path))
            del self.manifests[_MANIFESTS_MAX:]
        if entry.depth == 0 and _is_readme_or_license(entry.name) and len(self.top) < _MANIFESTS_MAX:
            self.top.append(entry)


async def look(git: Git) -> Repository:
    """Read the commit, list its files, and read those with facts about the project."""
    branch = (await git.run("symbolic-ref", "--short", "HEAD")).line
    commit, tree, committed_at = (await git.run("log", "-1", "--format=%H%n%T%n%cI", "HEAD")).line.split("\n")
    listing = Listing()
    words = ("ls-tree", "-r", "-l", "-z", "--full-tree", commit)
    listed = await git.run(*words, output_max=_LISTING_MAX, take=listing.take)
    top = await git.run("ls-tree", "-z", commit)
    if top.is_cut:
        raise PermanentError("The root directory of the repository contains too many files.", code="VALIDATION")
    return Repository(
        branch=branch,
        commit=commit,
        tree=tree,
        committed_at=committed_at,
        top=top.output,
        listing=listing,
        is_cut=listed.is_cut or listing.is_cut,
        texts=await _read(git, [*listing.manifests, *listing.top]),
    )


def _entry(line: bytes) -> TreeEntry | None:
    head, is_whole, path = line.partition(b"\t")
    words = head.split()
    if not is_whole or len(words) != 4 or len(path) > _ENTRY_MAX:  # noqa: PLR2004 - mode, type, object, size
        return None
    mode, _, object_id, size = words
    length = int(size) if size.isascii() and size.isdigit() else 0
    return TreeEntry(object_id.decode(), length, path.decode("utf-8", "replace"), is_plain=mode in _PLAIN_MODES)


def _is_readme_or_license(name: str) -> bool:
    return name.lower().startswith(("readme", "license", "licence", "copying"))


async def _read(git: Git, wanted: list[TreeEntry]) -> dict[str, str]:
    """The texts of files. They are read by their object ids: no name of a file is ever an argument."""
    if not wanted:
        return {}
    asked = "".join(f"{entry.object_id}\n" for entry in wanted).encode()
    content = (await git.run("cat-file", "--batch", given=asked, output_max=len(wanted) * (FILE_MAX + 200))).output
    texts: dict[str, str] = {}
    for entry in wanted:
        head, _, content = content.partition(b"\n")
        if head.endswith(b" missing"):
            continue
        texts[entry.path] = content[: entry.size].decode("utf-8", "replace")
        content = content[entry.size + 1 :]
    return texts


# Facts


def facts(repository: Repository, url: str) -> dict[str, Any]:
    """The facts that are merged into the project's context."""
    found = [manifests.read(path, text) for path, text in repository.texts.items() if _is_manifest(path)]
    title, paragraph = _readme(repository.texts)
    spoken = languages(repository.listing)
    own = found[0] if found else manifests.Manifest()
    members = {
        "url": url,
        "name": own.name or url.rstrip("/").rpartition("/")[2].removesuffix(".git"),
        "title": title,
        "description": own.description or paragraph,
        "readme": paragraph,
        "version": own.version,
        "license": _license(repository.texts) or own.license,
        "keywords": _keywords(found),
        "languages": dict(list(spoken.items())[:_LANGUAGES_MAX]),
        "mainLanguage": main_language(spoken),
        "frameworks": frameworks(found),
        "manifests": _manifests_to_wire(found),
        "branch": repository.branch,
        "headCommit": repository.commit,
        "committedAt": repository.committed_at,
        "files": repository.listing.files,
        "bytes": repository.listing.bytes,
        "isCut": repository.is_cut,
    }
    return {name: value for name, value in members.items() if value not in ("", None, [], {})}


def _manifests_to_wire(found: Iterable[Manifest]) -> list[dict[str, Any]]:
    """The manifests. Dependencies beyond the limit for all of them together are omitted."""
    rows: list[dict[str, Any]] = []
    room = _DEPENDENCIES_MAX
    for manifest in found:
        kept = manifest.dependencies[:room]
        room -= len(kept)
        rows.append(msgspec.to_builtins(msgspec.structs.replace(manifest, dependencies=kept)))
    return rows


def _is_manifest(path: str) -> bool:
    return manifests.is_manifest(path.rpartition("/")[2])


def languages(listing: Listing) -> dict[str, int]:
    """Bytes by language, the largest first."""
    return dict(sorted(listing.spoken.items(), key=lambda pair: (-pair[1], pair[0])))


def main_language(spoken: Mapping[str, int]) -> str | None:
    return next((name for name in spoken if name not in _MARKUP), next(iter(spoken), None))


def frameworks(found: Iterable[Manifest]) -> list[str]:
    """The frameworks, by the dependencies."""
    names = (name.lower() for manifest in found for name in manifest.dependencies)
    known = (_FRAMEWORKS.get(name) or _FRAMEWORKS.get(_without_version(name)) for name in names)
    return list(dict.fromkeys(label for label in known if label))


def _without_version(name: str) -> str:
    """The name without a version as in Go (``…/echo/v4``); of a Maven name (``group:name``), the group."""
    return re.sub(r"/v\d+$", "", name).partition(":")[0]


def _keywords(found: Iterable[Manifest]) -> list[str]:
    return list(dict.fromkeys(word for manifest in found for word in manifest.keywords))[:_KEYWORDS_MAX]


def _license(texts: Mapping[str, str]) -> str:
    for path, text in texts.items():
        if path.lower().startswith(("license", "licence", "copying")):
            return next((name for words, name in _LICENSES if re.search(words, text[:_HEAD])), "")
    return ""


def _readme(texts: Mapping[str, str]) -> tuple[str, str]:
    """The title of the README, and its first real paragraph: no badge, table, code or list."""
    found = sorted(path for path in texts if path.lower().startswith("readme"))
    text = re.sub(r"<!--[\s\S]*?-->|```[\s\S]*?(?:```|$)", "", texts[found[0]][:_HEAD]) if found else ""
    blocks = [block.strip() for block in re.split(r"\n\s*\n", text.replace("\r", "")) if block.strip()]
    title = next((heading for block in blocks if (heading := _heading(block))), "")
    return title, next((paragraph for block in blocks if (paragraph := _paragraph(block))), "")


def _heading(block: str) -> str:
    first, _, rest = block.partition("\n")
    if first.startswith("#") or re.match(r"(?:=+|-{3,})\s*$", rest):
        return _plain(first.strip("# "), _TITLE_MAX)
    found = re.match(r"<h1[^>]{0,200}>([\s\S]{1,500}?)</h1>", block, re.IGNORECASE)
    return _plain(found[1], _TITLE_MAX) if found else ""


def _paragraph(block: str) -> str:
    first, _, rest = block.partition("\n")
    if first.startswith("#"):
        block = rest
    is_other = re.match(r"\s*(?:[-*+>|]|\d+\.|={3,}|    |\.\. )", block) or re.match(r"(?:=+|-{3,})\s*$", rest)
    text = "" if is_other else _plain(block, _TEXT_MAX)
    return text if re.search(r"\w{2,}\W+\w{2,}", text) else ""


def _plain(text: str, limit: int) -> str:
    """The text of Markdown, without images, links and markup."""
    bare = re.sub(r"!\[[^\]]{0,300}\]\([^)]{0,1000}\)", "", text[: limit * 8])
    bare = re.sub(r"\[([^\]]{0,300})\](?:\([^)]{0,1000}\)|\[[^\]]{0,100}\])", r"\1", bare)
    return clean(re.sub(r"[*`]+|(?<!\w)_+|(?<!_)_+(?!\w)", "", bare), limit)
