"""The webhooks of predictions, signed, and sent again as Replicate does it.

What happens on the way is told once; the end is told until it is heard, for about a minute. What is told of one
prediction is told in order.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import time
from typing import TYPE_CHECKING, Final

from millpond import logs, webhooks
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from millpond.outbound import Outbound

PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 29.0)
"""Seconds between the tries to tell of an end; the last comes a minute after it."""
SECONDS: Final = 10.0


def secret_of(token: str) -> str:
    """What a renderer signs with; the same after it was started anew, for it comes from its token."""
    key = hmac.digest(token.encode(), b"millpond renderer webhooks", hashlib.sha256)
    return f"whsec_{base64.b64encode(key).decode()}"


class Hooks:
    """Sends what is told, each prediction's in a line of its own."""

    def __init__(self, outbound: Outbound, secret: str) -> None:
        self._outbound = outbound
        self._secret = secret
        self._lines: dict[str, asyncio.Task[None]] = {}

    def tell(self, prediction_id: str, url: str, body: bytes, *, is_end: bool) -> None:
        before = self._lines.get(prediction_id)
        message_id = f"msg_{hashlib.sha256(prediction_id.encode() + body).hexdigest()[:26]}"
        task = asyncio.create_task(self._send(before, message_id, url, body, PAUSES if is_end else ()))
        self._lines[prediction_id] = task
        task.add_done_callback(lambda done: self._forget(prediction_id, done))

    async def close(self) -> None:
        for task in list(self._lines.values()):
            task.cancel()
        await asyncio.gather(*self._lines.values(), return_exceptions=True)

    def _forget(self, prediction_id: str, done: asyncio.Task[None]) -> None:
        if self._lines.get(prediction_id) is done:
            del self._lines[prediction_id]

    async def _send(
        self, before: asyncio.Task[None] | None, message_id: str, url: str, body: bytes, pauses: tuple[float, ...]
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        status = None
        for pause in (*pauses, None):
            status = await self._try(message_id, url, body)
            if status is not None and 200 <= status < 300:  # noqa: PLR2004 - what HTTP calls a success
                return
            if pause is not None:
                await asyncio.sleep(pause)
        logs.emit("renderer.unheard", webhook_id=message_id, status=status)

    async def _try(self, message_id: str, url: str, body: bytes) -> int | None:
        headers = webhooks.headers(message_id, int(time.time()), body, [self._secret])
        headers |= {"content-type": "application/json", "user-agent": "millpond-renderer"}
        with contextlib.suppress(MillpondError):
            answer = await self._outbound.send("POST", url, headers=headers, body=body, seconds=SECONDS)
            return answer.status
        return None
