"""Attempts to authenticate: how many of them may fail, by the address that they come from.

An attempt is counted before it is made, and returned if it succeeds. So failed ones cost the address its share, and the
callers who are known as valid are never refused because of others at their address.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from millpond.api import principals
from millpond.api.limits import Limiter
from millpond.errors import RateLimitedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.api.calls import Call

PROXY_FACTOR: Final = 10
"""How many times as many attempts may fail at a proxy, which many clients may share."""
_SUBNET: Final = 64
"""The prefix of IPv6 addresses that one client has to itself."""

Counted = dict[tuple[str, str], int]
"""What was counted: the rate of each place, by what was attempted and the place."""


class Attempts:
    """The failed attempts of all addresses; ``rate`` is how many may fail per second, after a burst."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._limiter = Limiter(rate)

    def take(self, call: Call, what: str) -> Counted:
        """Count an attempt, such as ``sign-ins``; raise if too many of this address have failed.

        Clients behind a proxy are counted separately if the proxy reports their addresses. The header may be forged, so
        the proxy itself is counted too, with a higher limit.
        """
        client = call.scope.get("client")
        peer = _place(client[0]) if client else ""
        places = {peer: self._rate}
        if b"x-forwarded-for" in call.headers:
            places = {peer: self._rate * PROXY_FACTOR, principals.address(call): self._rate}
        counted = {(what, place): rate for place, rate in places.items()}
        try:
            for place, rate in counted.items():
                self._limiter.take(place, rate)
        except RateLimitedError as error:
            raise RateLimitedError(
                f"Too many {what} from this address were rejected.", hint="Wait and try again.", **error.details
            ) from None
        return counted

    def give_back(self, counted: Mapping[tuple[str, str], int]) -> None:
        """Return an attempt that has not failed."""
        for place, rate in counted.items():
            self._limiter.give_back(place, rate)


def _place(address: str) -> str:
    """The address, or the subnet of an IPv6 address: whoever has one of its addresses has all of them."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network(f"{address.partition('%')[0]}/{_SUBNET}", strict=False))
    except ValueError:
        return address
