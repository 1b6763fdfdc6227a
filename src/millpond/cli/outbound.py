"""The outbound guard of the processes of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.outbound import Outbound
    from millpond.settings import Settings


def opened(settings: Settings, *, is_development: bool) -> str:
    """The private addresses that requests may reach: by default this machine in development, none in production."""
    return settings.outbound_allow or ("loopback" if is_development else "")


def outbound(settings: Settings, *, is_development: bool) -> Outbound:
    from millpond.outbound import Outbound

    return Outbound(opened(settings, is_development=is_development))
