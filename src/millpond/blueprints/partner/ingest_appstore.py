"""The ingest of an app: what the App Store says of it, by the lookup API of iTunes."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlencode

import msgspec

from millpond.blueprints.partner import findings, identifiers, outside, projects
from millpond.blueprints.partner.orders import AppstoreOrder
from millpond.errors import InvalidError, OutboundFailedError, OutboundRefusedError, PermanentError, TransientError
from millpond.pages import reading
from millpond.retry import read_pause

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.kinds import Handler
    from millpond.outbound.outbound import Answer, Outbound
    from millpond.settings import Settings

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
_LATER: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""Who asks too often is also told that it is forbidden."""


def check(app: str, country: str, *, field: str = "appId") -> tuple[str, str]:
    """The app and the store that are meant, by a number, a bundle id, or the address of its page in the store."""
    if page := _STORE.fullmatch(app):
        return page["id"], (page["country"] or country).lower()
    if not _COUNTRY.fullmatch(country):
        raise InvalidError("It must be the two letters of a country.", field="country", hint="Such as us or de.")
    if number := _NUMBER.fullmatch(app):
        return number[1], country.lower()
    if _BUNDLE.fullmatch(app):
        return app, country.lower()
    raise InvalidError(
        "It is neither the number of an app, nor its bundle id, nor its page in the App Store.",
        field=field,
        hint="Such as 310633997, or https://apps.apple.com/us/app/id310633997.",
    )


def handler(engine: Engine, settings: Settings) -> Handler:
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
    """Its address is the operator's to name, and open to this call."""
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
        raise PermanentError("The App Store cannot be asked.", hint="Its address is MILLPOND_ITUNES_URL.") from error
    except OutboundFailedError as error:
        told = TransientError(f"The App Store could not be asked: {error.message}")
        raise outside.trouble(told, PLATFORM, error.reason, error.message) from error
    _check_status(answer)
    return answer.body


def _check_status(answer: Answer) -> None:
    if answer.status == HTTPStatus.OK and not answer.is_cut:
        return
    code, told = str(answer.status), f"The App Store answered {answer.status}."
    if answer.is_cut and answer.status == HTTPStatus.OK:
        error: PermanentError | TransientError = TransientError("The answer of the App Store broke off.")
    elif answer.status in _LATER or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        error = TransientError(told, retry_after=read_pause(answer.headers.get("retry-after", "")))
    else:
        error = PermanentError(told)
    raise outside.trouble(error, PLATFORM, code)


def read(body: bytes, order: AppstoreOrder) -> dict[str, Any]:
    """What it says of the app, as far as it can be read."""
    app = _app(body, order)

    def said(name: str, most: int = reading.NAME_MAX) -> str:
        return reading.clean(app.get(name), most)

    told = {
        "appId": said("trackId"),
        "bundleId": said("bundleId"),
        "country": order.country.lower(),
        "url": reading.absolute("", said("trackViewUrl", reading.URL_MAX)),
        "name": said("trackName"),
        "description": said("description", reading.TEXT_MAX),
        "seller": said("sellerName"),
        "developer": said("artistName"),
        "developerUrl": reading.absolute("", said("sellerUrl", reading.URL_MAX)),
        "category": said("primaryGenreName"),
        "genres": _texts(app.get("genres"), _LIST_MAX),
        "version": said("version", _VERSION_MAX),
        "releasedAt": said("releaseDate", _VERSION_MAX),
        "updatedAt": said("currentVersionReleaseDate", _VERSION_MAX),
        "releaseNotes": said("releaseNotes", reading.TEXT_MAX),
        "price": _number(app.get("price")),
        "priceText": said("formattedPrice", _VERSION_MAX),
        "currency": said("currency", 8),
        "rating": _number(app.get("averageUserRating")),
        "ratings": _number(app.get("userRatingCount")),
        "contentRating": said("contentAdvisoryRating", _VERSION_MAX),
        "platformVersion": said("minimumOsVersion", _VERSION_MAX),
        "languages": _texts(app.get("languageCodesISO2A"), _LIST_MAX),
        "icon": reading.absolute("", said("artworkUrl512", reading.URL_MAX) or said("artworkUrl100", reading.URL_MAX)),
        "screenshots": [url for text in _texts(app.get("screenshotUrls"), _SCREENSHOTS_MAX) if (url := _url(text))],
    }
    return {name: value for name, value in told.items() if value not in ("", None, [])}


class _Found(msgspec.Struct):
    results: list[Any]


def _app(body: bytes, order: AppstoreOrder) -> dict[str, Any]:
    """The app among the results; artists and songs are looked up in the same place."""
    try:
        results = msgspec.json.decode(body, type=_Found).results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error = TransientError("The answer of the App Store cannot be read.")
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


def _texts(given: Any, most: int) -> list[str]:
    parts = cast("list[Any]", given) if isinstance(given, list) else []
    return [text for part in parts[:most] if (text := reading.clean(part, reading.URL_MAX))]


def _url(text: str) -> str:
    return reading.absolute("", text)


def _number(given: Any) -> float | int | None:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return given if is_number and abs(given) <= 10**12 else None
