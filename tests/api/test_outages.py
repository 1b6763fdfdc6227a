"""A database that cannot serve: every request is answered with 503 and Retry-After, and /readyz says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.api.sites import Site

REFUSING = """
create function public.refuse() returns trigger language plpgsql as $$
begin
    raise exception 'could not extend file: No space left on device' using errcode = '{0}';
end $$;
create trigger refuse before insert on millpond.jobs for each statement execute function public.refuse();
create function public.refuses() returns boolean language plpgsql as $$
begin
    raise exception 'could not write to a temporary file' using errcode = '{0}';
end $$;
create policy refuse on millpond.accounts as restrictive for select to millpond_client using (public.refuses());
"""
STATES = {
    "a full disk": ("53100", "disk full"),
    "no memory": ("53200", "ok"),
    "a server that stops": ("57P01", "ok"),
    "a disk that fails": ("58030", "ok"),
}


@pytest.mark.parametrize(("sqlstate", "database"), STATES.values(), ids=STATES)
async def test_what_a_database_cannot_do_now_can_be_retried(
    site: Site, sqlstate: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes and reads alike; the server's message stays inside."""
    monkeypatch.setattr("millpond.store.db._DISK_FULL_FOR", 3600.0)
    async with site.engine.db.transaction() as tx:
        await tx.execute(REFUSING.format(sqlstate))
    for answer in (await site.post("/v1/jobs", {"kind": "free"}), await site.get("/v1/wallet")):
        assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (503, "unavailable", True)
        assert answer.headers["Retry-After"] == "1"
        assert "file" not in answer.text
    ready = await site.get("/readyz", key=None)
    assert (ready.status_code, ready.json()["checks"]["database"]) == (200 if database == "ok" else 503, database)
