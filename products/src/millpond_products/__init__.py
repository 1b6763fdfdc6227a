"""Five products on Millpond, each a package of its own."""

from millpond import logs
from millpond_products.log_events import LOG_EVENTS

logs.declare(LOG_EVENTS)
