"""A kind of job: its lifecycle, stages, input, price and limits, and its handler."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_type_hints

import msgspec

from millpond import values
from millpond.errors import InputError, InvalidError, LifecycleError, UnknownKindError, UnknownRouteError
from millpond.lifecycle import STANDARD, Lifecycle
from millpond.limits import Limit, check_limits
from millpond.retry import Backoff
from millpond.webhooks import NATIVE, Webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping
    from datetime import timedelta

    from millpond.providers import Provided
    from millpond.resources import DeclaredResource

    Handler = Callable[..., Any]
    Price = int | Callable[[Any], int]

CAP_MAX: Final = 1_000
_MESSAGE_MAX: Final = 500
_FIELD_MAX: Final = 200

_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*?)`)?$", re.DOTALL)
_NAMED: Final = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The declaration of a kind. Created by :meth:`millpond.Millpond.kind`, which checks it."""

    name: str
    handlers: Mapping[str | None, Handler] = field(default_factory=lambda: MappingProxyType({}))
    """The handlers by state; ``None`` is the handler for all other states."""
    lifecycle: Lifecycle = STANDARD
    queue: str = ""
    price: Price = 0
    budget: int | None = None
    """What the children of a job may cost in all; held with the price, and what is left is released. Without a budget,
    children are charged to the account.
    """
    input_type: Any = None
    takes_whole_input: bool = False
    """Whether the handler takes its input as one value rather than as named arguments."""
    schema: Mapping[str, Any] | None = None
    stages: tuple[str, ...] = ()
    firm_stages: tuple[str, ...] = ()
    """The stages in which a job cannot be canceled."""
    expires_in: timedelta | None = None
    time_limit: timedelta | None = None
    """The time limit of an attempt."""
    stall_limit: timedelta | None = None
    """The stall limit: how long the handler may report no progress, stage, log line, file or checkpoint."""
    priority: int = 0
    attempts_max: int = 3
    interruptions_max: int = 10
    lapses_max: int = 3
    backoff: Backoff = field(default_factory=Backoff)
    takes_queue_hop: bool = True
    """Whether a job that may start immediately is created in the lifecycle's queued state."""
    is_fair: bool = False
    """Whether the queue is shared fairly between tenants."""
    runs: Literal["handler", "fleet", "provider"] = "handler"
    """Where jobs run: in a direct worker, in a fleet worker over HTTP, or at a provider."""
    run: Literal["inline", "process"] = "inline"
    """How a worker runs the handler: inline, which is on its event loop if the handler is ``async`` and otherwise in a
    thread; or in a process of its pool, which a cancel or a deadline can kill.
    """
    resources: tuple[DeclaredResource, ...] = ()
    """The resources that the handler takes, as arguments of their names."""
    provider: Provided | None = None
    """The prediction that a provider is asked for, and how its result is used."""
    limits: tuple[Limit, ...] = ()
    """How many of its jobs run at once, and how many start per period."""
    needs: tuple[str, ...] = ()
    """The providers that the handler uses, by name. If one is missing, submits are rejected and no job is started."""
    webhook: Webhook = field(default_factory=lambda: NATIVE)
    """The format of the events for the webhook URL of a job."""
    is_delivered: bool = False
    """Whether a job with a webhook URL succeeds only when its delivery has succeeded."""
    gate: str | None = None
    """The name of the gate that checks the input before the job is charged, and the output before it is released."""
    answered_by: Literal["client", "operator"] = "client"
    """Who may answer a parked job over the API: any key that may read the job, or only keys of operators. Jobs of a
    kind with ``needs`` wait for a provider, and only keys of operators may answer them.
    """
    is_open: bool = True
    """Whether any key may submit jobs. If not, only the product does, with input that it created itself."""
    size_max: int = values.BYTES_MAX
    """The limit of input, memo, answer and output, in bytes of JSON. Raise it only if files are not an option."""
    files: Callable[[Any], Mapping[str, str]] | None = None
    """Maps the input to the files that its worker may download in addition to the artifacts in the input: the names
    with their paths in storage. Only for input that the product created itself: a client that can choose a path can
    read that file.
    """
    output_path: Callable[[str, str, str], str] | None = None
    """Maps the tenant's folder, the job's id and the file's name to the path of an output file in storage."""
    output_files: Callable[[Any], Iterable[str]] | None = None
    """Maps the output to the artifacts that a fleet worker must have stored; at least one."""
    summary: str = ""
    entry_state: str = field(init=False)
    """The initial state of a job that may start immediately."""

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
            values.check_amount(self.price, field="price", maximum=values.PRICE_MAX)
        if self.budget is not None:
            values.check_amount(self.budget, field="budget", minimum=1, maximum=values.PRICE_MAX)
        self._check_runs()
        if self.answered_by not in ("client", "operator"):
            raise LifecycleError(f"Kind {self.name!r}: answered_by must be 'client' or 'operator'.")
        self._check_stages()
        self._check_limits()
        self._check_needs()
        self._check_delivery()
        if self.schema is not None:
            _validator(self.name, self.schema)
        object.__setattr__(self, "limits", check_limits(self.limits))
        for limit in self.limits:
            limit.check_input(self.name, self.json_schema)

    @property
    def json_schema(self) -> dict[str, Any]:
        """The input as JSON Schema."""
        if self.schema is not None:
            return dict(self.schema)
        return msgspec.json.schema(self.input_type) if self.input_type is not None else {}

    def read(self, given: Any) -> Any:
        """The input in the form that its handler expects; raises an error that names the invalid field."""
        if self.schema is not None:
            _validate(_validator(self.name, self.schema), given)
        if self.input_type is None:
            return given
        try:
            return msgspec.convert(given, self.input_type)
        except msgspec.ValidationError as error:
            raise _input_error(str(error)) from None

    def cost(self, read: Any) -> int:
        """The price of a job with this input."""
        price = self.price if isinstance(self.price, int) else self.price(read)
        return values.check_amount(price, field="price", maximum=values.PRICE_MAX)

    def arguments(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A stored input as the handler's arguments after the job."""
        read: Any = msgspec.json.decode(text, type=Any if self.input_type is None else self.input_type)
        if self.takes_whole_input:
            return (read,), {}
        return (), msgspec.structs.asdict(read) if isinstance(read, msgspec.Struct) else read

    def route(self, name: str | None) -> str:
        """The queue of a job: the kind's own, or for fleet kinds a route below it (``queue:name``)."""
        if name is None or name == self.queue:
            return self.queue
        values.check_name(name, field="route")
        if not self.has_route(name):
            hint = (
                f"The only route of this kind is {self.queue!r}."
                if self.runs != "fleet"
                else (f"The routes of this kind begin with {self.queue + ':'!r}.")
            )
            raise UnknownRouteError(f"Kind {self.name!r} has no route {name!r}.", field="route", hint=hint)
        return name

    def has_route(self, name: str) -> bool:
        return name == self.queue or (self.runs == "fleet" and name.startswith(f"{self.queue}:"))

    def handler(self, state: str) -> Handler | None:
        return self.handlers.get(state) or self.handlers.get(None)

    def declaration(self) -> dict[str, Any]:
        """The public description of the kind, as JSON."""
        return {
            "summary": self.summary,
            "price": self.price if isinstance(self.price, int) else "by input",
            "budget": self.budget,
            "input": self.json_schema,
            "priority": self.priority,
            "runs": self.runs,
            "gate": self.gate,
            "limits": [limit.name for limit in self.limits],
            "expires_in_seconds": self.expires_in.total_seconds() if self.expires_in else None,
            "time_limit_seconds": self.time_limit.total_seconds() if self.time_limit else None,
        }

    def _check_stages(self) -> None:
        if len(set(self.stages)) != len(self.stages):
            raise LifecycleError(f"Kind {self.name!r}: the stages must be unique.")
        for stage in (*self.stages, *self.firm_stages):
            values.check_name(stage, field="stages")
            if stage not in self.stages:
                raise LifecycleError(f"Kind {self.name!r}: the firm stage {stage!r} is not one of its stages.")

    def _check_runs(self) -> None:
        if self.runs not in ("handler", "fleet", "provider"):
            hint = 'Did you mean run="process"?' if self.runs == "process" else None
            raise LifecycleError(f"Kind {self.name!r}: runs must be 'handler', 'fleet' or 'provider'.", hint=hint)
        if self.run not in ("inline", "process"):
            hint = f'Did you mean runs="{self.run}"?' if self.run in ("fleet", "provider") else None
            raise LifecycleError(f"Kind {self.name!r}: run must be 'inline' or 'process'.", hint=hint)
        if self.run == "process" and self.runs == "provider":
            raise LifecycleError(f"Kind {self.name!r}: a kind that runs at a provider cannot run in a process.")
        if (self.runs == "provider") != (self.provider is not None):
            raise LifecycleError(f"Kind {self.name!r}: a kind that runs at a provider requires a prediction.")

    def _check_needs(self) -> None:
        if self.provider is not None and self.provider.provider not in self.needs:
            object.__setattr__(self, "needs", (self.provider.provider, *self.needs))
        for name in self.needs:
            values.check_name(name, field="needs")
        if self.needs and self.expires_in is None:
            raise LifecycleError(f"Kind {self.name!r}: expires_in is required because its jobs wait for a provider.")

    def _check_delivery(self) -> None:
        """A kind with deliveries requires a delivering state that can succeed and fail."""
        transitions = self.lifecycle.transitions
        reached = [
            transition.target
            for transition in transitions
            if transition.event == "delivering" and transition.target != transition.source
        ]
        arrows = {(transition.source, transition.event) for transition in transitions}
        if self.is_delivered and not any({(state, "succeeded"), (state, "failed")} <= arrows for state in reached):
            raise LifecycleError(
                f"Kind {self.name!r}: the lifecycle has no delivering state that can succeed and fail."
            )

    def _check_limits(self) -> None:
        for name in ("attempts_max", "interruptions_max", "lapses_max"):
            if not 1 <= getattr(self, name) <= CAP_MAX:
                raise LifecycleError(f"Kind {self.name!r}: {name} must be from 1 to {CAP_MAX:,}.")
        for state in self.handlers:
            if state is not None and state not in self.lifecycle.states:
                raise LifecycleError(f"Kind {self.name!r}: the lifecycle has no state {state!r}.")


def find(kinds: Mapping[str, Kind], name: Any) -> Kind:
    """The kind with this name; raises an error that lists the known kinds."""
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(sorted(kinds)) or "none"
        raise UnknownKindError(f"There is no kind {str(name)[:80]!r}.", field="kind", hint=f"Known kinds: {known}.")
    return kind


def log_fields(kind: str) -> dict[str, str]:
    """How a log line names a kind. Its type is the name without the prefix of a product, as in the product's API."""
    return {"kind": kind, "type": kind.rpartition(".")[2]}


def input_type(name: str, handler: Handler, resources: Container[str] = ()) -> tuple[Any, bool]:
    """The type of the input, from the handler's parameters after the job, and whether it is taken as one value.

    Parameters with the names of resources are not part of the input.
    """
    parameters = [
        each for each in list(inspect.signature(handler).parameters.values())[1:] if each.name not in resources
    ]
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
    """The types of these parameters only; those of the job and the result may exist only for type checkers."""
    annotations = {
        parameter: handler.__annotations__[parameter]
        for parameter in parameters
        if parameter in handler.__annotations__
    }
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__=annotations), globalns=handler.__globals__, include_extras=True
        )
    except NameError as error:
        raise LifecycleError(
            f"Kind {name!r}: {error} when resolving the parameter types of its handler.",
            hint="Import the parameter types at run time, not under TYPE_CHECKING.",
        ) from error


def _is_record(hint: Any) -> bool:
    if not isinstance(hint, type):
        return False
    record = cast("type[object]", hint)
    return issubclass(record, msgspec.Struct | dict) or hasattr(record, "__dataclass_fields__")


def _input_error(message: str) -> InputError:
    place = _PLACE.fullmatch(message)
    what, path = (place["what"], place["path"] or "") if place else (message, "")
    named = _NAMED.fullmatch(what)
    return InputError(
        f"{what}.", field=values.printable(f"input{path}{'.' + named['name'] if named else ''}", _FIELD_MAX)
    )


def check_schema(schema: Mapping[str, Any], given: Any, *, field: str) -> None:
    """Check a value by the JSON Schema of a question; the error names the invalid part."""
    _validate(_compile(schema, retriever=_retrieve_nothing), given, field)


def check_is_schema(schema: Mapping[str, Any], *, field: str) -> None:
    """Check the JSON Schema of a question, which comes from a worker: no other document is read for it."""
    try:
        _compile(schema, retriever=_retrieve_nothing)
    except ValueError as error:
        reason = values.printable(str(error).partition("\n")[0], _MESSAGE_MAX)
        raise InvalidError(f"It is not a valid JSON Schema: {reason}", field=field) from None


def _retrieve_nothing(address: str) -> Any:
    raise ValueError(f"A reference to another document, {address[:80]!r}, is not supported.")


def _validator(name: str, schema: Mapping[str, Any]) -> Any:
    try:
        return _compile(schema)
    except ValueError as error:
        raise LifecycleError(f"Kind {name!r}: the schema is not a valid JSON Schema: {error}") from error


def _compile(schema: Mapping[str, Any], **options: Any) -> Any:
    try:
        import jsonschema_rs  # noqa: PLC0415 - not part of the SDK; the server has validated the input
    except ModuleNotFoundError:
        return None
    return jsonschema_rs.validator_for(dict(schema), **options)


def _validate(validator: Any, given: Any, field: str = "input") -> None:
    if validator is None:
        raise ModuleNotFoundError(
            "Validation by JSON Schema requires jsonschema_rs: run pip install 'millpond[server]'."
        )
    for error in validator.iter_errors(given):
        path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path)
        message = values.printable(error.message, _MESSAGE_MAX)
        raise InputError(f"{message}.", field=values.printable(f"{field}{path}", _FIELD_MAX))
