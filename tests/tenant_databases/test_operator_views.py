"""What operators look at where a tenant lives in another database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.engine.credits import holds
from millpond.engine.reads import details, fleet, search
from tests.factories import ACCOUNT, STRANGER, TENANT

if TYPE_CHECKING:
    from tests.tenant_databases.conftest import SystemUnderTest


async def test_a_tenant_elsewhere_is_seen_as_every_other(system: SystemUnderTest) -> None:
    make, engine = system.make, system.engine
    remote = await make.leased("priced")
    here = await make.submitted("priced", tenant=STRANGER)
    found = await details.read(engine, None, remote.job_id)
    assert (found.job.tenant, found.holder, [span.phase for span in found.timeline.spans]) == (
        TENANT,
        "w",
        ["ready", "leased"],
    )
    assert [entry.type for entry in found.entries] == ["hold"]
    page = await holds.page(engine, None)
    assert [(hold.tenant, hold.price) for hold in page.data] == [(TENANT, 5), (STRANGER, 5)]
    assert [(hold.tenant, hold.price) for hold in (await holds.page(engine, STRANGER)).data] == [(STRANGER, 5)]
    wallets = await holds.wallets(engine, None)
    assert [(wallet.tenant, wallet.account) for wallet in wallets.data] == [(TENANT, ACCOUNT), (STRANGER, ACCOUNT)]
    assert [each.id for each in await search.search(engine, None, found.job.id)] == [found.job.id]
    assert await search.search(engine, STRANGER, found.job.id) == []
    assert [each.id for each in await search.search(engine, STRANGER, here.id)] == [here.id]
    seen = await fleet.look(engine)
    assert [(job.job_id, job.tenant) for job in seen.jobs["w"]] == [(remote.job_id, TENANT)]
    await make.finish(remote)
    assert [entry.type for entry in (await details.read(engine, TENANT, remote.job_id)).entries] == ["hold", "capture"]
