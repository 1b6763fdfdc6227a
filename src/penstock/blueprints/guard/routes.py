"""The guard blueprint as it is served: the two-hook message filter."""

from __future__ import annotations

from typing import Final

from penstock.api.blueprint import Blueprint
from penstock.blueprints.guard.kinds import GUARD
from penstock.kinds import Kind

BLUEPRINT: Final = Blueprint(
    lifecycle=GUARD,
    kinds=(Kind(name="guard", lifecycle=GUARD, summary="A job of the guard blueprint."),),
    title="Guard",
)
