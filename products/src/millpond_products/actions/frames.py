"""Frames: the log of a job as server-sent events, followed by one status event when the job has ended.

Other events of the job have no frame. The id of the status event is the number of the job's last event: a client that
resumes from it has received everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.product import Form
from millpond_products.actions.wire import OutputLine, Status

if TYPE_CHECKING:
    from datetime import datetime

LOG: Final = "log"
_encode: Final = msgspec.json.Encoder().encode


def _frame(row: Any) -> bytes | None:
    if row["type"] != LOG:
        return None
    line = to_wire(row["seq"], row["at"], row["data"])
    return b"id: %d\nevent: log\ndata: %s\n\n" % (line.seq, _encode(line))


def to_wire(seq: int, at: datetime, data: str | None) -> OutputLine:
    """A log line, from its event."""
    fields = msgspec.json.decode(data or "{}")
    return OutputLine(seq=seq, at=at, level=str(fields.get("level") or "info"), text=str(fields.get("text") or ""))


def _end(row: Any) -> bytes:
    output = None if row["output"] is None else msgspec.Raw(row["output"].encode())
    status = _encode(Status(state=row["state"], output=output))
    return b"id: %d\nevent: status\ndata: %s\n\n" % (row["events"], status)


FORM: Final = Form(_frame, _end, needs_output=True)
