"""Projects: what partners make things for, and what is known of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID  # noqa: TC003 - kept for readers of the record

import msgspec

from millpond import ids, values
from millpond.api import principals
from millpond.api.calls import REPLAYED, reply
from millpond.blueprints.partner import envelopes, identifiers, wire
from millpond.errors import IdempotencyConflictError, LeaseLostError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from millpond.api.calls import Call, Reply
    from millpond.blueprints.partner.wire import Source
    from millpond.engine.engine import Engine

SQL: Final = queries("millpond.blueprints.partner", "projects")

_KEYWORDS_MAX: Final = 20
_KEYWORD_LENGTH_MAX: Final = 100
_NAME_LENGTH_MAX: Final = 200
_TEXT_LENGTH_MAX: Final = 4_000
_BELIEVED: Final[tuple[Source, ...]] = ("appstore", "website", "github")
"""Who is believed first."""
_NAMES: Final = ("name", "title", "siteName")
_DESCRIPTIONS: Final = ("description", "summary", "excerpt")
_CATEGORIES: Final = ("category", "genre", "primaryGenre")
_WORDS: Final = ("keywords", "genres", "topics")
_SUMMED: Final = (*_NAMES, *_DESCRIPTIONS, *_CATEGORIES, *_WORDS)
"""The facts that a summary is made from."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project as it is kept."""

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
        """What was found out, and that in short."""
        return msgspec.json.decode(self.context) | self.in_short

    @property
    def in_short(self) -> dict[str, Any]:
        """The summary alone, which is small however much was found out: what jobs and lists need to know."""
        return {"summary": summary(msgspec.json.decode(self.context), self.name, self.description)}


async def find(engine: Engine, tenant: str, account: str, project_id: UUID) -> Project:
    """A project, if it is theirs."""
    row = await engine.home(tenant).read(SQL["read"], tenant, account, project_id)
    if row is None:
        raise identifiers.absent("prj", project_id, field="projectId")
    return Project(*row)


async def named(call: Call) -> Project:
    """The project that the path names, if it is the caller's."""
    project_id = identifiers.parse("prj", call.params["projectId"], field="projectId")
    return await find(call.engine, *principals.owner(call), project_id)


# What is known


async def merge(engine: Engine, job: Any, project_id: UUID, source: Source, facts: Mapping[str, Any]) -> None:
    """Write down what a job has found out. An attempt that does not hold it any more changes nothing.

    Done twice it is done once; and what a job found that was submitted later stays.
    """
    told = values.encode(dict(facts), field=source)
    held = await engine.home(job.tenant).run(
        SQL["merge"], ids.parse("job", job.id), job.tenant, job.epoch, project_id, source, told
    )
    if held is None:
        raise LeaseLostError


def summary(context: Mapping[str, Any], name: str, description: str | None = None) -> dict[str, Any]:
    """What is known in short, from whoever is believed first, and at last from who made the project."""
    found = [context[source] for source in _BELIEVED if isinstance(context.get(source), dict)]
    words = [word for facts in found for label in _WORDS for word in _texts(facts.get(label))]
    return {
        "name": _first(found, _NAMES, _NAME_LENGTH_MAX) or name,
        "description": _first(found, _DESCRIPTIONS, _TEXT_LENGTH_MAX) or description,
        "category": _first(found, _CATEGORIES, _NAME_LENGTH_MAX),
        "keywords": list(dict.fromkeys(words))[:_KEYWORDS_MAX],
    }


def _first(found: list[dict[str, Any]], names: tuple[str, ...], most: int) -> str | None:
    told = (facts.get(name) for facts in found for name in names)
    return next((text[:most] for text in told if isinstance(text, str) and text.strip()), None)


def _texts(given: Any) -> list[str]:
    found = cast("list[Any]", given) if isinstance(given, list) else []
    return [word for word in found if isinstance(word, str) and 0 < len(word) <= _KEYWORD_LENGTH_MAX]


# Over HTTP


async def make(call: Call) -> Reply:
    """A project; a key that has made one answers with that, as it was then."""
    tenant, account = principals.owner(call)
    key, body = identifiers.key(call), call.body
    home = call.engine.home(tenant)
    asked = None if key is None else values.encode(msgspec.to_builtins(body), field="request")
    row = await home.run(SQL["make"], ids.new(), tenant, account, body.name, body.description, key, asked)
    if row is not None:
        return reply(told(Project(*row)), 201)
    *kept, is_same = await home.run(SQL["keyed"], tenant, account, key, asked)
    if not is_same:
        raise IdempotencyConflictError(field="Idempotency-Key")
    return reply(told(Project(*kept)), 201, REPLAYED)


async def read(call: Call) -> Reply:
    return reply(told(await named(call)))


async def list_projects(call: Call) -> Reply:
    before, limit = identifiers.cursor("prj", call.query.cursor), call.query.limit
    tenant, account = principals.owner(call)
    rows = await call.engine.home(tenant).read(SQL["list"], tenant, account, before, limit + 1, list(_SUMMED))
    found = [Project(*row) for row in rows[:limit]]
    following = identifiers.text("prj", found[-1].project_id) if len(rows) > limit else None
    data = [_told(project, project.in_short) for project in found]
    return reply(wire.Projects(data=data, next_cursor=following))


def told(project: Project) -> wire.Project:
    return _told(project, project.known)


def _told(project: Project, known: dict[str, Any]) -> wire.Project:
    return wire.Project(
        project_id=identifiers.text("prj", project.project_id),
        name=project.name,
        description=project.description,
        context=msgspec.convert(known, wire.Context),
        created_at=envelopes.moment(project.created_at),
        updated_at=envelopes.moment(project.updated_at),
    )
