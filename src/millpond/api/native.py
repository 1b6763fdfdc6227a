"""The native API: the routes of all its parts, as one table."""

from __future__ import annotations

from typing import Final

from millpond.api import board, errands, routes, sights

ROUTES: Final = (*routes.ROUTES, *board.ROUTES, *errands.ROUTES, *sights.ROUTES)
