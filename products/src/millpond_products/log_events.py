"""The log events of the products, in addition to those of Millpond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.logs import Level

LOG_EVENTS: Final[Mapping[str, tuple[Level, str]]] = {
    "classifier.failed": ("error", "A classifier failed or took too long; its rule acts as if it had matched."),
    "gate.flagged": ("info", "A gate let a value pass in which rules had found something."),
    "guard.failed": ("error", "The rules could not be applied to a message, and so it was blocked."),
    "output.decoded": ("debug", "The output of a job was decoded, and has the declared type."),
    "output.unreadable": ("warning", "The output of a job cannot be decoded."),
    "renderer.ended": ("info", "A prediction of the local renderer ended."),
    "renderer.webhook_failed": ("warning", "The local renderer gave up sending a webhook: no attempt was accepted."),
    "storage.broken": ("error", "A file in storage is missing, or is not the one that was stored."),
}
