"""The manual: the OpenAPI document as one HTML page, without scripts and without external resources."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.api import problems
from millpond.api.documents import schemas
from millpond.api.documents.advice import ADVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millpond.errors import MillpondError

    StatusOf = Callable[[type[MillpondError]], int]

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #0a6b8a; }
@media (prefers-color-scheme: dark) { :root { --accent: #6cc5e0; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
a { color: var(--accent); } h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
section { margin: 2rem 0; } nav ul { columns: 2; padding-left: 1rem; }
code, pre { font: 0.88em/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: 0.75rem; overflow-x: auto; border-radius: 0.3rem; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-top: 1px solid var(--line); }
.verb { display: inline-block; min-width: 4.5rem; font-weight: 700; color: var(--accent); }
"""
POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'"
)
_CODE: Final = re.compile(r"`([^`]+)`")


def page(document: dict[str, Any], root: str, status_of: StatusOf) -> str:
    """The whole document as HTML."""
    info, shapes = document["info"], document["components"]["schemas"]
    groups = {tag["name"]: tag["description"] for tag in document["tags"]}
    body = "".join(
        [
            f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>",
            _paragraphs(info["description"]),
            f"<p>As data: <a href='{escape(root)}/openapi.json'>openapi.json</a></p>",
            _contents(document),
            *(_group(name, description, document, root) for name, description in groups.items()),
            "<h2 id='shapes'>Shapes</h2>",
            *(_shape(name, schema) for name, schema in sorted(shapes.items())),
            "<h2 id='problems'>Problems</h2>",
            _table(
                ("code", "status", "meaning"),
                (_problem_row(kind, root, status_of(kind)) for kind in problems.all_errors()),
            ),
        ]
    )
    return _html(info["title"], body)


def problem_page(kind: type[MillpondError], root: str, status_of: StatusOf) -> str:
    """What one code means and what to do about it."""
    body = (
        f"<h1><code>{kind.code}</code></h1><p>{escape(problems.title(kind))}.</p><p>{_inline(ADVICE[kind.code])}</p><p>"
        f"HTTP status {status_of(kind)}. A retry {'may succeed' if kind.retryable else 'fails again'}.</p><p><a "
        f"href='{escape(root)}/docs#problems'>All problems</a></p>"
    )
    return _html(kind.code, body)


def _html(title: str, body: str) -> str:
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>"
    )


def _contents(document: dict[str, Any]) -> str:
    lines = (
        f"<li><a href='#{operation['operationId']}'><span class='verb'>{method.upper()}</span>"
        f" <code>{escape(path)}</code></a></li>"
        for path, method, operation in _operations(document)
    )
    return f"<nav><ul>{''.join(lines)}</ul></nav>"


def _group(name: str, description: str, document: dict[str, Any], root: str) -> str:
    sections = [
        _section(path, method, operation, root)
        for path, method, operation in _operations(document)
        if name in operation["tags"]
    ]
    return f"<h2 id='{name}'>{name}</h2><p>{escape(description)}</p>{''.join(sections)}"


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _section(path: str, method: str, operation: dict[str, Any], root: str) -> str:
    parts = [
        f"<section id='{operation['operationId']}'>",
        f"<h3><span class='verb'>{method.upper()}</span> <code>{escape(root + path)}</code></h3>",
        f"<p>{_inline(operation['description'])}</p>",
        f"<pre>{escape(_curl(root + path, method, operation))}</pre>",
    ]
    if operation["parameters"]:
        rows = (_parameter_row(parameter) for parameter in operation["parameters"])
        parts.append(_table(("parameter", "in", "type", "meaning"), rows))
    if "requestBody" in operation:
        parts.append(f"<p>Body: {schemas.in_short(_content(operation['requestBody'])['schema'])}</p>")
    parts.append(_table(("status", "answer", "meaning"), map(_answer_row, operation["responses"].items())))
    return "".join([*parts, *_examples(operation), "</section>"])


def _examples(operation: dict[str, Any]) -> Iterator[str]:
    for status, answer in operation["responses"].items():
        if "content" in answer and "example" in (content := _content(answer)):
            yield f"<p>{status}, for example:</p><pre>{escape(_pretty(content['example']))}</pre>"
            return


def _curl(path: str, method: str, operation: dict[str, Any]) -> str:
    line = "curl" if method == "get" else f"curl -X {method.upper()}"
    line += f" $MILLPOND_URL{path}"
    if operation["security"]:
        line += ' \\\n  -H "Authorization: Bearer $MILLPOND_API_KEY"'
    if "requestBody" in operation:
        body = msgspec.json.encode(_content(operation["requestBody"])["example"]).decode()
        line += f" \\\n  -H 'Content-Type: application/json' -d '{body}'"
    return line


def _content(described: dict[str, Any]) -> dict[str, Any]:
    return next(iter(described["content"].values()))


def _parameter_row(parameter: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"<code>{escape(parameter['name'])}</code>",
        parameter["in"],
        schemas.in_short(parameter["schema"]),
        _inline(parameter["description"]),
    )


def _answer_row(item: tuple[str, dict[str, Any]]) -> tuple[str, ...]:
    status, answer = item
    contents = answer.get("content", {}).values()
    types = (schemas.in_short(content.get("schema") or content["itemSchema"]) for content in contents)
    return status, ", ".join(dict.fromkeys(types)), _inline(answer["description"])


def _problem_row(kind: type[MillpondError], root: str, status: int) -> tuple[str, ...]:
    return (
        f"<a href='{escape(root)}{problems.DOCS}{kind.code}'><code>{kind.code}</code></a>",
        str(status),
        escape(f"{problems.title(kind)}."),
    )


def _shape(name: str, schema: dict[str, Any]) -> str:
    head = f"<section id='shape-{escape(name)}'><h3>{escape(name)}</h3><p>{_inline(schema.get('description', ''))}</p>"
    required = schema.get("required", ())
    rows = (
        (
            f"<code>{escape(member)}</code>{'' if member in required else ' <small>(optional)</small>'}",
            schemas.in_short(below),
            _inline(schemas.meaning(below)),
        )
        for member, below in schema.get("properties", {}).items()
    )
    table = (
        _table(("field", "type", "meaning"), rows) if schema.get("properties") else f"<p>{schemas.in_short(schema)}</p>"
    )
    return f"{head}{table}</section>"


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>{lines}</table>"


def _paragraphs(text: str) -> str:
    parts = text.strip().split("\n\n")
    return "".join(_tabulated(part) if part.startswith("|") else f"<p>{_inline(part)}</p>" for part in parts)


def _tabulated(part: str) -> str:
    """A Markdown table as HTML."""
    head, _, *rows = (tuple(_inline(cell.strip()) for cell in line.strip("|").split("|")) for line in part.splitlines())
    return _table(head, rows)


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
