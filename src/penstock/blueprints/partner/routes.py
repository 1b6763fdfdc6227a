"""The partner blueprint as it is served: the 202 + poll partner API."""

from __future__ import annotations

from typing import Final

from penstock.api.blueprint import Blueprint
from penstock.blueprints.partner.kinds import PARTNER
from penstock.kinds import Kind

BLUEPRINT: Final = Blueprint(
    lifecycle=PARTNER,
    kinds=(Kind(name="partner", lifecycle=PARTNER, summary="A job of the partner blueprint."),),
    title="Partner",
)
