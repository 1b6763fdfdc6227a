"""The dry run: applies rules to a text. Nothing is stored, and no webhook is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.product import Reply, principals, reply
from millpond_products.guard import sets, wire
from millpond_products.guard.messages import check_text

if TYPE_CHECKING:
    from millpond.product import Call


async def run(call: Call) -> Reply:
    tenant = principals.one_tenant(call, call.query.tenant)
    body: wire.DryRun = call.body
    check_text(body.text, "text")
    if body.rules is None:
        decision = await sets.sets_of(call.engine).decide(tenant, body.direction, body.text)
    else:
        applied = await sets.sets_of(call.engine).trial(body.rules, body.direction)
        decision = await applied.decide(body.text)
    has_passed = decision.outcome == "passed"
    return reply(
        wire.Filtered(
            outcome=decision.outcome,
            text=decision.text if has_passed else None,
            verdicts=decision.verdicts,
            more=decision.more,
        )
    )
