"""The lookup API of the App Store: apps by their number or bundle id, in the shape in which it tells of them."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

LAMP: dict[str, Any] = {
    "wrapperType": "software",
    "kind": "software",
    "trackId": 310633997,
    "trackName": "Lumen: Light for your Desk",
    "bundleId": "com.example.lumen",
    "trackViewUrl": "https://apps.apple.com/us/app/lumen/id310633997?uo=4",
    "description": "A lamp in your pocket.\nIt dims by itself.",
    "sellerName": "Ohm Inc.",
    "artistName": "Ohm",
    "sellerUrl": "https://ohm.example/",
    "primaryGenreName": "Productivity",
    "genres": ["Productivity", "Utilities"],
    "version": "7.2",
    "releaseDate": "2009-05-04T02:43:33Z",
    "currentVersionReleaseDate": "2026-01-12T18:00:00Z",
    "price": 0.0,
    "formattedPrice": "Free",
    "currency": "USD",
    "averageUserRating": 4.69,
    "userRatingCount": 12043,
    "contentAdvisoryRating": "4+",
    "minimumOsVersion": "16.0",
    "languageCodesISO2A": ["DE", "EN"],
    "artworkUrl512": "https://is1.mzstatic.example/512.png",
    "screenshotUrls": ["https://is1.mzstatic.example/1.png", 7, "javascript:alert(1)"],
}


class ITunes:
    """Answers ``/lookup``; what it was asked is kept."""

    def __init__(self) -> None:
        self.apps: list[dict[str, Any]] = [LAMP]
        self.asked: list[dict[str, str]] = []
        self.troubles: deque[Response] = deque()
        """What the next calls are answered instead."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asked = dict(Request(scope).query_params)
        self.asked.append(asked)
        answer = self.troubles.popleft() if self.troubles else self._found(asked)
        await answer(scope, receive, send)

    def _found(self, asked: dict[str, str]) -> Response:
        names = {asked.get("id"), asked.get("bundleId")}
        found = [app for app in self.apps if {str(app.get("trackId")), app.get("bundleId")} & names]
        body = json.dumps({"resultCount": len(found), "results": found}, indent=1)
        return Response(f"\n\n\n{body}\n\n\n", media_type="text/javascript; charset=utf-8")
