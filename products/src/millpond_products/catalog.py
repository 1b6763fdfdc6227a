"""The catalog of products, with their routes. A module of its own: importing the package imports no product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond_products.actions.routes import PRODUCT as ACTIONS
from millpond_products.effects.routes import PRODUCT as EFFECTS
from millpond_products.guard.routes import PRODUCT as GUARD
from millpond_products.partner.routes import PRODUCT as PARTNER
from millpond_products.studio.routes import PRODUCT as STUDIO

if TYPE_CHECKING:
    from millpond.product import Product

PRODUCTS: Final[tuple[Product, ...]] = (ACTIONS, EFFECTS, GUARD, PARTNER, STUDIO)
