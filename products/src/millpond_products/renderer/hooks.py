"""The webhooks of predictions, signed and retried as Replicate does it.

Events before the end are sent once. The end is retried for about a minute, until the receiver accepts it. The webhooks
of one prediction are sent in order.
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
    from millpond.product import Outbound

PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 29.0)
"""Seconds between the attempts to send the end; the last attempt is a minute after the first."""
SECONDS: Final = 10.0


def secret_of(token: str) -> str:
    """The secret that signs webhooks. It is derived from the token, so a restart does not change it."""
    key = hmac.digest(token.encode(), b"millpond renderer webhooks", hashlib.sha256)
    return f"whsec_{base64.b64encode(key).decode()}"


class Hooks:
    """Sends webhooks, in order for each prediction."""

    def __init__(self, outbound: Outbound, secret: str) -> None:
        self._outbound = outbound
        self._secret = secret
        self._last_tasks: dict[str, asyncio.Task[None]] = {}

    def enqueue(self, prediction_id: str, url: str, body: bytes, *, is_end: bool) -> None:
        before = self._last_tasks.get(prediction_id)
        message_id = f"msg_{hashlib.sha256(prediction_id.encode() + body).hexdigest()[:26]}"
        task = asyncio.create_task(self._send(before, message_id, url, body, PAUSES if is_end else ()))
        self._last_tasks[prediction_id] = task
        task.add_done_callback(lambda done: self._forget(prediction_id, done))

    async def close(self) -> None:
        for task in list(self._last_tasks.values()):
            task.cancel()
        await asyncio.gather(*self._last_tasks.values(), return_exceptions=True)

    def _forget(self, prediction_id: str, done: asyncio.Task[None]) -> None:
        if self._last_tasks.get(prediction_id) is done:
            del self._last_tasks[prediction_id]

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
        logs.emit("renderer.webhook_failed", webhook_id=message_id, status=status)

    async def _try(self, message_id: str, url: str, body: bytes) -> int | None:
        headers = webhooks.headers(message_id, int(time.time()), body, [self._secret])
        headers |= {"content-type": "application/json", "user-agent": "millpond-renderer"}
        with contextlib.suppress(MillpondError):
            answer = await self._outbound.send("POST", url, headers=headers, body=body, seconds=SECONDS)
            return answer.status
        return None
