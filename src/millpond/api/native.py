"""The native API: the routes of all its parts, as one table, in the order of its document."""

from __future__ import annotations

from typing import Final

from millpond.api import health, metrics
from millpond.api.access import audit, keys, tenants
from millpond.api.credits import wallets
from millpond.api.documents import pages
from millpond.api.fleet import protocol, workers
from millpond.api.jobs import artifacts, batches, callbacks, composition, jobs, kinds
from millpond.api.operators import board, bulk, limits, queues, schedules, verification, views
from millpond.api.webhooks import deliveries, endpoints

ROUTES: Final = (
    *jobs.ROUTES,
    *composition.ROUTES,
    *batches.ROUTES,
    *artifacts.ROUTES,
    *wallets.ROUTES,
    *kinds.ROUTES,
    *queues.ROUTES,
    *workers.ROUTES,
    *callbacks.ROUTES,
    *protocol.ROUTES,
    *tenants.ROUTES,
    *keys.ROUTES,
    *endpoints.ROUTES,
    *deliveries.ROUTES,
    *audit.ROUTES,
    *verification.ROUTES,
    *board.ROUTES,
    *bulk.ROUTES,
    *limits.ROUTES,
    *schedules.ROUTES,
    *views.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    *pages.ROUTES,
)
