"""Kinds: what a job is, read off the function that does it and checked when it is declared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import pytest

from millpond import kinds
from millpond.app import Millpond
from millpond.errors import AmountError, InputError, InvalidError, LifecycleError, UnknownKindError
from millpond.kinds import Kind
from tests.lifecycles import RESTARTABLE, REVIEWED


class Picture(msgspec.Struct):
    prompt: str
    width: int = 512


@dataclass
class Sound:
    text: str


def declared(handler: Any, **options: Any) -> Kind:
    app = Millpond()
    app.kind("thing", **options)(handler)
    return app.kinds["thing"]


def test_the_parameters_after_the_job_are_the_input() -> None:
    def handler(job: Any, product: str, style: str = "plain", *, size: int = 1) -> None:
        """Make it.

        In this way.
        """

    kind = declared(handler, price=5, stages=("a", "b"), expires_in="1h", time_limit=90)
    read = kind.read({"product": "shoe"})
    assert (read.product, read.style, read.size) == ("shoe", "plain", 1)
    assert kind.arguments('{"product": "shoe", "size": 2}') == ((), {"product": "shoe", "style": "plain", "size": 2})
    assert kind.summary == "Make it."
    assert kind.handler("running") is handler
    assert (kind.expires_in, kind.time_limit) == (timedelta(hours=1), timedelta(seconds=90))
    assert (kind.queue, kind.stages) == ("thing", ("a", "b"))


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({}, "input.product", "missing required field `product`"),
        ({"product": 5}, "input.product", "Expected `str`, got `int`"),
        ({"product": "a", "sizes": [1, "x"]}, "input.sizes[1]", "Expected `int`, got `str`"),
        ({"product": "a", "colour": "red"}, "input.colour", "unknown field `colour`"),
        ([], "input", "Expected `object`, got `array`"),
        ("product", "input", "Expected `object`, got `str`"),
    ],
)
def test_input_of_another_shape_is_refused_with_its_place(given: Any, field: str, expected: str) -> None:
    def handler(job: Any, product: str, sizes: list[int] | None = None) -> None: ...

    with pytest.raises(InputError, match=expected) as caught:
        declared(handler).read(given)
    assert caught.value.field == field


@pytest.mark.parametrize("shape", [Picture, Sound, dict])
def test_one_record_is_taken_whole(shape: type) -> None:
    def handler(job: Any, given: Any) -> None: ...

    handler.__annotations__["given"] = shape
    kind = declared(handler)
    (read,), named = kind.arguments('{"prompt": "a cat", "text": "meow"}')
    assert isinstance(read, shape)
    assert named == {}


def test_open_parameters_take_any_input() -> None:
    def named(job: Any, **given: Any) -> None: ...

    def whole(job: Any, *given: Any) -> None: ...

    assert declared(named).arguments('{"a": 1}') == ((), {"a": 1})
    assert declared(whole).arguments("[1, 2]") == (([1, 2],), {})
    assert declared(named).json_schema == {}


def test_a_handler_without_input_refuses_any() -> None:
    def handler(job: Any) -> None: ...

    kind = declared(handler)
    kind.read({})
    with pytest.raises(InputError, match="unknown field `a`"):
        kind.read({"a": 1})


def test_a_json_schema_may_describe_the_input_instead() -> None:
    def handler(job: Any, **given: Any) -> None: ...

    schema = {"properties": {"sizes": {"items": {"minimum": 1}}}, "required": ["sizes"]}
    kind = declared(handler, schema=schema)
    assert kind.read({"sizes": [1]}) == {"sizes": [1]}
    assert kind.json_schema == schema
    with pytest.raises(InputError) as caught:
        kind.read({"sizes": [1, 0]})
    assert caught.value.field == "input.sizes[1]"
    with pytest.raises(InputError, match="sizes"):
        kind.read({})


def test_the_declaration_reports_the_input_as_json_schema() -> None:
    def handler(job: Any, product: str) -> None: ...

    declaration = declared(handler, price=5, expires_in="1m").declaration()
    assert (declaration["price"], declaration["expires_in_seconds"]) == (5, 60)
    assert "product" in str(declaration["input"])
    msgspec.json.encode(declaration)


def test_a_price_may_depend_on_the_input() -> None:
    def handler(job: Any, units: int) -> None: ...

    kind = declared(handler, price=lambda given: given.units * 2)
    assert kind.cost(kind.read({"units": 3})) == 6
    assert kind.declaration()["price"] == "by input"


@pytest.mark.parametrize("units", [-1, 10**12 + 1])
def test_a_price_that_comes_out_absurd_is_refused(units: int) -> None:
    def handler(job: Any, units: int) -> None: ...

    kind = declared(handler, price=lambda given: given.units)
    with pytest.raises(AmountError):
        kind.cost(kind.read({"units": units}))


WRONG = {
    "a name with a space": ({"name": "a thing"}, InvalidError),
    "no name": ({"name": ""}, InvalidError),
    "a queue with a space": ({"queue": "a queue"}, InvalidError),
    "a negative price": ({"price": -1}, AmountError),
    "a priority out of range": ({"priority": 101}, InvalidError),
    "a stage twice": ({"stages": ("a", "a")}, LifecycleError),
    "a firm stage that is none": ({"stages": ("a",), "firm_stages": ("b",)}, LifecycleError),
    "a stage with a space": ({"stages": ("a b",)}, InvalidError),
    "no attempt": ({"attempts_max": 0}, LifecycleError),
    "endless interruptions": ({"interruptions_max": 1_001}, LifecycleError),
    "no lapse": ({"lapses_max": 0}, LifecycleError),
    "code for a state that is none": ({"handlers": {"dreaming": print}}, LifecycleError),
    "a schema that is none": ({"schema": {"type": "nonsense"}}, LifecycleError),
}


@pytest.mark.parametrize(("options", "error"), WRONG.values(), ids=WRONG)
def test_a_kind_that_cannot_work_is_refused_when_declared(options: dict[str, Any], error: type[Exception]) -> None:
    options = {"name": "thing"} | options
    with pytest.raises(error):
        Kind(**options)


def test_a_kind_is_declared_once() -> None:
    app = Millpond()
    app.add(Kind(name="thing"))
    with pytest.raises(LifecycleError, match="declared more than once"):
        app.add(Kind(name="thing"))


def test_a_kind_may_have_code_for_each_state() -> None:
    kind = Kind(name="thing", lifecycle=REVIEWED, handlers={"reading": print, None: repr})
    assert kind.handler("reading") is print
    assert kind.handler("writing") is repr
    assert Kind(name="thing").handler("running") is None


def test_a_job_is_born_in_the_queued_state_unless_its_kind_has_no_queue_hop() -> None:
    assert Kind(name="thing", lifecycle=RESTARTABLE).entry_state == "queued"
    assert Kind(name="thing", lifecycle=RESTARTABLE, takes_queue_hop=False).entry_state == "pending"
    assert Kind(name="thing").entry_state == "queued"


@pytest.mark.parametrize("name", ["thong", "", None, 7, ["thing"], "x" * 1_000, "\x00"])
def test_an_unknown_kind_is_refused_with_the_known_ones(name: Any) -> None:
    with pytest.raises(UnknownKindError) as caught:
        kinds.find({"thing": Kind(name="thing")}, name)
    assert caught.value.field == "kind"
    assert caught.value.hint == "Known kinds: thing."
    assert len(str(caught.value)) < 300


def test_the_bounds_of_a_parameter_are_kept() -> None:
    app = Millpond()

    @app.kind("bounded")
    def bounded(job: Any, copies: Annotated[int, msgspec.Meta(ge=1, le=9)]) -> None: ...

    with pytest.raises(InputError) as refused:
        app.kinds["bounded"].read({"copies": 10})
    assert refused.value.field == "input.copies"


def test_what_is_delivered_has_a_state_for_it() -> None:
    assert Kind(name="thing", is_delivered=True).is_delivered
    assert Kind(name="thing", lifecycle=REVIEWED, is_delivered=True).is_delivered
    with pytest.raises(LifecycleError, match="no delivering state"):
        Kind(name="thing", lifecycle=RESTARTABLE, is_delivered=True)
