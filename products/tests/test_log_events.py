"""The log events of the products: each is emitted by one of them, and none is emitted that is not declared."""

from __future__ import annotations

from pathlib import Path

import millpond_products
from millpond import logs
from millpond_products.log_events import LOG_EVENTS
from tests.log_events import emitted, not_emitted

SOURCES = Path(millpond_products.__file__).parent


def test_every_event_of_the_catalogue_is_emitted_somewhere() -> None:
    assert not_emitted(LOG_EVENTS, SOURCES) == []


def test_every_emitted_event_is_in_the_catalogue() -> None:
    assert emitted(SOURCES) <= logs.CATALOGUE.keys()
