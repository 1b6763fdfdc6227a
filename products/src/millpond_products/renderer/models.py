"""The models, their inputs, and the errors for invalid inputs."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from millpond_products.renderer.errors import ErrorResponse

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
Seed = Annotated[
    int, Meta(ge=0, le=2**32 - 1, description="The same seed produces the same result; if omitted, it is random.")
]
Speed = Annotated[float, Meta(ge=0.5, le=2.0, description="The speed; 1 is normal.")]

PRODUCT: Final = Meta(min_length=1, max_length=80, pattern=r"\S", description="The name of the product.")
HEADLINE: Final = Meta(max_length=120, description="The headline; generated from the product if omitted.")
PRICE: Final = Meta(max_length=24, description="The price as shown, such as $49.")
CALL: Final = Meta(max_length=32, description="The label of the button.")
BRAND: Final = Meta(max_length=40, description="The brand.")
IMAGE: Final = Meta(description="An image of the product: an http(s) URL or a data URL. If omitted, one is drawn.")


class _Input(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    seed: Seed | None = None


class StaticAd(_Input, frozen=True):
    """What ``millpond/static-ad`` takes."""

    product: Annotated[str, PRODUCT]
    headline: Annotated[str, HEADLINE] = ""
    description: Annotated[str, Meta(max_length=400, description="One or two sentences below the headline.")] = ""
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
    script: Annotated[
        str, Meta(max_length=600, description="The script; generated from the other inputs if omitted.")
    ] = ""
    headline: Annotated[str, HEADLINE] = ""
    price: Annotated[str, PRICE] = ""
    call_to_action: Annotated[str, CALL] = "Shop now"
    brand: Annotated[str, BRAND] = ""
    image: Annotated[str, IMAGE] | None = None
    style: Style = "lifestyle"
    voice: Voice = "en-us-woman"
    speed: Speed = 1.0
    aspect_ratio: AspectRatio = "9:16"


class PersonaInput(_Input, frozen=True):
    """What ``millpond/persona`` takes. The same seed is the same person, in every shot."""

    shot: Annotated[int, Meta(ge=1, le=4, description="The scene: studio, park, home or evening.")] = 1
    presents: Literal["woman", "man"] | None = None
    age: Annotated[int, Meta(ge=18, le=80, description="The age in years; random if omitted.")] | None = None
    style: Style = "lifestyle"
    aspect_ratio: AspectRatio = "4:5"
    format: Literal["png", "jpg"] = "png"


class Speech(_Input, frozen=True):
    """What ``millpond/tts`` takes."""

    text: Annotated[str, Meta(min_length=1, max_length=5_000, pattern=r"\w", description="The text to speak.")]
    voice: Voice = "en-us-woman"
    speed: Speed = 1.0
    pitch: Annotated[int, Meta(ge=0, le=100, description="The pitch of the voice; 50 is its default.")] = 50
    format: Literal["wav", "mp3"] = "mp3"


Input = StaticAd | UgcVideo | PersonaInput | Speech


@dataclass(frozen=True, slots=True)
class Model:
    """A model that clients can run."""

    owner: str
    name: str
    about: str
    input: type[StaticAd | UgcVideo | PersonaInput | Speech]

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def version(self) -> str:
        """64 hexadecimal digits, as clients expect. They change with the schema of the input."""
        return _version(self)

    def schema(self) -> dict[str, Any]:
        """The OpenAPI document of a version, as far as clients read it."""
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
        """Validate an input. The error names the field."""
        try:
            return msgspec.convert(given, self.input)
        except msgspec.ValidationError as error:
            raise _refused(str(error), self.input) from None


MODELS: Final = (
    Model("millpond", "static-ad", "An image that advertises a product.", StaticAd),
    Model("millpond", "ugc-video", "A short video about a product, with a voice and captions.", UgcVideo),
    Model("millpond", "persona", "A fictitious person in one of several shots.", PersonaInput),
    Model("millpond", "tts", "A spoken text.", Speech),
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


def _refused(text: str, shape: type[Any]) -> ErrorResponse:
    """Translate an error of msgspec into one of Replicate. For an invalid choice, list the possible values."""
    found = _PLACE.match(text)
    what, path = (found["what"], found["path"]) if found else (text, None)
    named = _NAMED.search(what)
    inner = named["field"][:100] if named else path
    if named is not None:
        what = "The input is required." if "missing" in named[1] else "The input does not exist."
    elif "enum" in what and inner:
        possible = get_args(get_type_hints(shape)[inner])
        what = f"{what}; possible values: {', '.join(possible)}."
    return invalid(f"input.{inner}" if inner else "input", what)


def invalid(field: str, what: str) -> ErrorResponse:
    """The error for one field."""
    return ErrorResponse(
        422,
        "Input validation failed",
        f"- {field}: {what}\n",
        more={"invalid_fields": [{"type": "invalid", "field": field, "description": what}]},
    )
