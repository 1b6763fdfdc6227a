"""The outbound guard: every URL that a user gives us is called through here.

It looks a name up once, checks every address it gets, and connects to that very address. It follows no redirect, asks
no proxy, keeps no cookie, and reads no more and waits no longer than it was told.
"""

from millpond.outbound.outbound import Answer, Outbound, Streamed
from millpond.outbound.targets import Target

__all__ = ["Answer", "Outbound", "Streamed", "Target"]
