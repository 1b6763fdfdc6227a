"""Access: who comes in, what is remembered of them, and what operators leave behind."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from asyncpg import PostgresError

from millpond import ids
from millpond.engine.access import access, credentials
from millpond.engine.access.access import Principal
from millpond.engine.engine import Engine
from millpond.errors import ConflictError, InvalidError, NotFoundError, StoreError, UnauthorizedError, UnavailableError
from millpond.services.notifier import Notifier
from millpond.store.db import Database
from tests.checks import until
from tests.databases import Between
from tests.factories import HOUR, MINUTE
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.access.access import Access, KeyRecord
    from tests.clocks import Clock

CLIENT: dict[str, Any] = {"scope": "client", "tenant": "acme", "account": "ann", "actor": "test"}
GLOBEX: dict[str, Any] = CLIENT | {"tenant": "globex"}
SECOND = timedelta(seconds=1)


@dataclass(slots=True)
class Watch:
    """The clock of this process, as access sees it."""

    now: float = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch()
    monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


@pytest.fixture
async def other(dsn: str) -> AsyncIterator[Engine]:
    """Another process on the same database."""
    opened = await Database.open(dsn, size=2)
    yield Engine(opened, app)
    await opened.close()


async def refused(executor: Access, secret: str) -> str:
    with pytest.raises(UnauthorizedError) as caught:
        await executor.authenticate(secret)
    assert secret not in str(caught.value)
    return caught.value.message


async def listed(engine: Engine, key_id: str) -> KeyRecord:
    return next(key for key in await engine.access.list_keys() if key.id == key_id)


# Coming in


@pytest.mark.parametrize(
    ("scope", "owner"),
    [
        ("client", {"tenant": "acme", "account": "ann"}),
        ("worker", {}),
        ("worker", {"tenant": "acme"}),
        ("admin", {}),
        ("admin", {"tenant": "acme"}),
        ("admin", {"tenant": "acme", "account": "ann"}),
    ],
)
async def test_who_shows_a_key_is_who_it_was_made_for(engine: Engine, scope: Any, owner: dict[str, str]) -> None:
    made, secret = await engine.access.make_key(scope=scope, **owner, rate_limit=7, actor="test")
    expected = Principal(scope, owner.get("tenant"), owner.get("account"), made.id, 7)
    assert await engine.access.authenticate(secret) == expected


async def test_a_key_that_is_known_costs_no_query(other: Engine) -> None:
    _, secret = await other.access.make_key(**CLIENT)
    before = await other.access.authenticate(secret)
    await other.db.close()
    assert await other.access.authenticate(secret) == before


async def test_what_cannot_be_a_key_costs_no_query(other: Engine) -> None:
    secret = credentials.new_key("client")
    await other.db.close()
    for wrong in ("", "secret", secret[:-1], secret[:-1] + "é", secret.replace("client", "admin"), "\ud800"):
        with pytest.raises(UnauthorizedError, match="malformed or incomplete"):
            await other.access.authenticate(wrong)


async def test_a_stranger_is_refused_and_the_next_time_without_a_query(other: Engine) -> None:
    secret = credentials.new_key("admin")
    assert await refused(other.access, secret) == "The key does not exist."
    await other.db.close()
    assert await refused(other.access, secret) == "The key does not exist."


async def test_a_stranger_is_not_refused_for_ever(
    engine: Engine, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored backup may know it."""
    secret = credentials.new_key("worker")
    await refused(engine.access, secret)
    monkeypatch.setattr(credentials, "new_key", lambda _: secret)
    await engine.access.make_key(scope="worker", actor="test")
    await refused(engine.access, secret)
    watch.now += 5
    assert (await engine.access.authenticate(secret)).scope == "worker"


async def test_a_crowd_of_strangers_is_not_remembered_for_long(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_BAD_MAX", 5)
    monkeypatch.setattr(access, "_KNOWN_MAX", 3)
    for _ in range(20):
        await refused(engine.access, credentials.new_key("client"))
    made = [await engine.access.make_key(**CLIENT) for _ in range(6)]
    for _, secret in made:
        await engine.access.authenticate(secret)
    assert (len(engine.access._bad), len(engine.access._known)) == (5, 3)
    for _, secret in made:  # and who was forgotten is still let in
        await engine.access.authenticate(secret)


async def test_many_who_come_at_once_share_a_look(engine: Engine) -> None:
    made = [
        await engine.access.make_key(scope="client", tenant="acme", account=f"a{n}", actor="test") for n in range(10)
    ]
    executor = engine.access
    crowd = [executor.authenticate(secret) for _, secret in made * 5] + [
        executor.authenticate(credentials.new_key("client"))
    ]
    *principals, stranger = await asyncio.gather(*crowd, return_exceptions=True)
    assert isinstance(stranger, UnauthorizedError)
    assert [found.account for found in principals if isinstance(found, Principal)] == [f"a{n}" for n in range(10)] * 5


async def test_no_secret_is_kept_anywhere(engine: Engine, db: Database) -> None:
    made, secret = await engine.access.make_key(**CLIENT, name="for the shop")
    _, successor = await engine.access.rotate_key(made.id, actor="test")
    await engine.access.authenticate(secret)
    async with db.transaction() as tx:
        written = await tx.fetchval(
            "select string_agg(t::text, ' ') from (select k::text from millpond.keys k"
            " union all select a::text from millpond.audit a) as s(t)"
        )
    for text in (secret, successor):
        assert text not in written
        assert text.split("_")[2][4:-4] not in written
    assert secret.encode() not in repr(vars(engine.access)).encode()


# The end of a key


async def test_a_key_that_has_run_out_is_refused(engine: Engine, clock: Clock, watch: Watch) -> None:
    _, secret = await engine.access.make_key(**CLIENT, expires_in="1h")
    await engine.access.authenticate(secret)
    await clock.advance(HOUR)
    watch.now += 10
    assert (await refused(engine.access, secret)).startswith("The key expired on 2")


async def test_a_key_is_not_remembered_beyond_its_end(engine: Engine, clock: Clock, watch: Watch) -> None:
    _, secret = await engine.access.make_key(**CLIENT, expires_in="2s")
    await engine.access.authenticate(secret)
    await clock.advance(2 * SECOND)
    watch.now += 2
    await refused(engine.access, secret)


async def test_a_revoked_key_is_refused_at_once(engine: Engine) -> None:
    made, secret = await engine.access.make_key(**CLIENT)
    await engine.access.authenticate(secret)
    revoked = await engine.access.revoke_key(made.id, actor="test")
    assert revoked.revoked_at is not None
    assert await refused(engine.access, secret) == "The key was revoked."


async def test_to_revoke_twice_changes_nothing(engine: Engine, clock: Clock) -> None:
    made, _ = await engine.access.make_key(**CLIENT)
    first = await engine.access.revoke_key(made.id, actor="test")
    await clock.advance(HOUR)
    assert await engine.access.revoke_key(made.id, actor="test") == first
    assert [record.action for record in await engine.access.list_audit()].count("key.revoked") == 1


async def test_a_notification_carries_a_revocation_to_other_processes(
    engine: Engine, other: Engine, watch: Watch
) -> None:
    """Their own clocks stand still: nothing else can tell them."""
    stop, heard = asyncio.Event(), set[str]()
    Notifier(engine)
    notifier = Notifier(other)
    notifier.listen(heard.update)
    listening = asyncio.create_task(notifier.run(stop))

    async def is_listening() -> bool:
        engine.notifier.notify({"probe"})
        return "probe" in heard

    async def is_forgotten() -> bool:
        return not other.access._known

    try:
        made, secret = await engine.access.make_key(**CLIENT)
        await other.access.authenticate(secret)
        await until(is_listening)
        await engine.access.revoke_key(made.id, actor="test")
        await until(is_forgotten)
        await refused(other.access, secret)
    finally:
        stop.set()
        await listening


async def test_without_a_notifier_a_revocation_is_known_within_three_seconds(
    engine: Engine, other: Engine, watch: Watch
) -> None:
    made, secret = await engine.access.make_key(**CLIENT)
    await other.access.authenticate(secret)
    await engine.access.revoke_key(made.id, actor="test")
    await other.access.authenticate(secret)
    watch.now += 3
    await refused(other.access, secret)


async def test_a_key_in_use_is_looked_up_again_beside_the_requests(engine: Engine, other: Engine, watch: Watch) -> None:
    """So that nobody waits for it, and so that who comes all the time is refused no later than others."""
    made, secret = await engine.access.make_key(**CLIENT)
    await other.access.authenticate(secret)
    await engine.access.revoke_key(made.id, actor="test")
    watch.now += 2
    await other.access.authenticate(secret)

    async def is_forgotten() -> bool:
        return not other.access._known

    await until(is_forgotten)
    await refused(other.access, secret)


async def test_a_renewed_key_stays_good(engine: Engine, watch: Watch) -> None:
    _, secret = await engine.access.make_key(**CLIENT)
    await engine.access.authenticate(secret)
    for _ in range(4):
        watch.now += 2
        await engine.access.authenticate(secret)

        async def is_renewed() -> bool:
            (known,) = engine.access._known.values()
            return known.good_until == watch.now + 3

        await until(is_renewed)


async def test_a_look_that_met_a_revocation_is_not_remembered(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have seen the key as it was before."""
    made, secret = await engine.access.make_key(**CLIENT)

    async def meet(query: Any, *arguments: Any) -> Any:
        found = await engine.db.run(query, *arguments)
        if query is access.SQL["find_keys"] and not engine.access._changes:
            await engine.access.revoke_key(made.id, actor="test")
        return found

    monkeypatch.setattr(engine.access, "_db", Between(engine.db, run=meet))
    await engine.access.authenticate(secret)
    assert not engine.access._known
    await refused(engine.access, secret)


async def test_without_a_database_an_unknown_key_is_not_called_wrong(other: Engine) -> None:
    await other.db.close()
    with pytest.raises(UnavailableError):
        await other.access.authenticate(credentials.new_key("client"))


# Rotation


async def test_old_and_new_are_good_together_until_the_overlap_ends(engine: Engine, clock: Clock, watch: Watch) -> None:
    old, first = await engine.access.make_key(**CLIENT, name="shop", rate_limit=9)
    new, second = await engine.access.rotate_key(old.id, overlap="1h", actor="test")
    assert (new.scope, new.tenant, new.account, new.name, new.rate_limit) == ("client", "acme", "ann", "shop", 9)
    assert new.expires_at is None
    for secret in (first, second):
        assert (await engine.access.authenticate(secret)).account == "ann"
    await clock.advance(HOUR)
    watch.now += 10
    await refused(engine.access, first)
    await engine.access.authenticate(second)


async def test_the_new_key_lives_as_long_as_the_old_one_was_made_for(engine: Engine, clock: Clock) -> None:
    old, _ = await engine.access.make_key(**CLIENT, expires_in="2h")
    await clock.advance(HOUR)
    new, _ = await engine.access.rotate_key(old.id, actor="test")
    assert new.expires_at == new.created_at + 2 * HOUR


async def test_an_overlap_does_not_prolong_a_key(engine: Engine) -> None:
    old, _ = await engine.access.make_key(**CLIENT, expires_in="1h")
    await engine.access.rotate_key(old.id, overlap="24h", actor="test")
    assert (await listed(engine, old.id)).expires_at == old.expires_at


async def test_a_short_overlap_ends_on_time_for_who_is_known(engine: Engine, clock: Clock, watch: Watch) -> None:
    old, secret = await engine.access.make_key(**CLIENT)
    await engine.access.authenticate(secret)
    await engine.access.rotate_key(old.id, overlap="1s", actor="test")
    await clock.advance(SECOND)
    await refused(engine.access, secret)


async def test_what_has_ended_cannot_be_rotated(engine: Engine, clock: Clock) -> None:
    revoked, _ = await engine.access.make_key(**CLIENT)
    await engine.access.revoke_key(revoked.id, actor="test")
    expired, _ = await engine.access.make_key(**CLIENT, expires_in="1m")
    await clock.advance(MINUTE)
    for old in (revoked, expired):
        with pytest.raises(ConflictError, match="revoked or has expired"):
            await engine.access.rotate_key(old.id, actor="test")


# Whose keys


async def test_a_tenants_operator_reaches_the_keys_of_that_tenant_alone(engine: Engine) -> None:
    own, _ = await engine.access.make_key(**CLIENT)
    foreign, secret = await engine.access.make_key(**GLOBEX)
    everywhere, _ = await engine.access.make_key(scope="admin", actor="test")
    assert [key.id for key in await engine.access.list_keys(tenant="acme")] == [own.id]
    for key in (foreign, everywhere):
        for act in (engine.access.revoke_key, engine.access.rotate_key):
            with pytest.raises(NotFoundError):
                await act(key.id, tenant="acme", actor="test")
    await engine.access.authenticate(secret)


@pytest.mark.parametrize("key_id", ["", "key_", "job_01k9abcdefghjkmnpqrstvwxyz", ids.text("key", UUID(int=1 << 100))])
async def test_a_key_that_is_not_there_is_not_found(engine: Engine, key_id: str) -> None:
    for act in (engine.access.revoke_key, engine.access.rotate_key):
        with pytest.raises(NotFoundError) as caught:
            await act(key_id, actor="test")
        assert caught.value.field == "id"


async def test_keys_come_in_pages_the_newest_first(engine: Engine) -> None:
    made = [(await engine.access.make_key(**CLIENT))[0] for _ in range(5)]
    first = await engine.access.list_keys(limit=2)
    second = await engine.access.list_keys(limit=2, before=first[-1].id)
    third = await engine.access.list_keys(limit=2, before=second[-1].key_id)
    assert [*first, *second, *third] == made[::-1]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown scope": ({"scope": "root"}, "scope"),
    "a client of no tenant": ({"scope": "client"}, "tenant"),
    "a client of no account": ({"scope": "client", "tenant": "acme"}, "account"),
    "an account of no tenant": ({"scope": "admin", "account": "ann"}, "tenant"),
    "a tenant with a space": ({"scope": "admin", "tenant": "a b"}, "tenant"),
    "a tenant with a comma": ({"scope": "admin", "tenant": "a,b"}, "tenant"),
    "an account with a NUL": ({"scope": "client", "tenant": "acme", "account": "\0"}, "account"),
    "a long name": ({"scope": "admin", "name": "x" * 201}, "name"),
    "a name with a NUL": ({"scope": "admin", "name": "\0"}, "name"),
    "a lifetime of nothing": ({"scope": "admin", "expires_in": 0}, "expires_in"),
    "a lifetime of nonsense": ({"scope": "admin", "expires_in": "soon"}, "expires_in"),
    "no requests a second": ({"scope": "admin", "rate_limit": 0}, "rate_limit"),
    "too many a second": ({"scope": "admin", "rate_limit": 1_000_001}, "rate_limit"),
    "yes a second": ({"scope": "admin", "rate_limit": True}, "rate_limit"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_wrong_key_is_not_made(engine: Engine, case: str) -> None:
    given, field = WRONG[case]
    with pytest.raises(InvalidError) as caught:
        await engine.access.make_key(**given, actor="test")
    assert caught.value.field == field
    assert await engine.access.list_keys() == []
    assert await engine.access.list_tenants() == []


# Last use


async def test_the_last_use_is_written_beside_the_request(engine: Engine) -> None:
    made, secret = await engine.access.make_key(**CLIENT)
    assert made.last_used_at is None
    await engine.access.authenticate(secret)

    async def is_written() -> bool:
        return (await listed(engine, made.id)).last_used_at is not None

    await until(is_written)


async def test_the_last_use_is_written_once_a_minute_at_most(
    engine: Engine, other: Engine, clock: Clock, watch: Watch
) -> None:
    made, secret = await engine.access.make_key(**CLIENT)
    await engine.access.authenticate(secret)
    await engine.access.close()
    first = (await listed(engine, made.id)).last_used_at
    for process in (engine, other):  # neither by the same process nor by another
        await process.access.authenticate(secret)
        await process.access.close()
    assert (await listed(engine, made.id)).last_used_at == first
    await clock.advance(2 * MINUTE)
    watch.now += 120
    await engine.access.authenticate(secret)
    await engine.access.close()
    last = (await listed(engine, made.id)).last_used_at
    assert first is not None
    assert last is not None
    assert last > first


async def test_that_it_cannot_be_written_hurts_nobody(other: Engine) -> None:
    _, secret = await other.access.make_key(**CLIENT)
    await other.access.authenticate(secret)
    await other.db.close()
    await other.access.close()
    await other.access.authenticate(secret)


# Browser tokens


async def test_a_token_lets_a_browser_in_for_one_job(engine: Engine, other: Engine) -> None:
    job_id = ids.new()
    token, expires_at = await engine.access.make_token("acme", ids.text("job", job_id), ["read", "cancel"], "15m")
    expected = Principal("job", "acme", None, "token", job_id=job_id, may=frozenset({"read", "cancel"}))
    for process in (engine, other):
        assert await process.access.authenticate(token) == expected
    assert expires_at.utcoffset() == timedelta(0)


async def test_a_token_ends_by_the_databases_clock(engine: Engine, clock: Clock, watch: Watch) -> None:
    token, expires_at = await engine.access.make_token("acme", ids.new(), ["read"], "15m")
    assert abs(expires_at - (await clock.now()) - 15 * MINUTE) < MINUTE
    watch.now += 15 * 60 - 1
    await clock.advance(15 * MINUTE - SECOND)
    await engine.access.authenticate(token)
    watch.now += 60
    await clock.advance(MINUTE)
    with pytest.raises(UnauthorizedError, match="has expired"):
        await engine.access.authenticate(token)


async def test_processes_that_begin_at_once_sign_with_one_secret(engine: Engine, dsn: str) -> None:
    opened = [await Database.open(dsn, size=1) for _ in range(4)]
    doors = [Engine(db, app).access for db in opened]
    job_id = ids.new()
    tokens = await asyncio.gather(*(executor.make_token("acme", job_id, ["read"], 60) for executor in doors))
    for token, _ in tokens:
        for executor in (engine.access, *doors):
            assert (await executor.authenticate(token)).job_id == job_id
    for db in opened:
        await db.close()


async def test_to_take_the_secret_away_voids_all_tokens(engine: Engine, db: Database, watch: Watch) -> None:
    token, _ = await engine.access.make_token("acme", ids.new(), ["read"], "15m")
    async with db.transaction() as tx:
        await tx.execute("delete from millpond.secrets")
    watch.now += 60
    with pytest.raises(UnauthorizedError, match="malformed or incomplete"):
        await engine.access.authenticate(token)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"expires_in": "0.9s"}, "expires_in"),
        ({"expires_in": "25h"}, "expires_in"),
        ({"expires_in": "soon"}, "expires_in"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["write"]}, "scopes"),
        ({"tenant": "a b"}, "tenant"),
    ],
)
async def test_a_wrong_token_is_not_made(engine: Engine, given: dict[str, Any], field: str) -> None:
    whole = {"tenant": "acme", "job_id": ids.new(), "scopes": ["read"], "expires_in": "15m"} | given
    with pytest.raises(InvalidError) as caught:
        await engine.access.make_token(**whole)
    assert caught.value.field == field


# Tenants and accounts


async def test_a_key_brings_its_tenant_and_account_with_it(engine: Engine) -> None:
    await engine.access.make_key(**CLIENT)
    assert [found.tenant for found in await engine.access.list_tenants()] == ["acme"]
    assert [found.account for found in await engine.access.list_accounts("acme")] == ["ann"]
    await engine.access.make_key(**CLIENT)
    assert [record.action for record in await engine.access.list_audit()] == ["key.made", "key.made", "tenant.made"]


async def test_to_make_a_tenant_again_changes_nothing(engine: Engine, clock: Clock) -> None:
    first = await engine.access.make_tenant("acme", actor="test")
    await clock.advance(HOUR)
    assert await engine.access.make_tenant("acme", actor="test") == first
    assert len(await engine.access.list_audit()) == 1


async def test_an_account_that_is_made_again_keeps_what_it_has(engine: Engine) -> None:
    await engine.grant("acme", "ann", 7)
    made = await engine.access.make_account("acme", "ann", active_max=3, actor="test")
    assert (made.available, made.active_max) == (7, 3)
    again = await engine.access.make_account("acme", "ann", actor="test")
    assert (again.available, again.active_max) == (7, 3)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"tenant": ""}, "tenant"),
        ({"account": "a b"}, "account"),
        ({"active_max": -1}, "active_max"),
        ({"active_max": 1_000_001}, "active_max"),
    ],
)
async def test_a_wrong_account_is_not_made(engine: Engine, given: dict[str, Any], field: str) -> None:
    whole: dict[str, Any] = {"tenant": "acme", "account": "ann", "actor": "test"} | given
    with pytest.raises(InvalidError) as caught:
        await engine.access.make_account(**whole)
    assert caught.value.field == field
    assert await engine.access.list_tenants() == []


async def test_tenants_and_accounts_come_in_pages_by_name(engine: Engine) -> None:
    for name in ("b", "a", "d", "c"):
        await engine.access.make_account("acme", name, actor="test")
        await engine.access.make_tenant(f"t-{name}", actor="test")
    first = await engine.access.list_accounts("acme", limit=3)
    rest = await engine.access.list_accounts("acme", limit=3, after=first[-1].account)
    assert [found.account for found in (*first, *rest)] == ["a", "b", "c", "d"]
    named = await engine.access.list_tenants(limit=3)
    others = await engine.access.list_tenants(limit=3, after=named[-1].tenant)
    assert [found.tenant for found in (*named, *others)] == ["acme", "t-a", "t-b", "t-c", "t-d"]
    assert [found.tenant for found in await engine.access.list_tenants(tenant="t-b")] == ["t-b"]


# Audit


async def test_every_act_on_a_key_is_written_down(engine: Engine) -> None:
    made, _ = await engine.access.make_key(**CLIENT, name="shop")
    new, _ = await engine.access.rotate_key(made.id, actor="boss")
    await engine.access.revoke_key(made.id, actor="boss")
    revoked, rotated, created, tenant = await engine.access.list_audit()
    assert (tenant.action, tenant.tenant, tenant.subject) == ("tenant.made", "acme", "acme")
    assert (created.action, created.actor, created.subject) == ("key.made", "test", made.id)
    assert created.data == {"scope": "client", "account": "ann", "name": "shop", "hint": made.hint}
    assert (rotated.action, rotated.actor, rotated.subject) == ("key.rotated", "boss", made.id)
    assert rotated.data["replaced_by"] == new.id
    assert (revoked.action, revoked.tenant, revoked.subject) == ("key.revoked", "acme", made.id)


async def test_others_write_what_they_did(engine: Engine) -> None:
    await engine.access.audit("key_1", "queue.paused", subject="slow", data={"why": "repair"})
    (record,) = await engine.access.list_audit()
    assert (record.actor, record.action, record.tenant, record.subject, record.data) == (
        "key_1",
        "queue.paused",
        None,
        "slow",
        {"why": "repair"},
    )
    assert ids.parse("audit", record.id) == record.audit_id


async def test_the_audit_comes_in_pages_and_by_tenant(engine: Engine) -> None:
    for n in range(6):
        await engine.access.audit("test", f"act.{n}", tenant=("acme", "globex")[n % 2])
    first = await engine.access.list_audit(limit=4)
    rest = await engine.access.list_audit(limit=4, before=first[-1].id)
    assert [record.action for record in (*first, *rest)] == [f"act.{n}" for n in range(5, -1, -1)]
    assert [record.action for record in await engine.access.list_audit(tenant="acme")] == ["act.4", "act.2", "act.0"]


async def test_the_audit_reports_what_came_at_once_in_the_order_in_which_it_came(engine: Engine, db: Database) -> None:
    """By Python and by SQL, some hundred lines a millisecond: whichever way they are listed, in pages that cut it."""
    many = (
        "insert into millpond.audit (id, at, actor, action, tenant)"
        " select millpond.uuid7(), millpond.clock(), 'test', 'act.' || n, 'acme' from generate_series($1::int, $2) as n"
    )
    async with db.transaction() as tx:
        for n in range(0, 400, 20):
            await access.write_audit(tx, "test", f"act.{n}", tenant="acme")
            await tx.execute(many, n + 1, n + 19)
    ways: list[dict[str, Any]] = [{}, {"tenant": "acme"}, {"actor": "test"}, {"action": "act."}]
    for filters in ways:
        reported: list[str] = []
        before: UUID | None = None
        while len(reported) < 400:
            page = await engine.access.search_audit(**filters, before=before, limit=70)
            reported += [record.action for record in page.data]
            before = page.before
        assert reported == [f"act.{n}" for n in range(399, -1, -1)]
        assert before is None


REFUND = "select millpond.audit_refunded('op', 'acme', $1, 1, $2, $2, $3)"


async def test_refunds_of_one_millisecond_are_reported_in_their_order(engine: Engine, db: Database) -> None:
    start = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    async with db.transaction() as tx:
        for n in range(40):
            await tx.execute(REFUND, ids.new(), f"refund:{n}", start + timedelta(microseconds=n))
    described = [record.data["reason"] for record in await engine.access.list_audit()]
    assert described == [f"refund:{n}" for n in range(39, -1, -1)]


@pytest.mark.parametrize("late", [0, 499, 500, 999])
async def test_a_refund_that_an_older_version_reported_is_reported_once(
    engine: Engine, db: Database, late: int
) -> None:
    job_id, at = ids.new(), datetime(2026, 5, 4, 3, 2, 1, late, tzinfo=UTC)
    older = (
        "insert into millpond.audit (id, at, actor, action, tenant, subject, data) select (lpad(to_hex("
        "(extract(epoch from $1::timestamptz) * 1000)::bigint), 12, '0') || '7' || left(md5('acme:refund:1'), 3) || '8'"
        " || right(md5('acme:refund:1'), 15))::uuid, $1, 'op', 'job.refunded', 'acme', $2, '{}'"
    )
    async with db.transaction() as tx:
        await tx.execute(older, at, ids.text("job", job_id))
        for _ in range(2):
            await tx.execute(REFUND, job_id, "refund:1", at)
        await tx.execute(REFUND, ids.new(), "refund:2", at)
    assert len(await engine.access.list_audit()) == 2


@pytest.mark.parametrize(
    "statement",
    ["update millpond.audit set actor = 'nobody'", "delete from millpond.audit", "truncate millpond.audit"],
)
async def test_nobody_rewrites_the_audit(engine: Engine, db: Database, statement: str) -> None:
    await engine.access.make_tenant("acme", actor="test")
    with pytest.raises(PostgresError, match="append-only"):
        async with db.transaction() as tx:
            await tx.execute(statement)
    assert len(await engine.access.list_audit()) == 1


async def test_an_act_that_cannot_be_written_down_does_not_happen(engine: Engine, db: Database) -> None:
    async with db.transaction() as tx:
        await tx.execute("alter table millpond.audit add constraint full_up check (action <> 'key.made')")
    with pytest.raises((StoreError, PostgresError)):
        await engine.access.make_key(**CLIENT)
    assert await engine.access.list_keys() == []
    assert await engine.access.list_tenants() == []
