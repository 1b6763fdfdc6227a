"""Gates: what a kind's input must pass before it is paid for, and its output before it is released.

A gate that is not there, or that fails, lets nothing pass.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, cast

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

    from millpond.engine.jobs import JobRecord, Submission
    from millpond.kinds import Kind


class Gates(dict[str, Gate]):
    """The gates of an engine, by name."""

    def of(self, kind: Kind) -> Gate:
        """The gate of a kind that has one."""
        gate = self.get(kind.gate or "")
        if gate is None:
            raise GateMissingError(
                f"Kind {kind.name!r} is behind the gate {kind.gate!r}, which is not there.",
                field="kind",
                hint="Declare it with app.gate(name, gate), or serve the blueprint that has it.",
            )
        return gate

    def report(self, kinds: Iterable[Kind]) -> None:
        """Log which kinds can only be refused here."""
        for kind in kinds:
            if kind.gate is not None and kind.gate not in self:
                logs.emit("gate.missing", type=kind.name, gate=kind.gate)

    async def admit(self, kind: Kind, item: Submission) -> Submission:
        """A job to be as its gate lets it pass: stored, and priced, with the input that is left."""
        given: Any = msgspec.json.decode(item.input)
        passed = await self._inbound(kind, item.tenant, given)
        if passed == given:
            return item
        text = values.encode(passed, field="input", most=kind.size_max)
        return msgspec.structs.replace(item, input=text, price=kind.cost(kind.read(passed)))

    async def admit_again(self, kind: Kind, job: JobRecord) -> None:
        """Whether a job may run once more as it stands: what is stored cannot be changed any more."""
        if await self._inbound(kind, job.tenant, job.input) != job.input:
            raise ContentBlockedError("By today's rules the input would be changed.", hint="Submit it as a new job.")

    async def _inbound(self, kind: Kind, tenant: str, given: Any) -> Any:
        gate = self.of(kind)
        try:
            return await gate.inbound(tenant, given)
        except BlockedError as blocked:
            told = ContentBlockedError(blocked.message, field=blocked.field or "input", hint=blocked.hint)
            told.details = blocked.details
            raise told from None
        except MillpondError:
            raise
        except Exception as error:
            self._failed(kind, error)
            raise UnavailableError("The input could not be checked. Nothing was charged.") from error

    async def release(self, kind: Kind, end: End) -> End:
        """How a job ends that its worker ended well: with the output that its gate lets pass, or blocked.

        A database that is away is no verdict: nothing is released, and the worker tries again.
        """
        try:
            given = None if end.output is None else msgspec.json.decode(end.output)
            passed = await self.of(kind).outbound(end.lease.tenant, given)
            if passed == given:
                return end
            return msgspec.structs.replace(end, output=values.encode(passed, field="output", most=kind.size_max))
        except UnavailableError:
            raise
        except BlockedError as blocked:
            told = blocked
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no leave to pass
            self._failed(kind, error)
            told = BlockedError("The output could not be checked, and so it is not released.", reason="gate_failed")
        return End(end.lease, "blocked", error=told.as_dict(), origin=end.origin)

    async def release_error(self, kind: Kind, tenant: str, error: dict[str, Any]) -> dict[str, Any]:
        """What may be told of what went wrong: the code of a job may write into it what its output must not say."""
        try:
            passed = await self.of(kind).outbound(tenant, error)
        except UnavailableError:
            raise
        except BlockedError:
            return _neutral(error)
        except Exception as failure:  # noqa: BLE001 - as above
            self._failed(kind, failure)
            return _neutral(error)
        return cast("dict[str, Any]", passed) if isinstance(passed, dict) else _neutral(error)

    def _failed(self, kind: Kind, error: Exception) -> None:
        """The text of an error may hold what the gate looked at: only its class is told."""
        logs.emit("gate.failed", type=kind.name, gate=kind.gate, error=type(error).__name__)


def _neutral(error: dict[str, Any]) -> dict[str, Any]:
    """An error that tells nothing; its code stays, if it is one of ours and not some text."""
    code = error.get("code")
    return {
        "code": code if code in _codes(MillpondError) else HandlerError.code,
        "message": "The rules do not let pass what its code says of it.",
        "reason": "withheld",
    }


def _codes(kind: type[MillpondError]) -> set[str]:
    return {kind.code}.union(*map(_codes, kind.__subclasses__()))


def digested(item: Submission) -> Submission:
    """A job to be that is recognised by a digest of what was asked for.

    What a gate takes out of an input must not stay beside its key, and a gate that has changed must not make another
    request of it.
    """
    if item.key is None:
        return item
    asked: Any = msgspec.json.decode(item.input if item.request is None else item.request)
    told = msgspec.json.encode([item.tenant, item.scope, item.key, item.kind, _plain(asked)], order="sorted")
    request = msgspec.json.encode({"sha256": hashlib.sha256(told).hexdigest()}).decode()
    return msgspec.structs.replace(item, request=request)


def _plain(value: Any) -> Any:
    """With whole numbers as such: to PostgreSQL 1.0 and 1 are the same."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(child) for name, child in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(child) for child in cast("list[Any]", value)]
    return value
