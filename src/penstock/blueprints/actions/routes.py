"""The actions blueprint as it is served: automation with append-only logs."""

from __future__ import annotations

from typing import Final

from penstock.api.blueprint import Blueprint
from penstock.blueprints.actions.kinds import ACTIONS
from penstock.kinds import Kind

BLUEPRINT: Final = Blueprint(
    lifecycle=ACTIONS,
    kinds=(Kind(name="actions", lifecycle=ACTIONS, summary="A job of the actions blueprint."),),
    title="Actions",
)
