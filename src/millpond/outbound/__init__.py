"""The outbound guard: all calls to user-supplied URLs.

It resolves the host name once, checks all its addresses, and connects to one of these. It follows no redirects, uses no
proxy, stores no cookies, and limits the size and the time of a response.
"""

from millpond.outbound.outbound import Outbound, OutboundResponse, Streamed
from millpond.outbound.targets import Target

__all__ = ["Outbound", "OutboundResponse", "Streamed", "Target"]
