"""What an operator has opened of the inside: for development, and for receivers in the same network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

from millpond.errors import OutboundRefusedError, SettingsError
from millpond.outbound import targets
from millpond.outbound.addresses import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millpond.outbound.addresses import Address, Network

_SEPARATORS: Final = re.compile(r"[\s,]+")
_PLACE: Final = re.compile(r"(?:\[[^\[\]]*\]|[^:/?#@\[\]]+)(:[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Openings:
    """Networks and names, each for one port or (None) for all."""

    networks: tuple[tuple[Network, int | None], ...] = ()
    names: frozenset[tuple[str, int | None]] = frozenset()

    @classmethod
    def read(cls, allow: str | Iterable[str]) -> Openings:
        """From ``loopback``, networks, addresses and names, the last two with or without a port."""
        networks: list[tuple[Network, int | None]] = []
        names: set[tuple[str, int | None]] = set()
        for entry in filter(None, _SEPARATORS.split(allow) if isinstance(allow, str) else allow):
            if entry == "loopback":
                networks += [(network, None) for network in LOOPBACK]
            elif network := _network(entry):
                networks.append((network, None))
            else:
                target, port = _place(entry)
                if target.address is None:
                    names.add((target.host, port))
                else:
                    networks.append((ip_network(target.address), port))
        return cls(tuple(networks), frozenset(names))

    def has_name(self, host: str, port: int) -> bool:
        return not self.names.isdisjoint({(host, None), (host, port)})

    def has_address(self, address: Address, port: int) -> bool:
        return any(opened in (None, port) and address in network for network, opened in self.networks)


def _network(entry: str) -> Network | None:
    try:
        return ip_network(entry)
    except ValueError:
        return None


def _place(entry: str) -> tuple[targets.Target, int | None]:
    shape = _PLACE.fullmatch(entry)
    try:
        if shape is not None:
            target = targets.read(f"http://{entry}")
            return target, target.port if shape[1] else None
    except OutboundRefusedError:
        pass
    raise SettingsError(
        f"{entry!r} is not something that can be opened.",
        field="outbound_allow",
        hint="Name loopback, a network (10.0.0.0/8), or an address or a host, perhaps with its port (hooks:8080).",
    )
