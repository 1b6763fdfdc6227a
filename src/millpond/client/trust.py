"""The certificates trusted for HTTPS."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    import ssl


@cache
def trusted() -> ssl.SSLContext:
    """The trusted certificates, loaded once per process because loading takes longer than a request."""
    return httpx2.create_ssl_context()
