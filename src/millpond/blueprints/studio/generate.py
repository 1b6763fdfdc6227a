"""Generating: what a user asks for becomes a job, paid for in the same transaction."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond.api.calls import REPLAYED, reply
from millpond.blueprints.studio import copywriting, grammar, renderings, studio_jobs, wire
from millpond.blueprints.studio.kinds import KINDS, type_of
from millpond.blueprints.studio.products import Page, Product
from millpond.errors import IdempotencyConflictError, InvalidError, NotFoundError, OutboundRefusedError
from millpond.providers import models

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millpond.api.calls import Call, Reply
    from millpond.blueprints.studio.grammar import Copy
    from millpond.blueprints.studio.kinds import Type
    from millpond.engine.views import JobView

    Build = Callable[[Call], Awaitable[dict[str, Any]]]

_SEED_MAX: Final = 2**32


async def make_copy(call: Call) -> Reply:
    return await _make(call, "copy", _copy)


async def make_scrape(call: Call) -> Reply:
    return await _make(call, "scrape", _scrape)


async def make_static_ad(call: Call) -> Reply:
    return await _make(call, "static_ad", _picture)


async def make_video(call: Call) -> Reply:
    return await _make(call, "ugc_video", _film)


async def make_speech(call: Call) -> Reply:
    return await _make(call, "tts", _speech)


async def _make(call: Call, kind: Type, build: Build) -> Reply:
    """Take a job in. A key that has made one answers with that, as it stands now, whatever else is asked for.

    The first look at the key only spares the work: it is the engine that holds it against others at the same time.
    """
    tenant, account = studio_jobs.owner(call)
    key: str | None = call.body.idempotency_key
    known = None if key is None else await studio_jobs.keyed(call.engine, tenant, account, key)
    if known is not None:
        return await _repeated(call, known)
    name = KINDS[kind].name
    given = await build(call)
    try:
        made = await call.engine.submit(name, given, tenant=tenant, account=account, idempotency_key=key)
    except IdempotencyConflictError as conflict:
        return await _repeated(call, await call.engine.views.job(tenant, account, conflict.details["job_id"]))
    if made.is_replay:
        return await _repeated(call, await call.engine.views.job(tenant, account, made.job_id))
    call.desk.metrics.submitted[name] += 1
    return reply(
        wire.Accepted(
            job_id=made.id,
            status=cast("wire.Status", made.state),
            credits_cost=made.price,
            credits_remaining=made.available or 0,
        ),
        202,
    )


async def _repeated(call: Call, view: JobView) -> Reply:
    """Nothing was taken in, and nothing was deducted: 200, with the job as it stands."""
    if type_of(view.kind) is None:
        raise IdempotencyConflictError("Another product has used the key.", field="idempotency_key", job_id=view.id)
    wallet = await call.engine.views.wallet(view.tenant, view.account)
    told = wire.Accepted(
        job_id=view.id,
        status=cast("wire.Status", view.state),
        credits_cost=view.price,
        credits_remaining=wallet.available,
    )
    return reply(told, 200, REPLAYED)


# The inputs of jobs


async def _scrape(call: Call) -> dict[str, Any]:
    body: wire.MakeScrape = call.body
    await call.engine.outbound.admit(body.url, field="url")
    return {"url": body.url}


async def _copy(call: Call) -> dict[str, Any]:
    body: wire.MakeCopy = call.body
    order = copywriting.Order(
        product=await _product(call),
        product_id=body.product_id,
        tone=body.tone,
        headlines=body.headlines,
        seed=_seed(body.seed),
    )
    return msgspec.to_builtins(order)


async def _picture(call: Call) -> dict[str, Any]:
    body: wire.MakeStaticAd = call.body
    product, copy = await _product(call), await _copy_of(call)
    order = renderings.Order(
        model=_model(call, "static_ad"),
        product=product,
        product_id=body.product_id,
        copy_id=body.copy_id,
        headline=body.headline or (copy.headlines[0] if copy else ""),
        text=product.description,
        call_to_action=body.call_to_action or (copy.call_to_action if copy else ""),
        style=body.style,
        aspect_ratio=body.aspect_ratio,
        seed=_seed(body.seed),
    )
    return msgspec.to_builtins(order)


async def _film(call: Call) -> dict[str, Any]:
    body: wire.MakeVideo = call.body
    product, copy, seed = await _product(call), await _copy_of(call), _seed(body.seed)
    copy = copy or grammar.write(product, tone="friendly", seed=seed, headlines=1)
    order = renderings.Order(
        model=_model(call, "ugc_video"),
        product=product,
        product_id=body.product_id,
        copy_id=body.copy_id,
        headline=body.headline or copy.headlines[0],
        text=body.script or copy.script,
        call_to_action=body.call_to_action or copy.call_to_action,
        style=body.style,
        aspect_ratio=body.aspect_ratio,
        voice=body.voice,
        speed=body.speed,
        seed=seed,
    )
    return msgspec.to_builtins(order)


async def _speech(call: Call) -> dict[str, Any]:
    body: wire.MakeSpeech = call.body
    copy = await _copy_of(call)
    if (body.text is None) == (copy is None):
        raise InvalidError("It needs a text, or the copy_id of one; not both.", field="text")
    order = renderings.Order(
        model=_model(call, "tts"),
        copy_id=body.copy_id,
        text=body.text or (copy.script if copy else ""),
        voice=body.voice,
        speed=body.speed,
    )
    return msgspec.to_builtins(order)


def _seed(given: int | None) -> int:
    """Kept with the job, so that another attempt makes the same."""
    return secrets.randbelow(_SEED_MAX) if given is None else given


def _model(call: Call, kind: Type) -> str:
    return models(call.desk.settings.models)[kind]


# What a job refers to


async def _product(call: Call) -> Product:
    """The product that is told, or the one on the page that was read before."""
    body: wire.MakeOf = call.body
    if (body.product is None) == (body.product_id is None):
        raise InvalidError("It needs a product_id, or a product; not both.", field="product_id")
    if body.product is not None:
        if body.product.image is not None:
            call.engine.outbound.check(body.product.image, field="product.image")
        return body.product
    view = await _done(call, "scrape", body.product_id or "", field="product_id")
    return _usable(call, msgspec.json.decode(view.output or "", type=Page).product())


def _usable(call: Call, product: Product) -> Product:
    """Without its picture, where that may not be fetched any more."""
    try:
        if product.image is not None:
            call.engine.outbound.check(product.image)
    except OutboundRefusedError:
        product.image = None
    return product


async def _copy_of(call: Call) -> Copy | None:
    copy_id: str | None = call.body.copy_id
    if copy_id is None:
        return None
    view = await _done(call, "copy", copy_id, field="copy_id")
    return msgspec.json.decode(view.output or "", type=grammar.Copy)


async def _done(call: Call, kind: Type, job_id: str, *, field: str) -> JobView:
    """A job of theirs that is completed."""
    try:
        view = await studio_jobs.find(call.engine, *studio_jobs.owner(call), job_id)
    except NotFoundError:
        raise InvalidError(f"There is no job {job_id[:60]!r}.", field=field) from None
    if view.kind != KINDS[kind].name:
        raise InvalidError(f"It must be the id of a {kind} job.", field=field)
    if view.state != "completed" or view.output is None:
        raise InvalidError(f"The job is {view.state}; it must be completed first.", field=field, state=view.state)
    return view
