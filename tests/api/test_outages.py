"""A database that cannot serve: every request is answered with 503 and Retry-After, and /readyz says why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.access import access
from millpond.errors import UnavailableError
from millpond.store.db import Database

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


async def test_what_a_process_counts_is_shown_without_the_database(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key that the process has accepted before; its lost log lines must be noticed during an outage too."""
    monkeypatch.setattr("millpond.api.metrics._TTL", 0.0)
    monkeypatch.setattr(access, "KEEP", 0.0)
    assert "millpond_webhook_depth{" in (await site.order("GET", "/metrics")).text

    async def unavailable(*_: Any) -> Any:
        raise UnavailableError

    monkeypatch.setattr(Database, "run", unavailable)
    answer = await site.order("GET", "/metrics")
    assert answer.status_code == 200
    assert "millpond_log_lines_dropped_total 0.0" in answer.text
    assert "millpond_webhook_depth{" not in answer.text, "what is not known is not told"
    assert (await site.order("GET", "/v1/kinds")).status_code == 503
    stranger = "mp_admin_" + "A" * 49
    assert (await site.get("/metrics", key=stranger)).status_code in {401, 503}
