"""Projects: what partners create content for, and the context of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID  # noqa: TC003 - kept for readers of the record

import msgspec

from millpond import ids, values
from millpond.errors import IdempotencyConflictError, LeaseLostError
from millpond.product import REPLAYED, principals, queries, reply
from millpond_products.partner import envelopes, identifiers, wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from millpond.product import Call, Engine, Reply
    from millpond_products.partner.wire import Source

SQL: Final = queries("millpond_products.partner", "projects")

_KEYWORDS_MAX: Final = 20
_KEYWORD_LENGTH_MAX: Final = 100
_NAME_LENGTH_MAX: Final = 200
_TEXT_LENGTH_MAX: Final = 4_000
_BELIEVED: Final[tuple[Source, ...]] = ("appstore", "website", "github")
"""The sources in order of precedence."""
_NAMES: Final = ("name", "title", "siteName")
_DESCRIPTIONS: Final = ("description", "summary", "excerpt")
_CATEGORIES: Final = ("category", "genre", "primaryGenre")
_WORDS: Final = ("keywords", "genres", "topics")
_SUMMED: Final = (*_NAMES, *_DESCRIPTIONS, *_CATEGORIES, *_WORDS)
"""The facts that a summary is made from."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project as it is stored."""

    project_id: UUID
    tenant: str
    account: str
    name: str
    description: str | None
    context: str
    created_at: datetime
    updated_at: datetime

    @property
    def known(self) -> dict[str, Any]:
        """The context, with its summary."""
        return msgspec.json.decode(self.context) | self.in_short

    @property
    def in_short(self) -> dict[str, Any]:
        """The summary alone, which jobs and lists need. It is small, however large the context is."""
        return {"summary": summary(msgspec.json.decode(self.context), self.name, self.description)}


async def find(engine: Engine, tenant: str, account: str, project_id: UUID) -> Project:
    """A project, if it belongs to the account."""
    row = await engine.database(tenant).read(SQL["read"], tenant, account, project_id)
    if row is None:
        raise identifiers.absent("prj", project_id, field="projectId")
    return Project(*row)


async def named(call: Call) -> Project:
    """The project that the path names, if it is the caller's."""
    project_id = identifiers.parse("prj", call.params["projectId"], field="projectId")
    return await find(call.engine, *principals.owner(call), project_id)


# The context


async def merge(engine: Engine, job: Any, project_id: UUID, source: Source, facts: Mapping[str, Any]) -> None:
    """Merge the facts that a job has found. An attempt that no longer holds the job changes nothing.

    Merging twice has the same effect as once, and the facts of a job that was submitted later are kept.
    """
    encoded = values.encode(dict(facts), field=source)
    held = await engine.database(job.tenant).run(
        SQL["merge"], ids.parse("job", job.id), job.tenant, job.epoch, project_id, source, encoded
    )
    if held is None:
        raise LeaseLostError


def summary(context: Mapping[str, Any], name: str, description: str | None = None) -> dict[str, Any]:
    """A summary of the context: each value is from the first source that has it, or else from the project itself."""
    found = [context[source] for source in _BELIEVED if isinstance(context.get(source), dict)]
    words = [word for facts in found for label in _WORDS for word in _texts(facts.get(label))]
    return {
        "name": _first(found, _NAMES, _NAME_LENGTH_MAX) or name,
        "description": _first(found, _DESCRIPTIONS, _TEXT_LENGTH_MAX) or description,
        "category": _first(found, _CATEGORIES, _NAME_LENGTH_MAX),
        "keywords": list(dict.fromkeys(words))[:_KEYWORDS_MAX],
    }


def _first(found: list[dict[str, Any]], names: tuple[str, ...], limit: int) -> str | None:
    texts = (facts.get(name) for facts in found for name in names)
    return next((text[:limit] for text in texts if isinstance(text, str) and text.strip()), None)


def _texts(given: Any) -> list[str]:
    found = cast("list[Any]", given) if isinstance(given, list) else []
    return [word for word in found if isinstance(word, str) and 0 < len(word) <= _KEYWORD_LENGTH_MAX]


# Over HTTP


async def make(call: Call) -> Reply:
    """Make a project. If its key has made one already, answer with that, in its first state."""
    tenant, account = principals.owner(call)
    key, body = identifiers.key(call), call.body
    database = call.engine.database(tenant)
    request = None if key is None else values.encode(msgspec.to_builtins(body), field="request")
    row = await database.run(SQL["make"], ids.new(), tenant, account, body.name, body.description, key, request)
    if row is not None:
        return reply(to_wire(Project(*row)), 201)
    *kept, is_same = await database.run(SQL["keyed"], tenant, account, key, request)
    if not is_same:
        raise IdempotencyConflictError(field="Idempotency-Key")
    return reply(to_wire(Project(*kept)), 201, REPLAYED)


async def read(call: Call) -> Reply:
    return reply(to_wire(await named(call)))


async def list_projects(call: Call) -> Reply:
    before, limit = identifiers.cursor("prj", call.query.cursor), call.query.limit
    tenant, account = principals.owner(call)
    rows = await call.engine.database(tenant).read(SQL["list"], tenant, account, before, limit + 1, list(_SUMMED))
    found = [Project(*row) for row in rows[:limit]]
    following = identifiers.text("prj", found[-1].project_id) if len(rows) > limit else None
    data = [_to_wire(project, project.in_short) for project in found]
    return reply(wire.Projects(data=data, next_cursor=following))


def to_wire(project: Project) -> wire.Project:
    return _to_wire(project, project.known)


def _to_wire(project: Project, known: dict[str, Any]) -> wire.Project:
    return wire.Project(
        project_id=identifiers.text("prj", project.project_id),
        name=project.name,
        description=project.description,
        context=msgspec.convert(known, wire.Context),
        created_at=envelopes.timestamp(project.created_at),
        updated_at=envelopes.timestamp(project.updated_at),
    )
