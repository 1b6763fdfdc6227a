"""A kind: what a job is. Its lifecycle, stages, input, price and limits, and the code that does it."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_type_hints

import msgspec

from millpond import values
from millpond.errors import InputError, LifecycleError, UnknownKindError, UnknownRouteError
from millpond.lifecycle import STANDARD, Lifecycle
from millpond.retry import Backoff
from millpond.webhooks import NATIVE, Webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta

    from millpond.providers import Provided

    Handler = Callable[..., Any]
    Price = int | Callable[[Any], int]

CAP_MAX: Final = 1_000

_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*?)`)?$", re.DOTALL)
_NAMED: Final = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What one kind of job declares. Made by :meth:`millpond.Millpond.kind`; checked when it is made."""

    name: str
    handlers: Mapping[str | None, Handler] = field(default_factory=lambda: MappingProxyType({}))
    """The code, by the state in which it runs; ``None`` serves every state that has no code of its own."""
    lifecycle: Lifecycle = STANDARD
    queue: str = ""
    price: Price = 0
    input_type: Any = None
    takes_whole_input: bool = False
    """Whether the handler wants its input as one value rather than as named arguments."""
    schema: Mapping[str, Any] | None = None
    stages: tuple[str, ...] = ()
    firm_stages: tuple[str, ...] = ()
    """The stages in which a cancel is refused."""
    expires_in: timedelta | None = None
    time_limit: timedelta | None = None
    """How long one attempt may run."""
    stall_limit: timedelta | None = None
    """How long its code may give no sign: no progress, stage, log, file or checkpoint."""
    priority: int = 0
    attempts_max: int = 3
    interruptions_max: int = 10
    lapses_max: int = 3
    backoff: Backoff = field(default_factory=Backoff)
    takes_queue_hop: bool = True
    """Whether a job that may start at once is moved to the lifecycle's queued state at birth."""
    is_fair: bool = False
    """Whether its queue shares the workers fairly between tenants."""
    runs: Literal["handler", "fleet", "provider"] = "handler"
    """Who runs it: a worker beside the database, one of the fleet, which comes over HTTP, or an outside provider."""
    provider: Provided | None = None
    """What a provider is asked, and what becomes of its answer."""
    needs: tuple[str, ...] = ()
    """The providers that its code asks, by name. Where one is missing no job is taken in, and none is begun."""
    webhook: Webhook = field(default_factory=lambda: NATIVE)
    """In which words the URL that a job was submitted with is told of it."""
    is_delivered: bool = False
    """Whether a job with such a URL has succeeded only when that has taken the news."""
    gate: str | None = None
    """The name of the gate that its input must pass before it is paid for, and its output before it is released."""
    is_open: bool = True
    """Whether anybody with a key may submit it. If not, only its own product does, with input that it made itself."""
    size_max: int = values.BYTES_MAX
    """How many bytes of JSON each of its input, memo, answer and output may be; more only where files will not do."""
    files: Callable[[Any], Mapping[str, str]] | None = None
    """From its input: what its worker may download beside the artifacts named in it, by name, each with its path in
    storage. For input that the product made itself: whoever chooses a path reads what is there."""
    output_path: Callable[[str, str, str], str] | None = None
    """Where a file goes in storage that its worker makes: from the tenant's folder, the job's id, the file's name."""
    output_files: Callable[[Any], Iterable[str]] | None = None
    """From its output: the artifacts that a worker of the fleet must have stored for it, one at least."""
    summary: str = ""
    entry_state: str = field(init=False)
    """The state in which a job that may start at once is born."""

    def __post_init__(self) -> None:
        initial = self.lifecycle.initial
        entry = self.lifecycle.after(initial, "queued") if self.takes_queue_hop else initial
        object.__setattr__(self, "entry_state", entry)
        values.check_name(self.name, field="kind")
        if not self.queue:
            object.__setattr__(self, "queue", self.name)
        values.check_name(self.queue, field="queue")
        values.check_priority(self.priority)
        if self.gate is not None:
            values.check_name(self.gate, field="gate")
        if isinstance(self.price, int):
            values.check_amount(self.price, field="price", most=values.PRICE_MAX)
        if self.runs not in ("handler", "fleet", "provider"):
            raise LifecycleError(f"Kind {self.name!r}: runs must be 'handler', 'fleet' or 'provider'.")
        if (self.runs == "provider") != (self.provider is not None):
            raise LifecycleError(f"Kind {self.name!r}: what a provider runs must say what it is asked.")
        self._check_stages()
        self._check_limits()
        self._check_needs()
        self._check_delivery()
        if self.schema is not None:
            _validator(self.name, self.schema)

    @property
    def json_schema(self) -> dict[str, Any]:
        """The input as JSON Schema."""
        if self.schema is not None:
            return dict(self.schema)
        return msgspec.json.schema(self.input_type) if self.input_type is not None else {}

    def read(self, given: Any) -> Any:
        """The input as its handler wants it, or the refusal that names the field."""
        if self.schema is not None:
            _validate(_validator(self.name, self.schema), given)
        if self.input_type is None:
            return given
        try:
            return msgspec.convert(given, self.input_type)
        except msgspec.ValidationError as error:
            raise _input_error(str(error)) from None

    def cost(self, read: Any) -> int:
        """What a job with this input costs."""
        price = self.price if isinstance(self.price, int) else self.price(read)
        return values.check_amount(price, field="price", most=values.PRICE_MAX)

    def arguments(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A stored input as the arguments of the handler, after the job."""
        read: Any = msgspec.json.decode(text, type=Any if self.input_type is None else self.input_type)
        if self.takes_whole_input:
            return (read,), {}
        return (), msgspec.structs.asdict(read) if isinstance(read, msgspec.Struct) else read

    def route(self, name: str | None) -> str:
        """The queue of a job: the kind's own or, for the fleet, one that is named below it (``queue:name``)."""
        if name is None or name == self.queue:
            return self.queue
        values.check_name(name, field="route")
        if not self.has_route(name):
            hint = f"It has {self.queue!r} alone." if self.runs != "fleet" else f"They begin with {self.queue + ':'!r}."
            raise UnknownRouteError(f"Kind {self.name!r} has no route {name!r}.", field="route", hint=hint)
        return name

    def has_route(self, name: str) -> bool:
        return name == self.queue or (self.runs == "fleet" and name.startswith(f"{self.queue}:"))

    def handler(self, state: str) -> Handler | None:
        return self.handlers.get(state) or self.handlers.get(None)

    def declaration(self) -> dict[str, Any]:
        """What is told about it, as JSON."""
        return {
            "summary": self.summary,
            "price": self.price if isinstance(self.price, int) else "by input",
            "input": self.json_schema,
            "priority": self.priority,
            "runs": self.runs,
            "gate": self.gate,
            "expires_in_seconds": self.expires_in.total_seconds() if self.expires_in else None,
            "time_limit_seconds": self.time_limit.total_seconds() if self.time_limit else None,
        }

    def _check_stages(self) -> None:
        if len(set(self.stages)) != len(self.stages):
            raise LifecycleError(f"Kind {self.name!r}: a stage is named twice.")
        for stage in (*self.stages, *self.firm_stages):
            values.check_name(stage, field="stages")
            if stage not in self.stages:
                raise LifecycleError(f"Kind {self.name!r}: {stage!r} refuses cancels but is not a stage.")

    def _check_needs(self) -> None:
        if self.provider is not None and self.provider.provider not in self.needs:
            object.__setattr__(self, "needs", (self.provider.provider, *self.needs))
        for name in self.needs:
            values.check_name(name, field="needs")
        if self.needs and self.expires_in is None:
            raise LifecycleError(f"Kind {self.name!r}: its jobs wait for a provider, so it must say expires_in.")

    def _check_delivery(self) -> None:
        """What is delivered must come to a state for it, from which it can succeed, and fail."""
        moves = self.lifecycle.moves
        reached = [move.target for move in moves if move.moment == "delivering" and move.target != move.source]
        arrows = {(move.source, move.moment) for move in moves}
        if self.is_delivered and not any({(state, "succeeded"), (state, "failed")} <= arrows for state in reached):
            raise LifecycleError(
                f"Kind {self.name!r}: its lifecycle has no state of being delivered that can succeed and fail."
            )

    def _check_limits(self) -> None:
        for name in ("attempts_max", "interruptions_max", "lapses_max"):
            if not 1 <= getattr(self, name) <= CAP_MAX:
                raise LifecycleError(f"Kind {self.name!r}: {name} must be from 1 to {CAP_MAX:,}.")
        for state in self.handlers:
            if state is not None and state not in self.lifecycle.states:
                raise LifecycleError(f"Kind {self.name!r}: its lifecycle has no state {state!r}.")


def find(kinds: Mapping[str, Kind], name: Any) -> Kind:
    """The kind of this name, or the refusal that lists the known ones."""
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(sorted(kinds)) or "none"
        raise UnknownKindError(f"There is no kind {str(name)[:80]!r}.", field="kind", hint=f"Known kinds: {known}.")
    return kind


def input_type(name: str, handler: Handler) -> tuple[Any, bool]:
    """The shape of the input, read off the handler's parameters after the job, and whether it is taken whole."""
    parameters = list(inspect.signature(handler).parameters.values())[1:]
    hints = _hints(name, handler, [parameter.name for parameter in parameters])
    if len(parameters) == 1 and _is_record(hints.get(parameters[0].name)):
        return hints[parameters[0].name], True
    fields: list[Any] = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return None, parameter.kind == parameter.VAR_POSITIONAL
        hint = hints.get(parameter.name, Any)
        given = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((parameter.name, hint, *given))
    return msgspec.defstruct(name.replace(".", "_"), fields, forbid_unknown_fields=True, kw_only=True), False


def _hints(name: str, handler: Handler, parameters: list[str]) -> dict[str, Any]:
    """The types of these parameters only: those of the job and the answer may be known to type checkers alone."""
    notes = {
        parameter: handler.__annotations__[parameter]
        for parameter in parameters
        if parameter in handler.__annotations__
    }
    try:
        return get_type_hints(SimpleNamespace(__annotations__=notes), globalns=handler.__globals__, include_extras=True)
    except NameError as error:
        raise LifecycleError(
            f"Kind {name!r}: {error} when its handler's input is read.",
            hint="Import the types of its parameters at run time, not under TYPE_CHECKING.",
        ) from error


def _is_record(hint: Any) -> bool:
    if not isinstance(hint, type):
        return False
    record = cast("type[object]", hint)
    return issubclass(record, msgspec.Struct | dict) or hasattr(record, "__dataclass_fields__")


def _input_error(told: str) -> InputError:
    place = _PLACE.fullmatch(told)
    what, path = (place["what"], place["path"] or "") if place else (told, "")
    named = _NAMED.fullmatch(what)
    return InputError(f"{what}.", field=values.printable(f"input{path}{'.' + named['name'] if named else ''}", 200))


def _validator(name: str, schema: Mapping[str, Any]) -> Any:
    try:
        import jsonschema_rs  # noqa: PLC0415 - a worker far from the server has none, and what it gets was checked there
    except ModuleNotFoundError:
        return None
    try:
        return jsonschema_rs.validator_for(dict(schema))
    except ValueError as error:
        raise LifecycleError(f"Kind {name!r}: its schema is not a JSON Schema: {error}") from error


def _validate(validator: Any, given: Any) -> None:
    if validator is None:
        raise ModuleNotFoundError("Checking an input by its schema needs jsonschema_rs: install millpond[server].")
    for error in validator.iter_errors(given):
        path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path)
        raise InputError(f"{error.message}.", field=f"input{path}")
