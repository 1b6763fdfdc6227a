"""Gates: checks of a kind's input before it is paid for, and of its output before it is released.

A gate that is missing, or that fails, lets nothing pass.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from millpond import logs, values
from millpond.errors import (
    BlockedError,
    ContentBlockedError,
    GateMissingError,
    HandlerError,
    MillpondError,
    UnavailableError,
)
from millpond.gates import Gate
from millpond.work import End

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millpond.engine.jobs.jobs import JobRecord, KeyedRequest, Submission
    from millpond.kinds import Kind

ItemT = TypeVar("ItemT", bound="Submission | KeyedRequest")


class Gates(dict[str, Gate]):
    """The gates of an engine, by name."""

    def of(self, kind: Kind) -> Gate:
        """The gate of a kind that requires one; raises if it is not declared."""
        gate = self.get(kind.gate or "")
        if gate is None:
            raise GateMissingError(
                f"Kind {kind.name!r} requires the gate {kind.gate!r}, which is not declared.",
                field="kind",
                hint="Declare the gate with app.gate(name, gate), or enable the product that has it.",
            )
        return gate

    def report(self, kinds: Iterable[Kind]) -> None:
        """Log the kinds whose gate is missing: all their jobs are refused."""
        for kind in kinds:
            if kind.gate is not None and kind.gate not in self:
                logs.emit("gate.missing", type=kind.name, gate=kind.gate)

    async def admit(self, kind: Kind, item: Submission) -> Submission:
        """Check the input of a request with its gate. If the gate changes it, the result is stored and priced."""
        given: Any = msgspec.json.decode(item.input)
        passed = await self._inbound(kind, item.tenant, given)
        if passed == given:
            return item
        text = values.encode(passed, field="input", limit=kind.size_max)
        return msgspec.structs.replace(item, input=text, price=kind.cost(kind.read(passed)))

    async def check_retry(self, kind: Kind, job: JobRecord) -> None:
        """Check the input of a job that is retried in place.

        Raises if the gate would change the input, because a stored input cannot be changed.
        """
        if await self._inbound(kind, job.tenant, job.input) != job.input:
            raise ContentBlockedError("The current rules would change the input.", hint="Submit it as a new job.")

    async def _inbound(self, kind: Kind, tenant: str, given: Any) -> Any:
        gate = self.of(kind)
        try:
            return await gate.inbound(tenant, given)
        except BlockedError as blocked:
            refusal = ContentBlockedError(blocked.message, field=blocked.field or "input", hint=blocked.hint)
            refusal.details = blocked.details
            raise refusal from None
        except MillpondError:
            raise
        except Exception as error:
            self._report_failure(kind, error)
            raise UnavailableError("The input could not be checked. Nothing was charged.") from error

    async def release(self, kind: Kind, end: End) -> End:
        """Check the output of a job that succeeded: it ends with the output that the gate lets pass, or as blocked.

        If a database is unavailable, nothing is decided and nothing is released: the worker tries again.
        """
        try:
            given = None if end.output is None else msgspec.json.decode(end.output)
            passed = await self.of(kind).outbound(end.lease.tenant, given)
            if passed == given:
                return end
            return msgspec.structs.replace(end, output=values.encode(passed, field="output", limit=kind.size_max))
        except UnavailableError:
            raise
        except BlockedError as blocked:
            refusal = blocked
        except Exception as error:  # noqa: BLE001 - whatever the error is, nothing passes
            self._report_failure(kind, error)
            refusal = BlockedError("The output could not be checked and is not released.", reason="gate_failed")
        return End(end.lease, "blocked", error=refusal.as_dict(), origin=end.origin)

    async def release_error(self, kind: Kind, tenant: str, error: dict[str, Any]) -> dict[str, Any]:
        """Check the error of a job with its gate, and return the error that may be shown.

        The code of a job can write into an error what its output must not contain.
        """
        try:
            passed = await self.of(kind).outbound(tenant, error)
        except UnavailableError:
            raise
        except BlockedError:
            return _neutral(error)
        except Exception as failure:  # noqa: BLE001 - as above
            self._report_failure(kind, failure)
            return _neutral(error)
        return cast("dict[str, Any]", passed) if isinstance(passed, dict) else _neutral(error)

    def _report_failure(self, kind: Kind, error: Exception) -> None:
        """Log only the class of the error: its text may contain what the gate checked."""
        logs.emit("gate.failed", type=kind.name, gate=kind.gate, error=type(error).__name__)


def _neutral(error: dict[str, Any]) -> dict[str, Any]:
    """An error without details. It keeps its code only if that is one of Millpond's, and not text from the job."""
    code = error.get("code")
    return {
        "code": code if code in _codes(MillpondError) else HandlerError.code,
        "message": "The rules do not allow the error of the job to be shown.",
        "reason": "withheld",
    }


def _codes(kind: type[MillpondError]) -> set[str]:
    return {kind.code}.union(*map(_codes, kind.__subclasses__()))


def digested(item: ItemT) -> ItemT:
    """Replace the request that is stored with an idempotency key by its digest.

    What a gate removes from an input must not be stored beside the key, and after a change of the gate the same request
    must still be recognised.
    """
    if item.key is None:
        return item
    requested: Any = msgspec.json.decode(item.input if item.request is None else item.request)
    parts: list[Any] = [item.tenant, item.scope, item.key, item.kind, _plain(requested)]
    if item.tags is not None and item.request is None:
        parts.append(msgspec.json.decode(item.tags))
    encoded = msgspec.json.encode(parts, order="sorted")
    request = msgspec.json.encode({"sha256": hashlib.sha256(encoded).hexdigest()}).decode()
    return msgspec.structs.replace(item, request=request)


def _plain(value: Any) -> Any:
    """The value with whole floats as integers: for PostgreSQL, 1.0 equals 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(child) for name, child in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(child) for child in cast("list[Any]", value)]
    return value
