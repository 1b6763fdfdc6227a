"""Five products on the one engine, each a package of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.blueprints.actions.kinds import ACTIONS
from penstock.blueprints.effects.kinds import EFFECTS
from penstock.blueprints.guard.kinds import GUARD
from penstock.blueprints.partner.kinds import PARTNER
from penstock.blueprints.studio.kinds import STUDIO

if TYPE_CHECKING:
    from penstock.lifecycle import Lifecycle

LIFECYCLES: Final[tuple[Lifecycle, ...]] = (ACTIONS, EFFECTS, GUARD, PARTNER, STUDIO)
