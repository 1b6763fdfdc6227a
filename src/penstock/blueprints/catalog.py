"""The catalog: every blueprint as it is served. Apart from the package itself, which tells lifecycles alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.blueprints.actions.routes import BLUEPRINT as ACTIONS
from penstock.blueprints.effects.routes import BLUEPRINT as EFFECTS
from penstock.blueprints.guard.routes import BLUEPRINT as GUARD
from penstock.blueprints.partner.routes import BLUEPRINT as PARTNER
from penstock.blueprints.studio.routes import BLUEPRINT as STUDIO

if TYPE_CHECKING:
    from penstock.api.blueprint import Blueprint

BLUEPRINTS: Final[tuple[Blueprint, ...]] = (ACTIONS, EFFECTS, GUARD, PARTNER, STUDIO)
