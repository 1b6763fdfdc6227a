"""Provider callbacks over HTTP. They carry no key; their signature is verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond import errors, wire
from millpond.api.calls import BODY_MAX, reply
from millpond.api.routes import Route
from millpond.api.scopes import ANYBODY

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply


_PATH: Final = "/v1/callbacks"


def callbacks_url(public_url: str | None) -> str | None:
    """Where the callbacks of providers arrive, if the API is public at this URL."""
    return None if public_url is None else f"{public_url.rstrip('/')}{_PATH}"


async def hear(call: Call) -> Reply:
    """A callback with a valid signature is always accepted, so that the provider does not repeat it."""
    body = await call.read_bytes(BODY_MAX)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in call.headers.items()}
    verdict = await call.engine.providers.callback(call.params["provider"], call.params["token"], headers, body)
    return reply(wire.CallbackResult(verdict=verdict))


ROUTES: Final = (
    Route(
        method="POST",
        path=f"{_PATH}/{{provider}}/{{token}}",
        handle=hear,
        summary="Receive a provider callback.",
        description="The provider receives this URL with its prediction request. The callback must be signed "
        "according to Standard Webhooks and must not be older than five minutes. Its content is not "
        "trusted: the server reads the state from the provider.",
        who=ANYBODY,
        answers={200: wire.CallbackResult},
        errors=(errors.NotFoundError, errors.UnauthorizedError, errors.TooLargeError, errors.UnavailableError),
    ),
)
