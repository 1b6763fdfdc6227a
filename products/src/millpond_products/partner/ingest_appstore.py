"""The ingest of an app: the facts in its App Store entry, by the lookup API of iTunes."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlencode

import msgspec

from millpond.errors import InvalidError, OutboundFailedError, OutboundRefusedError, PermanentError, TransientError
from millpond.retry import read_pause
from millpond_products.pages import reading
from millpond_products.partner import findings, identifiers, outside, projects
from millpond_products.partner.orders import AppstoreOrder

if TYPE_CHECKING:
    from millpond.kinds import Handler
    from millpond.product import Engine, Outbound, OutboundResponse
    from millpond_products.settings import ProductSettings

PLATFORM: Final = "appstore"
SECONDS_MAX: Final = 20.0
SIZE_MAX: Final = 2 * 1024 * 1024
_SCREENSHOTS_MAX: Final = 10
_LIST_MAX: Final = 20
_VERSION_MAX: Final = 40
_STORE: Final = re.compile(
    r"https?://(?:apps|itunes)\.apple\.com/(?:(?P<country>[A-Za-z]{2})/)?app/(?:[^/?#]{1,300}/)?id(?P<id>[0-9]{1,20})"
    r"(?:[/?#].*)?"
)
_NUMBER: Final = re.compile(r"(?:id)?([0-9]{1,20})")
_BUNDLE: Final = re.compile(r"[A-Za-z0-9-]{1,60}(?:\.[A-Za-z0-9-]{1,60}){1,5}")
_COUNTRY: Final = re.compile(r"[A-Za-z]{2}")
_RETRYABLE: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""403 is also a response to too many requests."""


def check(app: str, country: str, *, field: str = "appId") -> tuple[str, str]:
    """The app, and the country of its store, by an App Store id, a bundle id, or the URL of an App Store page."""
    if page := _STORE.fullmatch(app):
        return page["id"], (page["country"] or country).lower()
    if not _COUNTRY.fullmatch(country):
        raise InvalidError(
            "The value must be a two-letter country code.", field="country", hint="Use a code such as us or de."
        )
    if number := _NUMBER.fullmatch(app):
        return number[1], country.lower()
    if _BUNDLE.fullmatch(app):
        return app, country.lower()
    raise InvalidError(
        "The value must be an App Store id, a bundle id, or the URL of an App Store page.",
        field=field,
        hint="Use a value such as 310633997 or https://apps.apple.com/us/app/id310633997.",
    )


def handler(engine: Engine, settings: ProductSettings) -> Handler:
    async def run(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        order = msgspec.convert(given, AppstoreOrder)
        await job.stage("fetching")
        await job.progress(0.05)
        body = await _look_up(engine.outbound, settings.itunes_url, order)
        await job.stage("parsing")
        await job.progress(0.6)
        facts = findings.bounded(read(body, order), field=PLATFORM)
        await job.stage("merging_context")
        await job.progress(0.9)
        await projects.merge(engine, job, order.project_id, "appstore", facts)
        return {
            "projectId": identifiers.text("prj", order.project_id),
            "source": "appstore",
            "facts": facts,
            "assets": [],
        }

    return run


async def _look_up(outbound: Outbound, base: str, order: AppstoreOrder) -> bytes:
    """Call the lookup API. The operator configures its URL, so this call may reach it even inside the network."""
    try:
        app, country = check(order.app_id, order.country)
    except InvalidError as error:
        raise PermanentError(error.message, code="VALIDATION", field=error.field) from error
    query = {"id" if app.isdecimal() else "bundleId": app, "country": country}
    url = f"{base.rstrip('/')}/lookup?{urlencode(query)}"
    headers = {"accept": "application/json, text/javascript"}
    try:
        answer = await outbound.send("GET", url, headers=headers, seconds=SECONDS_MAX, size_max=SIZE_MAX, may=[url])
    except OutboundRefusedError as error:
        raise PermanentError(
            "The App Store cannot be reached.", hint="Its address is set by MILLPOND_ITUNES_URL."
        ) from error
    except OutboundFailedError as error:
        failure = TransientError(f"The App Store could not be reached: {error.message}")
        raise outside.trouble(failure, PLATFORM, error.reason, error.message) from error
    _check_status(answer)
    return answer.body


def _check_status(answer: OutboundResponse) -> None:
    if answer.status == HTTPStatus.OK and not answer.is_cut:
        return
    code, message = str(answer.status), f"The App Store answered {answer.status}."
    if answer.is_cut and answer.status == HTTPStatus.OK:
        error: PermanentError | TransientError = TransientError("The response of the App Store was incomplete.")
    elif answer.status in _RETRYABLE or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        error = TransientError(message, retry_after=read_pause(answer.headers.get("retry-after", "")))
    else:
        error = PermanentError(message)
    raise outside.trouble(error, PLATFORM, code)


def read(body: bytes, order: AppstoreOrder) -> dict[str, Any]:
    """The facts about the app that can be read from the response."""
    app = _app(body, order)

    def member(name: str, limit: int = reading.NAME_MAX) -> str:
        return reading.clean(app.get(name), limit)

    facts = {
        "appId": member("trackId"),
        "bundleId": member("bundleId"),
        "country": order.country.lower(),
        "url": reading.absolute("", member("trackViewUrl", reading.URL_MAX)),
        "name": member("trackName"),
        "description": member("description", reading.TEXT_MAX),
        "seller": member("sellerName"),
        "developer": member("artistName"),
        "developerUrl": reading.absolute("", member("sellerUrl", reading.URL_MAX)),
        "category": member("primaryGenreName"),
        "genres": _texts(app.get("genres"), _LIST_MAX),
        "version": member("version", _VERSION_MAX),
        "releasedAt": member("releaseDate", _VERSION_MAX),
        "updatedAt": member("currentVersionReleaseDate", _VERSION_MAX),
        "releaseNotes": member("releaseNotes", reading.TEXT_MAX),
        "price": _number(app.get("price")),
        "priceText": member("formattedPrice", _VERSION_MAX),
        "currency": member("currency", 8),
        "rating": _number(app.get("averageUserRating")),
        "ratings": _number(app.get("userRatingCount")),
        "contentRating": member("contentAdvisoryRating", _VERSION_MAX),
        "platformVersion": member("minimumOsVersion", _VERSION_MAX),
        "languages": _texts(app.get("languageCodesISO2A"), _LIST_MAX),
        "icon": reading.absolute(
            "", member("artworkUrl512", reading.URL_MAX) or member("artworkUrl100", reading.URL_MAX)
        ),
        "screenshots": [url for text in _texts(app.get("screenshotUrls"), _SCREENSHOTS_MAX) if (url := _url(text))],
    }
    return {name: value for name, value in facts.items() if value not in ("", None, [])}


class _Found(msgspec.Struct):
    results: list[Any]


def _app(body: bytes, order: AppstoreOrder) -> dict[str, Any]:
    """The app among the results, which may also contain artists and songs."""
    try:
        results = msgspec.json.decode(body, type=_Found).results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error = TransientError("The response of the App Store is invalid.")
        raise outside.trouble(error, PLATFORM, "answer") from None
    apps = [cast("dict[str, Any]", found) for found in results if isinstance(found, dict)]
    found = next((app for app in apps if isinstance(app.get("trackName"), str) and _is_app(app)), None)
    if found is None:
        store = order.country.upper()
        raise PermanentError(
            f"There is no app {order.app_id} in the App Store of {store}.", code="NOT_FOUND", field="appId"
        )
    return found


def _is_app(found: dict[str, Any]) -> bool:
    return str(found.get("kind", "software")).endswith("software")


def _texts(given: Any, limit: int) -> list[str]:
    parts = cast("list[Any]", given) if isinstance(given, list) else []
    return [text for part in parts[:limit] if (text := reading.clean(part, reading.URL_MAX))]


def _url(text: str) -> str:
    return reading.absolute("", text)


def _number(given: Any) -> float | int | None:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return given if is_number and abs(given) <= 10**12 else None
