"""The catalog: every blueprint as it is served. Apart from the package itself, which tells lifecycles alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond.blueprints.actions.routes import BLUEPRINT as ACTIONS
from millpond.blueprints.effects.routes import BLUEPRINT as EFFECTS
from millpond.blueprints.guard.routes import BLUEPRINT as GUARD
from millpond.blueprints.partner.routes import BLUEPRINT as PARTNER
from millpond.blueprints.studio.routes import BLUEPRINT as STUDIO

if TYPE_CHECKING:
    from millpond.api.blueprint import Blueprint

BLUEPRINTS: Final[tuple[Blueprint, ...]] = (ACTIONS, EFFECTS, GUARD, PARTNER, STUDIO)
