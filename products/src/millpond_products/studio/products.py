"""Products: the facts about what is to be sold."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from millpond.wire import Request

NAME_MAX: Final = 200
TEXT_MAX: Final = 5_000
IMAGES_MAX: Final = 20
FEATURES_MAX: Final = 12
URL_MAX: Final = 2_048
FEATURE_MAX: Final = 200
STARS: Final = 5.0

Url = Annotated[
    str, Meta(min_length=8, max_length=URL_MAX, pattern="^https?://", examples=["https://shop.example/p/7"])
]


class ProductFacts(Request):
    """The facts about a product."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX, pattern=r"\S")]
    description: Annotated[str, Meta(max_length=TEXT_MAX)] = ""
    brand: Annotated[str, Meta(max_length=NAME_MAX)] = ""
    price: Annotated[str, Meta(max_length=40, description="The price as shown, or a plain amount.")] = ""
    currency: Annotated[str, Meta(max_length=8, description="ISO 4217, for a plain amount.", examples=["USD"])] = ""
    features: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=FEATURE_MAX)]], Meta(max_length=FEATURES_MAX)
    ] = msgspec.field(default_factory=list[str])
    rating: Annotated[float, Meta(ge=0, le=STARS, description="Stars, of five.")] | None = None
    reviews: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    url: Url | None = None
    image: Annotated[Url, Meta(description="The URL of an image of the product.")] | None = None


class PageFacts(msgspec.Struct, kw_only=True):
    """The facts about a product that were found on a page."""

    url: str
    title: str
    description: str
    brand: str
    price: str
    currency: str
    features: list[str]
    rating: float | None
    reviews: int | None
    images: list[str]
    json_ld: dict[str, Any] | None
    open_graph: dict[str, str]

    def product(self) -> ProductFacts:
        return ProductFacts(
            name=self.title or self.url[:NAME_MAX],
            description=self.description,
            brand=self.brand,
            price=self.price,
            currency=self.currency,
            features=self.features,
            rating=self.rating,
            reviews=self.reviews,
            url=self.url,
            image=self.images[0] if self.images else None,
        )
