"""The studio blueprint as it is served: ad generation with credits."""

from __future__ import annotations

from typing import Final

from penstock.api.blueprint import Blueprint
from penstock.blueprints.studio.kinds import STUDIO
from penstock.kinds import Kind

BLUEPRINT: Final = Blueprint(
    lifecycle=STUDIO,
    kinds=(Kind(name="studio", lifecycle=STUDIO, summary="A job of the studio blueprint."),),
    title="Studio",
)
