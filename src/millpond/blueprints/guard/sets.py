"""Sets: the rules of each tenant, compiled. A change is seen by the next decision, in whatever process that is made."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from millpond import ids, rules
from millpond.errors import ConflictError, InputError
from millpond.rules import RULES_MAX
from millpond.rules.gate import screen
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.rules import Classifier, Decision, Direction, Rule, RuleSet

    Row = Mapping[str, Any]

SQL: Final = queries("millpond.blueprints.guard", "sets")

KEPT_MAX: Final = 1_000
"""How many tenants' rules are kept compiled; those that were not used for longest go."""
KEPT_SIZE_MAX: Final = 500_000
"""How large they may be together, in words, domains and steps of patterns."""
COMPILED_AT_ONCE: Final = 2
"""Rules that are compiled at the same time, of whomever they are."""
CLASSIFIERS: Final = "millpond.classifiers"
"""The entry points by which an installed package offers classifiers."""
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
        """Held by whoever changes a tenant's rules here: they need not find out by versions that they are several."""
        return self._changing.setdefault(tenant, asyncio.Lock())

    async def of(self, tenant: str) -> Compiled:
        """What holds now: only the version is asked for, unless there is another."""
        home = self._engine.home(tenant)
        row = await home.run(SQL["version"], tenant)
        version = 0 if row is None else row["version"]
        found = self._known(tenant, version)
        if found is not None:
            return found
        async with self._compiling.setdefault(tenant, asyncio.Lock()):
            found = self._known(tenant, version)
            if found is None:
                rows = await home.run(SQL["applied"], tenant)
                found = Compiled(_version(rows), await self._in_turn(lambda: _compiled(_stored(rows))))
                self._keep(tenant, found)
            return found

    async def decide(self, tenant: str, direction: Direction, text: str) -> Decision:
        return await (await self.of(tenant)).ways[direction].decide(text)

    async def check(self, tenant: str, rule_id: UUID, given: msgspec.Struct) -> int:
        """Refuse a rule that could not be applied, alone or with the others; tells the version they are at."""
        rows = await self._engine.home(tenant).run(SQL["applied"], tenant)
        wished = _stored(rows)
        wished[ids.text("rule", rule_id)] = msgspec.to_builtins(given)
        if len(wished) > RULES_MAX:
            raise ConflictError(f"There are {RULES_MAX:,} rules, which is the limit.", hint="Delete one first.")
        place = list(wished).index(ids.text("rule", rule_id))
        try:
            await self._in_turn(lambda: _compiled(wished))
        except InputError as refusal:
            raise _about(refusal, place, [rule["name"] for rule in wished.values()]) from None
        return _version(rows)

    async def trial(self, given: Sequence[msgspec.Struct], direction: Direction) -> RuleSet:
        """Rules that are not kept, compiled."""
        return await self._in_turn(lambda: _trial(given, direction))

    async def _in_turn(self, work: Callable[[], Made]) -> Made:
        """Compiling takes seconds where there are many words: it is done in a thread, and never by all threads."""
        async with self._turns:
            return await asyncio.to_thread(work)

    def _known(self, tenant: str, version: int) -> Compiled | None:
        found = self._kept.get(tenant)
        if found is None or found.version != version:
            return None
        self._kept.move_to_end(tenant)
        return found

    def _keep(self, tenant: str, found: Compiled) -> None:
        """Keep it, in the place of whatever was not used for longest. The last one stays, however large it is."""
        before = self._kept.pop(tenant, None)
        self._kept[tenant] = found
        self._size += found.size - (before.size if before else 0)
        while len(self._kept) > 1 and (len(self._kept) > KEPT_MAX or self._size > KEPT_SIZE_MAX):
            _, gone = self._kept.popitem(last=False)
            self._size -= gone.size


_sets: WeakKeyDictionary[Engine, Sets] = WeakKeyDictionary()


def sets_of(engine: Engine) -> Sets:
    """One for each engine: its jobs, its routes and its gate share what was compiled."""
    return _sets.setdefault(engine, Sets(engine))


class RulesOfTenant:
    """A gate: the rules of whoever's job it is. So any kind can be put behind them."""

    def __init__(self, sets: Sets) -> None:
        self._sets = sets

    async def inbound(self, tenant: str, given: Any) -> Any:
        return await screen((await self._sets.of(tenant)).ways["inbound"], tenant, given, field="input")

    async def outbound(self, tenant: str, given: Any) -> Any:
        return await screen((await self._sets.of(tenant)).ways["outbound"], tenant, given, field="output")


def told(decision: Decision) -> dict[str, Any]:
    """What was found, as JSON; there is a limit to it, and then it says how many more there were."""
    verdicts = [msgspec.to_builtins(verdict) for verdict in decision.verdicts]
    return {"verdicts": verdicts} | ({"more": decision.more} if decision.more else {})


# Compiling


def _trial(given: Sequence[msgspec.Struct], direction: Direction) -> RuleSet:
    read = [rules.read(msgspec.to_builtins(one), field=f"rules[{place}]") for place, one in enumerate(given)]
    return rules.compile(read, direction, classifiers=_classifiers())


def _stored(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """What is kept, by the id of each rule, in order."""
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
    """A refusal of one rule among all, as its maker is to see it: about the fields that were sent."""
    field = refusal.field or ""
    own = f"rules[{place}]."
    if field.startswith(own):
        return InputError(refusal.message, field=field.removeprefix(own), hint=refusal.hint)
    found = next((name for number, name in enumerate(names) if field.startswith(f"rules[{number}]")), None)
    if found is None:
        return InputError(refusal.message, field="matcher", hint=refusal.hint)
    message = f"The rule {found[:80]!r}, which is kept already, cannot be applied: {refusal.message}"
    return InputError(message, hint="Change or delete that first.")


@cache
def _classifiers() -> Mapping[str, Classifier]:
    """Those of installed packages, by the names of their entry points; a class is made one of."""
    found: dict[str, Any] = {point.name: point.load() for point in entry_points(group=CLASSIFIERS)}
    return {name: given() if isinstance(given, type) else given for name, given in found.items()}
