"""Generating: submits a job for each request; its credits are held in the same transaction."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond.errors import InvalidError, NotFoundError, OutboundRefusedError
from millpond.product import accept, owner
from millpond_products.models import models
from millpond_products.studio import copywriting, grammar, renderings, studio_jobs, wire
from millpond_products.studio.kinds import KINDS
from millpond_products.studio.products import PageFacts, ProductFacts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millpond.product import Call, JobView, Reply, Submitted
    from millpond_products.settings import ProductSettings
    from millpond_products.studio.grammar import Copy
    from millpond_products.studio.kinds import Type

    Build = Callable[[Call], Awaitable[dict[str, Any]]]

_SEED_MAX: Final = 2**32
_CHOICES: Final = ("style", "aspect_ratio", "voice", "speed")


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
    """Submit a job. If its key has a job already, answer 200 with the current state of that, whatever the body."""
    tenant, account = owner(call)

    async def shape(made: Submitted) -> wire.Accepted:
        if not made.is_replay:
            return studio_jobs.accepted(made)
        view = await call.engine.views.job(tenant, account, made.job_id)
        wallet = await call.engine.views.wallet(tenant, account)
        return wire.Accepted(
            job_id=view.id,
            status=cast("wire.Status", view.state),
            credits_cost=view.price,
            credits_remaining=wallet.available,
        )

    return await accept(
        call,
        KINDS[kind].name,
        build=partial(build, call),
        shape=shape,
        location=studio_jobs.LOCATION,
        replay_status=200,
        owner=(tenant, account),
        key=call.body.idempotency_key,
        compare_key_only=True,
    )


# The inputs of jobs


async def _scrape(call: Call) -> dict[str, Any]:
    body: wire.MakeScrape = call.body
    await call.engine.outbound.admit(body.url, field="url")
    return {"url": body.url}


async def _copy(call: Call) -> dict[str, Any]:
    body: wire.MakeCopy = call.body
    order = copywriting.CopyInput(
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
    order = renderings.RenderingInput(
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
    return _chosen(order, call.body)


async def _film(call: Call) -> dict[str, Any]:
    body: wire.MakeVideo = call.body
    product, copy, seed = await _product(call), await _copy_of(call), _seed(body.seed)
    copy = copy or grammar.write(product, tone="friendly", seed=seed, headlines=1)
    order = renderings.RenderingInput(
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
    return _chosen(order, call.body)


async def _speech(call: Call) -> dict[str, Any]:
    body: wire.MakeSpeech = call.body
    copy = await _copy_of(call)
    if (body.text is None) == (copy is None):
        raise InvalidError("Exactly one of text and copy_id is required.", field="text")
    order = renderings.RenderingInput(
        model=_model(call, "tts"),
        copy_id=body.copy_id,
        text=body.text or (copy.script if copy else ""),
        voice=body.voice,
        speed=body.speed,
    )
    return _chosen(order, call.body)


def _chosen(order: renderings.RenderingInput, body: msgspec.Struct) -> dict[str, Any]:
    """The input of a job, with all that its request can choose, also where that is the default."""
    chosen = {name: getattr(order, name) for name in _CHOICES if name in body.__struct_fields__}
    return msgspec.to_builtins(order) | {name: value for name, value in chosen.items() if value is not None}


def _seed(given: int | None) -> int:
    """The seed is stored with the job, so that another attempt produces the same."""
    return secrets.randbelow(_SEED_MAX) if given is None else given


def _model(call: Call, kind: Type) -> str:
    return models(cast("ProductSettings", call.state.settings).models)[kind]


# What a job refers to


async def _product(call: Call) -> ProductFacts:
    """The product in the request, or the one that an earlier scrape job found."""
    body: wire.MakeOf = call.body
    if (body.product is None) == (body.product_id is None):
        raise InvalidError("Exactly one of product_id and product is required.", field="product_id")
    if body.product is not None:
        if body.product.image is not None:
            call.engine.outbound.check(body.product.image, field="product.image")
        return body.product
    view = await _done(call, "scrape", body.product_id or "", field="product_id")
    return _usable(call, msgspec.json.decode(view.output or "", type=PageFacts).product())


def _usable(call: Call, product: ProductFacts) -> ProductFacts:
    """The product, without its image if that may no longer be fetched."""
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
    """A completed job of the caller."""
    try:
        view = await studio_jobs.find(call.engine, *owner(call), job_id)
    except NotFoundError:
        raise InvalidError(f"There is no job {job_id[:60]!r}.", field=field) from None
    if view.kind != KINDS[kind].name:
        raise InvalidError(f"The value must be the id of a {kind} job.", field=field)
    if view.state != "completed" or view.output is None:
        raise InvalidError(f"The job is {view.state}, but must be completed.", field=field, state=view.state)
    return view
