"""The HTTP API of Replicate, as far as clients use it for predictions."""

from __future__ import annotations

import asyncio
import hmac
import re
from datetime import UTC, datetime, timedelta
from email.parser import BytesParser
from email.policy import HTTP
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from millpond import logs
from millpond.errors import OutboundRefusedError
from millpond_products.renderer import images
from millpond_products.renderer.errors import ErrorResponse, unknown
from millpond_products.renderer.folder import ending
from millpond_products.renderer.models import MODELS, find, invalid
from millpond_products.renderer.predictions import USUAL, Event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from millpond.product import Outbound
    from millpond_products.renderer.folder import Folder
    from millpond_products.renderer.models import Model
    from millpond_products.renderer.predictions import Predictions

BODY_MAX: Final = 12 * 1024**2
BODY_SECONDS: Final = 30.0
WAIT_MAX: Final = 60
DEADLINE_MIN: Final = 5
DEADLINE_MAX: Final = 24 * 3600
_PREFER: Final = re.compile(r"wait(?:=([0-9]{1,4}))?")
_DURATION: Final = re.compile(r"(?:([0-9]{1,5})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s?)?")


class Asked(msgspec.Struct, kw_only=True):
    """The body of a request for a prediction."""

    input: dict[str, Any]
    version: str | None = None
    webhook: Annotated[str, Meta(max_length=2_048)] | None = None
    webhook_events_filter: list[Event] | None = None
    stream: bool | None = None


class RendererApi:
    """The handlers of the routes."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        secret: str,
        predictions: Predictions,
        folder: Folder,
        hooks_outbound: Outbound,
        images_outbound: Outbound,
    ) -> None:
        self._url = url
        self._token = token
        self._secret = secret
        self._predictions = predictions
        self._folder = folder
        self._hooks_outbound = hooks_outbound
        self._images_outbound = images_outbound

    def app(self) -> Starlette:
        """The application. All routes require the token, except health and files, which have secret names."""
        routes = [
            ("POST", "/v1/predictions", self.create),
            ("GET", "/v1/predictions", self.list_predictions),
            ("GET", "/v1/predictions/{id}", self.read),
            ("POST", "/v1/predictions/{id}/cancel", self.cancel),
            ("GET", "/v1/models", self.list_models),
            ("GET", "/v1/models/{owner}/{name}", self.read_model),
            ("POST", "/v1/models/{owner}/{name}/predictions", self.create),
            ("GET", "/v1/models/{owner}/{name}/versions", self.list_versions),
            ("GET", "/v1/models/{owner}/{name}/versions/{version}", self.read_model),
            ("GET", "/v1/webhooks/default/secret", self.read_secret),
            ("POST", "/v1/files", self.upload),
        ]
        made = [Route(path, self._guarded(endpoint), methods=[method]) for method, path, endpoint in routes]
        made.append(Route("/v1/files/{secret}/{name}", self.download, methods=["GET"]))
        made.append(Route("/healthz", self.read_health, methods=["GET"]))
        return Starlette(
            routes=made, exception_handlers={ErrorResponse: _refuse, HTTPException: _refuse, Exception: _fail}
        )

    def _guarded(self, endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            _, _, token = request.headers.get("authorization", "").partition(" ")
            if not hmac.compare_digest(token.encode(), self._token.encode()):
                raise ErrorResponse(401, "Unauthenticated", "You did not pass a valid authentication token.")
            return await endpoint(request)

        return guarded

    # Predictions

    async def create(self, request: Request) -> Response:
        asked = _read(await _body(request))
        model = self._model(request, asked)
        given = model.read(asked.input)
        images.check(getattr(given, "image", None), self._images_outbound)
        if asked.webhook is not None:
            _check_webhook(asked.webhook, self._hooks_outbound)
        events = USUAL if asked.webhook_events_filter is None else asked.webhook_events_filter
        wait_seconds = _wait_seconds(request)
        prediction = self._predictions.make(
            model, given, webhook=asked.webhook, events=events, within=_deadline(request)
        )
        if wait_seconds is not None:
            await self._predictions.wait(prediction.id, wait_seconds)
        return _json(prediction, 202 if wait_seconds is not None and not prediction.is_over else 201)

    async def read(self, request: Request) -> Response:
        return _json(self._predictions.find(request.path_params["id"]))

    async def cancel(self, request: Request) -> Response:
        return _json(self._predictions.cancel(request.path_params["id"]))

    async def list_predictions(self, request: Request) -> Response:
        found, after = self._predictions.page(request.query_params.get("cursor"))
        following = None if after is None else f"{self._url}/v1/predictions?cursor={after}"
        return _json({"previous": None, "next": following, "results": found})

    def _model(self, request: Request, asked: Asked) -> Model:
        if "owner" in request.path_params:
            return _named(request)
        if asked.version is None:
            raise invalid("version", "The field is required.")
        model = find(asked.version)
        if model is None:
            raise ErrorResponse(
                422,
                "Invalid version or not permitted",
                "The specified version does not exist (or perhaps you don't have permission to use it?)",
            )
        return model

    # Models

    async def list_models(self, _: Request) -> Response:
        return _json({"previous": None, "next": None, "results": [self._about(model) for model in MODELS]})

    async def read_model(self, request: Request) -> Response:
        model = _named(request)
        version = request.path_params.get("version")
        if version is None:
            return _json(self._about(model))
        if version != model.version:
            raise unknown("version")
        return _json(_version(model))

    async def list_versions(self, request: Request) -> Response:
        return _json({"previous": None, "next": None, "results": [_version(_named(request))]})

    async def read_secret(self, _: Request) -> Response:
        return _json({"key": self._secret})

    async def read_health(self, _: Request) -> Response:
        return _json({"status": "ok"})

    def _about(self, model: Model) -> dict[str, Any]:
        return {
            "url": f"{self._url}/v1/models/{model.full_name}",
            "owner": model.owner,
            "name": model.name,
            "description": model.about,
            "visibility": "public",
            "github_url": None,
            "paper_url": None,
            "license_url": None,
            "run_count": 0,
            "cover_image_url": None,
            "default_example": None,
            "latest_version": _version(model),
        }

    # Files

    async def upload(self, request: Request) -> Response:
        """Store a file that a client uses as an input; the input is then the URL in the response."""
        name, content_type, content = _part(request.headers.get("content-type", ""), await _body(request))
        path = self._folder.new().with_suffix(images.ENDING)
        await asyncio.to_thread(path.write_bytes, content)
        file = self._folder.keep(path, name, content_type)
        now = datetime.now(UTC)
        address = f"{self._url}/v1/files/{file.secret}/{file.name}"
        return _json(
            {
                "id": file.secret,
                "name": file.name,
                "content_type": file.content_type,
                "size": file.size,
                "etag": file.secret,
                "checksums": {},
                "metadata": {},
                "created_at": now,
                "expires_at": now + timedelta(hours=1),
                "urls": {"get": address},
            },
            201,
        )

    async def download(self, request: Request) -> Response:
        file = self._folder.find(request.path_params["secret"])
        if file is None or file.name != request.path_params["name"]:
            raise unknown("file")
        headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "private, no-cache"}
        headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
        return FileResponse(file.path, media_type=file.content_type, headers=headers)


# Reading


async def _body(request: Request) -> bytes:
    """The whole body, within limits of size and time."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_MAX:
                    raise ErrorResponse(
                        413, "Request too large", f"The request exceeds the limit of {BODY_MAX:,} bytes."
                    )
    except TimeoutError:
        raise ErrorResponse(408, "Request timeout", "The request was not received in time.") from None
    return bytes(body)


def _read(body: bytes) -> Asked:
    try:
        return msgspec.json.decode(body, type=Asked)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise invalid(where.strip("`.") or "body", what) from None
    except msgspec.DecodeError as error:
        raise ErrorResponse(400, "Bad request", f"The body is not valid JSON: {error}.") from None


def _named(request: Request) -> Model:
    model = find(f"{request.path_params['owner']}/{request.path_params['name']}")
    if model is None:
        raise unknown("model")
    return model


def _wait_seconds(request: Request) -> int | None:
    """Seconds to wait for the end, if the client has sent `Prefer: wait`."""
    found = _PREFER.search(request.headers.get("prefer", ""))
    if found is None:
        return None
    seconds = int(found[1] or WAIT_MAX)
    if not 1 <= seconds <= WAIT_MAX:
        raise invalid("Prefer", f"wait={seconds} must be from 1 to {WAIT_MAX}.")
    return seconds


def _deadline(request: Request) -> timedelta | None:
    text = request.headers.get("cancel-after")
    if text is None:
        return None
    found = _DURATION.fullmatch(text.strip().lower())
    hours, minutes, seconds = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    total = hours * 3600 + minutes * 60 + seconds
    if not DEADLINE_MIN <= total <= DEADLINE_MAX:
        raise invalid("Cancel-After", f"The value must be from {DEADLINE_MIN}s to 24h, such as 90s or 1m30s.")
    return timedelta(seconds=total)


def _check_webhook(url: str, outbound: Outbound) -> None:
    try:
        outbound.check(url, field="webhook")
    except OutboundRefusedError as error:
        raise invalid("webhook", error.message) from None


def _part(content_type: str, body: bytes) -> tuple[str, str, bytes]:
    """The part named content of a form."""
    message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    for part in message.iter_parts() if message.is_multipart() else ():
        if part.get_param("name", header="content-disposition") == "content":
            content: Any = part.get_payload(decode=True)
            kind = part.get_content_type()
            return f"upload{ending(kind)}", kind, content or b""
    raise invalid("content", "The body must be a form (multipart/form-data) with a file named content.")


# Answering


def _version(model: Model) -> dict[str, Any]:
    return {
        "id": model.version,
        "created_at": "2025-01-01T00:00:00Z",
        "cog_version": "0.0.0",
        "openapi_schema": model.schema(),
    }


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


async def _refuse(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # raised by Starlette for an unknown path or method
        error = ErrorResponse(error.status_code, error.detail, error.detail, headers=dict(error.headers or {}))
    assert isinstance(error, ErrorResponse)  # noqa: S101 - it handles no other
    response = Response(msgspec.json.encode(error.body), error.status, media_type="application/problem+json")
    response.headers.update(error.headers)
    return response


async def _fail(request: Request, error: Exception) -> Response:
    logs.emit("request.failed", request_id=None, path=request.url.path, error=repr(error))
    return await _refuse(request, ErrorResponse(500, "Internal server error", "The renderer failed."))
