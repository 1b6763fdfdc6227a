"""The lifecycles of all products, without their routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond_products.actions.kinds import ACTIONS
from millpond_products.effects.kinds import EFFECTS
from millpond_products.guard.kinds import GUARD
from millpond_products.partner.kinds import PARTNER
from millpond_products.studio.kinds import STUDIO

if TYPE_CHECKING:
    from millpond.lifecycle import Lifecycle

LIFECYCLES: Final[tuple[Lifecycle, ...]] = (ACTIONS, EFFECTS, GUARD, PARTNER, STUDIO)
