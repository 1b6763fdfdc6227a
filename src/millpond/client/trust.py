"""Whom HTTPS believes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    import ssl


@cache
def trusted() -> ssl.SSLContext:
    """The certificates that are trusted: reading them takes longer than a call, and once is enough for a process."""
    return httpx2.create_ssl_context()
