"""Manifests: the files in which a repository declares its name, its dependencies and so on.

They are read, never run. A file that is broken, or that only its own tool can interpret, yields nothing.
"""

from __future__ import annotations

import re
import tomllib
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond_products.pages.reading import clean, first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DEPENDENCIES_MAX: Final = 60
NAME_MAX: Final = 120
TEXT_MAX: Final = 500
_KEYWORDS_MAX: Final = 20
_LOOKED_AT_MAX: Final = 1_000
"""Names that are read: many may be empty, or the same."""
_LINE_MAX: Final = 2_000
_LINES_MAX: Final = 10_000
_TOML_MAX: Final = 64 * 1024
_DOTS_MAX: Final = 40


class Manifest(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """The contents of a manifest."""

    path: str = ""
    ecosystem: str = ""
    name: str = ""
    version: str = ""
    description: str = ""
    license: str = ""
    keywords: list[str] = []
    dependencies: list[str] = []


def is_manifest(file_name: str) -> bool:
    return _NAMES.fullmatch(file_name) is not None


def read(path: str, text: str) -> Manifest:
    file_name = path.rpartition("/")[2]
    for pattern, known, reader in _READERS:
        if re.fullmatch(pattern, file_name):
            try:
                found = reader(text)
            except (ValueError, RecursionError):
                found = Manifest()
            found.path, found.ecosystem = clean(path, NAME_MAX * 2), known
            return found
    raise ValueError(f"{file_name!r} is not a manifest.")


# Members of decoded values of any type


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value


def _texts(value: Any) -> list[str]:
    """The texts of a list, or the names of the members of an object."""
    parts: Iterable[Any] = cast("Iterable[Any]", value) if isinstance(value, list | dict) else ()
    return [part for part in parts if isinstance(part, str)]


def _unique(names: Iterable[str], limit: int = DEPENDENCIES_MAX) -> list[str]:
    found: dict[str, None] = {}
    for name in islice(names, _LOOKED_AT_MAX):
        if cleaned := clean(name, NAME_MAX):
            found[cleaned] = None
        if len(found) == limit:
            break
    return list(found)


def _lines(text: str) -> list[str]:
    """The lines that are not too long to have been written by a person."""
    return [line for line in text.split("\n", _LINES_MAX)[:_LINES_MAX] if len(line) <= _LINE_MAX]


def _toml(text: str) -> Any:
    """Decode what is decoded fast: for each dot in a name or its table's name, the parser reads all parts before it."""
    is_plain = all(len(line) <= _LINE_MAX and line.count(".") <= _DOTS_MAX for line in text.split("\n"))
    if len(text) > _TOML_MAX or not is_plain:
        raise ValueError("The file is too long, or nested too deeply.")
    return tomllib.loads(text)


def _manifest(value: Any, *, dependencies: Iterable[str]) -> Manifest:
    """A manifest by the members that most formats share."""
    terms = _at(value, "license")
    return Manifest(
        name=first(NAME_MAX, _at(value, "name")),
        version=first(40, _at(value, "version")),
        description=first(TEXT_MAX, _at(value, "description")),
        license=first(80, terms, _at(terms, "text"), _at(terms, "type")),
        keywords=_unique(_texts(_at(value, "keywords")), _KEYWORDS_MAX),
        dependencies=_unique(dependencies),
    )


def _requirement(line: str) -> str:
    """The name at the beginning of a requirement: ``httpx[http2]>=0.27 ; python_version < '4'``."""
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line)
    return found[1] if found else ""


# One reader for each


def _package_json(text: str) -> Manifest:
    content = msgspec.json.decode(text.encode())
    groups = (_at(content, group) for group in ("dependencies", "devDependencies", "peerDependencies"))
    return _manifest(content, dependencies=[name for group in groups for name in _texts(group)])


def _composer_json(text: str) -> Manifest:
    content = msgspec.json.decode(text.encode())
    groups = (_at(content, group) for group in ("require", "require-dev"))
    return _manifest(content, dependencies=[name for group in groups for name in _texts(group)])


def _pyproject(text: str) -> Manifest:
    content = _toml(text)
    poetry = _at(content, "tool", "poetry")
    wanted = [_requirement(line) for line in _texts(_at(content, "project", "dependencies"))]
    wanted += [name for name in _texts(_at(poetry, "dependencies")) if name != "python"]
    return _manifest(_at(content, "project") or poetry, dependencies=wanted)


def _requirements(text: str) -> Manifest:
    lines = (line.partition("#")[0].strip() for line in _lines(text))
    return Manifest(dependencies=_unique(_requirement(line) for line in lines if line and not line.startswith("-")))


def _cargo(text: str) -> Manifest:
    content = _toml(text)
    groups = (_at(content, group) for group in ("dependencies", "dev-dependencies", "build-dependencies"))
    return _manifest(_at(content, "package"), dependencies=[name for group in groups for name in _texts(group)])


def _go_mod(text: str) -> Manifest:
    lines = [line.split() for line in _lines(text)]
    name = next((words[1] for words in lines if len(words) > 1 and words[0] == "module"), "")
    wanted = (words[1:] if words[0] == "require" else words for words in lines if words)
    return Manifest(name=clean(name, NAME_MAX), dependencies=_unique(each[0] for each in wanted if _is_required(each)))


def _is_required(words: list[str]) -> bool:
    """Whether these are the path of a module and its version: ``github.com/x/y v1.0.0``."""
    return len(words) > 1 and "." in words[0].partition("/")[0] and re.match(r"v\d", words[1]) is not None


def _pom(text: str) -> Manifest:
    """Read by its tags alone: an XML parser would also expand the entities that the file defines."""
    own = text
    for part in ("parent", "dependencies", "dependencyManagement", "build", "profiles"):
        own = _without(own, part)
    wanted = re.findall(
        r"<dependency>\s*<groupId>([^<]{1,200})</groupId>\s*<artifactId>([^<]{1,200})</artifactId>", text
    )
    return Manifest(
        name=_tag(own, "artifactId"),
        version=_tag(own, "version"),
        description=_tag(own, "description"),
        dependencies=_unique(f"{group.strip()}:{name.strip()}" for group, name in wanted),
    )


def _without(text: str, tag: str) -> str:
    """The text without the contents of these tags. It is searched once, however often a tag is opened."""
    kept: list[str] = []
    start = 0
    while (opened := text.find(f"<{tag}>", start)) >= 0 and (closed := text.find(f"</{tag}>", opened)) >= 0:
        kept.append(text[start:opened])
        start = closed
    return "".join([*kept, text[start:]])


def _csproj(text: str) -> Manifest:
    wanted = re.findall(r"""<PackageReference\s[^>]{0,200}?Include="([^"]{1,200})\"""", text)
    return Manifest(name=_tag(text, "AssemblyName"), version=_tag(text, "Version"), dependencies=_unique(wanted))


def _tag(text: str, name: str) -> str:
    found = re.search(rf"<{name}>([^<]{{1,1000}})</{name}>", text)
    return clean(found[1], TEXT_MAX) if found else ""


def _quoted(*patterns: str, name: str | None = None) -> Callable[[str], Manifest]:
    """A reader of manifests that are programs: it takes quoted strings after certain words."""

    def reader(text: str) -> Manifest:
        called = re.search(name, text) if name else None
        wanted = [found for pattern in patterns for found in re.findall(pattern, text, re.MULTILINE)]
        return Manifest(name=clean(called[1], NAME_MAX) if called else "", dependencies=_unique(wanted))

    return reader


def _pubspec(text: str) -> Manifest:
    def top(word: str) -> str:
        found = re.search(rf"^{word}:[ \t]*(\S.*)$", text, re.MULTILINE)
        return clean(found[1].strip("'\" "), TEXT_MAX) if found else ""

    blocks = re.findall(r"^(?:dev_)?dependencies:[ \t]*\n((?:[ \t]+.*\n|\n)*)", text + "\n", re.MULTILINE)
    wanted = [found for block in blocks for found in re.findall(r"^  ([a-z_0-9]+):", block, re.MULTILINE)]
    return Manifest(
        name=top("name"), version=top("version"), description=top("description"), dependencies=_unique(wanted)
    )


_GRADLE: Final = (
    r"""^[ \t]*(?:api|implementation|compileOnly|runtimeOnly|kapt|testImplementation)[ (]+["']([\w.-]+:[\w.-]+)""",
    r"""^[ \t]*id[ (]+["']([\w.-]+)["']""",
)
_READERS: Final[tuple[tuple[str, str, Callable[[str], Manifest]], ...]] = (
    (r"package\.json", "npm", _package_json),
    (r"pyproject\.toml", "pypi", _pyproject),
    (r"requirements[\w.-]{0,40}\.txt", "pypi", _requirements),
    (r"Cargo\.toml", "cargo", _cargo),
    (r"go\.mod", "go", _go_mod),
    (r"Gemfile", "rubygems", _quoted(r"""^[ \t]*gem[ \t]+["']([\w.-]+)""")),
    (r"composer\.json", "packagist", _composer_json),
    (r"pom\.xml", "maven", _pom),
    (r"build\.gradle(?:\.kts)?", "maven", _quoted(*_GRADLE)),
    (r"Package\.swift", "swift", _quoted(r"url:\s*\"([^\"]{1,200})\"", name=r"name:\s*\"([^\"]{1,200})\"")),
    (r"Podfile", "cocoapods", _quoted(r"""^[ \t]*pod[ \t]+["']([\w./+-]+)""", name=r"""target[ \t]+["']([^"']+)""")),
    (r"pubspec\.yaml", "pub", _pubspec),
    (r"[\w.-]{1,100}\.csproj", "nuget", _csproj),
)
_NAMES: Final = re.compile("|".join(f"(?:{pattern})" for pattern, _, _ in _READERS))
"""All of them in one pattern: a repository may have very many files."""
