"""Sets: the compiled rules of each tenant. A change applies to the next decision, in every process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from millpond import ids
from millpond.errors import ConflictError, InputError
from millpond.product import queries
from millpond_products import rules
from millpond_products.rules import RULES_MAX
from millpond_products.rules.gate import screen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from millpond.product import Engine
    from millpond_products.rules import Classifier, Decision, Direction, Rule, RuleSet

    Row = Mapping[str, Any]

SQL: Final = queries("millpond_products.guard", "sets")

KEPT_MAX: Final = 1_000
"""How many tenants' compiled rules are cached; the least recently used are removed."""
KEPT_SIZE_MAX: Final = 500_000
"""The total size of the cached rules, in words, domains and steps of patterns."""
COMPILED_AT_ONCE: Final = 2
"""How many rule sets are compiled at the same time, of all tenants."""
CLASSIFIERS: Final = "millpond.classifiers"
"""The entry point group with which installed packages offer classifiers."""
WAYS: Final[tuple[Direction, ...]] = ("inbound", "outbound")
_MEMBERS: Final = ("name", "direction", "action", "mode")

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Compiled:
    """The rules of a tenant, at a version."""

    version: int
    ways: Mapping[Direction, RuleSet]

    @property
    def size(self) -> int:
        return sum(rules.size for rules in self.ways.values())


class Sets:
    """The rules of an engine's tenants."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: OrderedDict[str, Compiled] = OrderedDict()
        self._size = 0
        self._compiling: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._turns = asyncio.Semaphore(COMPILED_AT_ONCE)

    def changing(self, tenant: str) -> asyncio.Lock:
        """The lock for changes of a tenant's rules in this process. It avoids version conflicts between them."""
        return self._changing.setdefault(tenant, asyncio.Lock())

    async def of(self, tenant: str) -> Compiled:
        """The current rules. Only their version is read, unless it has changed."""
        database = self._engine.database(tenant)
        row = await database.run(SQL["version"], tenant)
        version = 0 if row is None else row["version"]
        found = self._known(tenant, version)
        if found is not None:
            return found
        async with self._compiling.setdefault(tenant, asyncio.Lock()):
            found = self._known(tenant, version)
            if found is None:
                rows = await database.run(SQL["applied"], tenant)
                found = Compiled(_version(rows), await self._in_turn(lambda: _compiled(_stored(rows))))
                self._keep(tenant, found)
            return found

    async def decide(self, tenant: str, direction: Direction, text: str) -> Decision:
        return await (await self.of(tenant)).ways[direction].decide(text)

    async def check(self, tenant: str, rule_id: UUID, given: msgspec.Struct) -> int:
        """Refuse a rule that cannot be applied, alone or with the others. Return the version of the others."""
        rows = await self._engine.database(tenant).run(SQL["applied"], tenant)
        rules_by_id = _stored(rows)
        rules_by_id[ids.text("rule", rule_id)] = msgspec.to_builtins(given)
        if len(rules_by_id) > RULES_MAX:
            raise ConflictError(f"The limit of {RULES_MAX:,} rules is reached.", hint="Delete a rule first.")
        place = list(rules_by_id).index(ids.text("rule", rule_id))
        try:
            await self._in_turn(lambda: _compiled(rules_by_id))
        except InputError as refusal:
            raise _about(refusal, place, [rule["name"] for rule in rules_by_id.values()]) from None
        return _version(rows)

    async def trial(self, given: Sequence[msgspec.Struct], direction: Direction) -> RuleSet:
        """Compile rules that are not stored."""
        return await self._in_turn(lambda: _trial(given, direction))

    async def _in_turn(self, work: Callable[[], Made]) -> Made:
        """Compile in a thread, because many words take seconds. The limit keeps other threads free."""
        async with self._turns:
            return await asyncio.to_thread(work)

    def _known(self, tenant: str, version: int) -> Compiled | None:
        found = self._kept.get(tenant)
        if found is None or found.version != version:
            return None
        self._kept.move_to_end(tenant)
        return found

    def _keep(self, tenant: str, found: Compiled) -> None:
        """Cache rules and remove the least recently used ones. The last entry stays, however large it is."""
        before = self._kept.pop(tenant, None)
        self._kept[tenant] = found
        self._size += found.size - (before.size if before else 0)
        while len(self._kept) > 1 and (len(self._kept) > KEPT_MAX or self._size > KEPT_SIZE_MAX):
            _, gone = self._kept.popitem(last=False)
            self._size -= gone.size


_sets: WeakKeyDictionary[Engine, Sets] = WeakKeyDictionary()


def sets_of(engine: Engine) -> Sets:
    """The sets of an engine. Its jobs, routes and gate share the compiled rules."""
    return _sets.setdefault(engine, Sets(engine))


class RulesOfTenant:
    """A gate that applies the rules of the job's tenant. Kinds of any product can use it."""

    def __init__(self, sets: Sets) -> None:
        self._sets = sets

    async def inbound(self, tenant: str, given: Any) -> Any:
        return await screen((await self._sets.of(tenant)).ways["inbound"], tenant, given, field="input")

    async def outbound(self, tenant: str, given: Any) -> Any:
        return await screen((await self._sets.of(tenant)).ways["outbound"], tenant, given, field="output")


def to_wire(decision: Decision) -> dict[str, Any]:
    """The verdicts as JSON. Their number is limited; `more` is the number of omitted ones."""
    verdicts = [msgspec.to_builtins(verdict) for verdict in decision.verdicts]
    return {"verdicts": verdicts} | ({"more": decision.more} if decision.more else {})


# Compiling


def _trial(given: Sequence[msgspec.Struct], direction: Direction) -> RuleSet:
    read = [rules.read(msgspec.to_builtins(one), field=f"rules[{place}]") for place, one in enumerate(given)]
    return rules.compile(read, direction, classifiers=_classifiers())


def _stored(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The stored rules by id, in order."""
    return {
        ids.text("rule", row["id"]): {name: row[name] for name in _MEMBERS}
        | {"matcher": msgspec.json.decode(row["matcher"])}
        for row in rows
        if row["id"] is not None
    }


def _version(rows: Sequence[Row]) -> int:
    return rows[0]["version"] if rows else 0


def _compiled(given: Mapping[str, Mapping[str, Any]]) -> dict[Direction, RuleSet]:
    read: list[Rule] = [
        rules.read({**rule, "id": rule_id}, field=f"rules[{place}]")
        for place, (rule_id, rule) in enumerate(given.items())
    ]
    return {way: rules.compile(read, way, classifiers=_classifiers()) for way in WAYS}


def _about(refusal: InputError, place: int, names: Sequence[str]) -> InputError:
    """Translate the error of one rule among all: its field becomes the field of the request."""
    field = refusal.field or ""
    own = f"rules[{place}]."
    if field.startswith(own):
        return InputError(refusal.message, field=field.removeprefix(own), hint=refusal.hint)
    found = next((name for number, name in enumerate(names) if field.startswith(f"rules[{number}]")), None)
    if found is None:
        return InputError(refusal.message, field="matcher", hint=refusal.hint)
    message = f"The existing rule {found[:80]!r} cannot be applied: {refusal.message}"
    return InputError(message, hint="Change or delete that rule first.")


@cache
def _classifiers() -> Mapping[str, Classifier]:
    """The classifiers of installed packages, by the names of their entry points. Classes are instantiated."""
    found: dict[str, Any] = {point.name: point.load() for point in entry_points(group=CLASSIFIERS)}
    return {name: given() if isinstance(given, type) else given for name, given in found.items()}
