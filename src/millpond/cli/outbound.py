"""What a process of the command line may call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.outbound import Outbound
    from millpond.settings import Settings


def opened(settings: Settings, *, is_development: bool) -> str:
    """What is open of the inside. A developer's receivers are on this machine; in production nothing is taken so."""
    return settings.outbound_allow or ("loopback" if is_development else "")


def outbound(settings: Settings, *, is_development: bool) -> Outbound:
    from millpond.outbound import Outbound

    return Outbound(opened(settings, is_development=is_development))
