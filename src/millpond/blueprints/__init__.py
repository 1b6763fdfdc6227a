"""Five products on the one engine, each a package of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond.blueprints.actions.kinds import ACTIONS
from millpond.blueprints.effects.kinds import EFFECTS
from millpond.blueprints.guard.kinds import GUARD
from millpond.blueprints.partner.kinds import PARTNER
from millpond.blueprints.studio.kinds import STUDIO

if TYPE_CHECKING:
    from millpond.lifecycle import Lifecycle

LIFECYCLES: Final[tuple[Lifecycle, ...]] = (ACTIONS, EFFECTS, GUARD, PARTNER, STUDIO)
