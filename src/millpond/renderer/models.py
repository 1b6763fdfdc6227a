"""What can be rendered: the models, what each takes, and how a wrong input is told."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from millpond.renderer.refusals import Refusal

AspectRatio = Literal["1:1", "4:5", "9:16", "16:9"]
Style = Literal["lifestyle", "minimal", "bold", "elegant", "playful", "tech"]
Voice = Literal[
    "en-us-woman",
    "en-us-man",
    "en-gb-woman",
    "en-gb-man",
    "de-woman",
    "de-man",
    "es-woman",
    "es-man",
    "fr-woman",
    "fr-man",
    "it-woman",
    "it-man",
    "nl-woman",
    "nl-man",
    "pl-woman",
    "pl-man",
    "pt-woman",
    "pt-man",
]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1, description="The same seed makes the same thing; none: any.")]
Speed = Annotated[float, Meta(ge=0.5, le=2.0, description="How fast to speak; 1 is a usual pace.")]

PRODUCT: Final = Meta(min_length=1, max_length=80, pattern=r"\S", description="What the product is called.")
HEADLINE: Final = Meta(max_length=120, description="The large words; none: they are made from the product.")
PRICE: Final = Meta(max_length=24, description="The price as it is to be read, such as $49.")
CALL: Final = Meta(max_length=32, description="What the button says.")
BRAND: Final = Meta(max_length=40, description="Who sells it.")
IMAGE: Final = Meta(description="A picture of the product: an http(s) URL, or a data URL. None: one is drawn.")


class _Input(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    seed: Seed | None = None


class StaticAd(_Input, frozen=True):
    """What ``millpond/static-ad`` takes."""

    product: Annotated[str, PRODUCT]
    headline: Annotated[str, HEADLINE] = ""
    description: Annotated[str, Meta(max_length=400, description="A sentence or two below the headline.")] = ""
    price: Annotated[str, PRICE] = ""
    call_to_action: Annotated[str, CALL] = "Shop now"
    brand: Annotated[str, BRAND] = ""
    image: Annotated[str, IMAGE] | None = None
    style: Style = "lifestyle"
    aspect_ratio: AspectRatio = "1:1"
    format: Literal["png", "jpg"] = "png"


class UgcVideo(_Input, frozen=True):
    """What ``millpond/ugc-video`` takes."""

    product: Annotated[str, PRODUCT]
    script: Annotated[str, Meta(max_length=600, description="What is said; none: it is made from the rest.")] = ""
    headline: Annotated[str, HEADLINE] = ""
    price: Annotated[str, PRICE] = ""
    call_to_action: Annotated[str, CALL] = "Shop now"
    brand: Annotated[str, BRAND] = ""
    image: Annotated[str, IMAGE] | None = None
    style: Style = "lifestyle"
    voice: Voice = "en-us-woman"
    speed: Speed = 1.0
    aspect_ratio: AspectRatio = "9:16"


class Persona(_Input, frozen=True):
    """What ``millpond/persona`` takes. The same seed is the same person, in every shot."""

    shot: Annotated[int, Meta(ge=1, le=4, description="Which picture: studio, park, home or evening.")] = 1
    presents: Literal["woman", "man"] | None = None
    age: Annotated[int, Meta(ge=18, le=80, description="In years; none: any.")] | None = None
    style: Style = "lifestyle"
    aspect_ratio: AspectRatio = "4:5"
    format: Literal["png", "jpg"] = "png"


class Speech(_Input, frozen=True):
    """What ``millpond/tts`` takes."""

    text: Annotated[str, Meta(min_length=1, max_length=5_000, pattern=r"\w", description="What is said.")]
    voice: Voice = "en-us-woman"
    speed: Speed = 1.0
    pitch: Annotated[int, Meta(ge=0, le=100, description="How high the voice is; 50 is its own.")] = 50
    format: Literal["wav", "mp3"] = "mp3"


Input = StaticAd | UgcVideo | Persona | Speech


@dataclass(frozen=True, slots=True)
class Model:
    """One thing that can be asked for."""

    owner: str
    name: str
    about: str
    input: type[StaticAd | UgcVideo | Persona | Speech]

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def version(self) -> str:
        """Sixty-four hexadecimal digits, as clients expect; others when the input is another."""
        return _version(self)

    def schema(self) -> dict[str, Any]:
        """The OpenAPI document of a version, as far as clients look at it."""
        _, shapes = msgspec.json.schema_components([self.input], ref_template="#/components/schemas/{name}")
        made = shapes[self.input.__name__] | {"title": "Input"}
        output = {"title": "Output", "type": "string", "format": "uri"}
        return {
            "openapi": "3.1.0",
            "info": {"title": self.full_name, "version": "0.1.0"},
            "paths": {},
            "components": {"schemas": {"Input": made, "Output": output}},
        }

    def read(self, given: Any) -> Input:
        """The input as this model takes it, or a refusal that names the field."""
        try:
            return msgspec.convert(given, self.input)
        except msgspec.ValidationError as error:
            raise _refused(str(error), self.input) from None


MODELS: Final = (
    Model("millpond", "static-ad", "A picture that sells a product.", StaticAd),
    Model("millpond", "ugc-video", "A short film about a product, with a voice and captions.", UgcVideo),
    Model("millpond", "persona", "A person who does not exist, in one of several shots.", Persona),
    Model("millpond", "tts", "A text, spoken.", Speech),
)


@cache
def _version(model: Model) -> str:
    return hashlib.sha256(msgspec.json.encode([model.full_name, model.schema()])).hexdigest()


def find(text: str) -> Model | None:
    """The model of ``owner/name``, ``owner/name:version`` or a version alone."""
    name, _, version = text.rpartition(":")
    for model in MODELS:
        if text in (model.full_name, model.version) or (name, version) == (model.full_name, model.version):
            return model
    return None


_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_NAMED: Final = re.compile(r"(missing required|contains unknown) field `(?P<field>[^`]*)`")


def _refused(text: str, shape: type[Any]) -> Refusal:
    """What msgspec tells, as Replicate tells it; for a word that is none of several, these."""
    found = _PLACE.match(text)
    what, path = (found["what"], found["path"]) if found else (text, None)
    named = _NAMED.search(what)
    inner = named["field"][:100] if named else path
    if named is not None:
        what = "It is required." if "missing" in named[1] else "There is no such input."
    elif "enum" in what and inner:
        possible = get_args(get_type_hints(shape)[inner])
        what = f"{what}; possible are {', '.join(possible)}."
    return invalid(f"input.{inner}" if inner else "input", what)


def invalid(field: str, what: str) -> Refusal:
    """The refusal of one field."""
    return Refusal(
        422,
        "Input validation failed",
        f"- {field}: {what}\n",
        more={"invalid_fields": [{"type": "invalid", "field": field, "description": what}]},
    )
