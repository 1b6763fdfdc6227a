"""Rules: what messages are checked against. The tenant chooses their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID  # noqa: TC003 - kept for readers of the record

import msgspec

from millpond import ids, values
from millpond.errors import ConflictError, InputError, NotFoundError
from millpond.product import Reply, principals, queries, reply
from millpond_products.guard import wire
from millpond_products.guard.sets import sets_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from millpond.product import Call, Engine
    from millpond_products.rules import Action, Mode

SQL: Final = queries("millpond_products.guard", "rules")

_TRIES: Final = 10
_FIELDS: Final = ("name", "direction", "action", "mode", "matcher")


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """A rule as stored."""

    rule_id: UUID
    position: int
    name: str
    direction: wire.Directions
    action: Action
    mode: Mode
    matcher: dict[str, Any]
    created_at: datetime
    updated_at: datetime

    @property
    def id(self) -> str:
        return ids.text("rule", self.rule_id)


# Storing


async def find_all(engine: Engine, tenant: str) -> list[RuleRecord]:
    return [_record(row) for row in await engine.database(tenant).run(SQL["list"], tenant)]


async def find(engine: Engine, tenant: str, rule_id: str | UUID) -> RuleRecord:
    row = await engine.database(tenant).run(SQL["read"], ids.parse("rule", rule_id), tenant)
    if row is None:
        raise NotFoundError(f"There is no rule {str(rule_id)[:60]!r}.", field="rule_id")
    return _record(row)


async def make(engine: Engine, tenant: str, given: wire.MakeRule) -> RuleRecord:
    """Add a rule at the end."""
    rule_id = ids.new()

    async def attempt() -> object:
        version = await sets_of(engine).check(tenant, rule_id, given)
        return await engine.database(tenant).run(SQL["make"], rule_id, tenant, version, *_columns(given))

    await _until_kept(engine, tenant, attempt)
    return await find(engine, tenant, rule_id)


async def change(engine: Engine, tenant: str, rule_id: str, given: wire.ChangeRule) -> RuleRecord:
    """Change the fields that the request contains."""
    changes = {name: value for name in _FIELDS if (value := getattr(given, name)) is not msgspec.UNSET}

    async def attempt() -> object:
        before = await find(engine, tenant, rule_id)
        kept = {name: getattr(before, name) for name in _FIELDS}
        after = msgspec.convert(msgspec.to_builtins(kept | changes), wire.MakeRule)
        version = await sets_of(engine).check(tenant, before.rule_id, after)
        return await engine.database(tenant).run(SQL["change"], before.rule_id, tenant, version, *_columns(after))

    await _until_kept(engine, tenant, attempt)
    return await find(engine, tenant, rule_id)


async def _until_kept(engine: Engine, tenant: str, attempt: Callable[[], Awaitable[object]]) -> None:
    """Check a rule with the others, then store it. Repeat that if another rule was changed in between."""
    async with sets_of(engine).changing(tenant):
        for _ in range(_TRIES):
            if await attempt() is not None:
                return
    raise ConflictError("The rules are being changed by another request.", hint="Try again.")


def _columns(given: wire.MakeRule) -> tuple[str, ...]:
    matcher = values.encode(msgspec.to_builtins(given.matcher), field="matcher")
    return given.name, given.direction, given.action, given.mode, matcher


async def reorder(engine: Engine, tenant: str, order: list[str]) -> list[RuleRecord]:
    """Put all rules into this order. Every rule must be named once."""
    known = {rule.rule_id: rule.id for rule in await find_all(engine, tenant)}
    named = [_named(known, given, place) for place, given in enumerate(order)]
    if len(set(named)) != len(named):
        twice = next(place for place, one in enumerate(named) if one in named[:place])
        raise InputError("The rule is named twice.", field=f"ids[{twice}]")
    missing = [text for rule_id, text in known.items() if rule_id not in set(named)]
    if missing:
        raise InputError(f"Every rule must be named; {missing[0]} is missing.", field="ids")
    if named:
        await engine.database(tenant).run(SQL["reorder"], tenant, named)
    return await find_all(engine, tenant)


def _named(known: dict[UUID, str], given: str, place: int) -> UUID:
    try:
        rule_id = ids.parse("rule", given)
        if rule_id in known:
            return rule_id
    except NotFoundError:
        pass
    raise InputError(f"There is no rule {given[:60]!r}.", field=f"ids[{place}]")


# Over HTTP


async def list_rules(call: Call) -> Reply:
    return reply(_all(await find_all(call.engine, _tenant(call))))


async def make_rule(call: Call) -> Reply:
    tenant = _tenant(call)
    rule = await make(call.engine, tenant, call.body)
    await _note(call, "made", tenant, rule)
    return reply(_to_wire(rule), 201)


async def read(call: Call) -> Reply:
    return reply(_to_wire(await find(call.engine, _tenant(call), call.params["rule_id"])))


async def change_rule(call: Call) -> Reply:
    tenant = _tenant(call)
    rule = await change(call.engine, tenant, call.params["rule_id"], call.body)
    await _note(call, "changed", tenant, rule)
    return reply(_to_wire(rule))


async def remove(call: Call) -> Reply:
    tenant = _tenant(call)
    rule = await find(call.engine, tenant, call.params["rule_id"])
    await call.engine.database(tenant).run(SQL["remove"], rule.rule_id, tenant)
    await _note(call, "removed", tenant, rule)
    return Reply(204)


async def reorder_rules(call: Call) -> Reply:
    tenant = _tenant(call)
    found = await reorder(call.engine, tenant, call.body.ids)
    await call.engine.access.audit(
        call.principal.actor,
        "guard.rules.reordered",
        tenant=tenant,
        subject=tenant,
        data={"address": principals.address(call), "rules": len(found)},
    )
    return reply(_all(found))


def _tenant(call: Call) -> str:
    return principals.one_tenant(call, call.query.tenant)


async def _note(call: Call, what: str, tenant: str, rule: RuleRecord) -> None:
    """Add an entry to the audit, without the matcher of the rule, which may itself be a secret."""
    data = {"address": principals.address(call), "name": rule.name, "action": rule.action, "mode": rule.mode}
    await call.engine.access.audit(
        call.principal.actor, f"guard.rule.{what}", tenant=tenant, subject=rule.id, data=data
    )


def _all(found: list[RuleRecord]) -> wire.Rules:
    return wire.Rules(data=[_to_wire(rule) for rule in found])


def _to_wire(rule: RuleRecord) -> wire.Rule:
    return wire.Rule(
        id=rule.id,
        position=rule.position,
        name=rule.name,
        direction=rule.direction,
        action=rule.action,
        mode=rule.mode,
        matcher=rule.matcher,
        created_at=rule.created_at,
        updated_at=rule.updated_at,
    )


def _record(row: Any) -> RuleRecord:
    fields = dict(row)
    fields["matcher"] = msgspec.json.decode(fields["matcher"])
    return RuleRecord(rule_id=fields.pop("id"), **fields)
