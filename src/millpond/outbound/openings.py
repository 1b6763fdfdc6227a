"""The private addresses and reserved ports that an operator allows: for development, and for receivers inside."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

from millpond.errors import OutboundRefusedError, SettingsError
from millpond.outbound import targets
from millpond.outbound.addresses import LOOPBACK
from millpond.outbound.ports import is_reserved

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millpond.outbound.addresses import Address, Network

_SEPARATORS: Final = re.compile(r"[\s,]+")
_LOOPBACK: Final = "loopback"
_PORT: Final = re.compile(r"[0-9]{1,5}")
_PLACE: Final = re.compile(r"(?:\[[^\[\]]*\]|[^:/?#@\[\]]+)(:[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Openings:
    """The allowed networks and names, each for one port or, if that is None, for all that are not reserved."""

    networks: tuple[tuple[Network, int | None], ...] = ()
    names: frozenset[tuple[str, int | None]] = frozenset()
    ports: frozenset[int] = frozenset()
    """The reserved ports that are allowed for every host."""
    is_loopback_open: bool = False
    """Whether every port of this machine is allowed: for development."""

    @classmethod
    def read(cls, allow: str | Iterable[str]) -> Openings:
        """Parse entries: ``loopback``, ``*:PORT``, networks, addresses and names, the last two also with a port."""
        networks: list[tuple[Network, int | None]] = []
        names: set[tuple[str, int | None]] = set()
        ports: set[int] = set()
        entries = tuple(filter(None, _SEPARATORS.split(allow) if isinstance(allow, str) else allow))
        for entry in entries:
            if entry == _LOOPBACK:
                networks += [(network, None) for network in LOOPBACK]
            elif entry.startswith("*:"):
                ports.add(_port(entry))
            elif network := _network(entry):
                networks.append((network, None))
            else:
                target, port = _place(entry)
                if target.address is None:
                    names.add((target.host, port))
                else:
                    networks.append((ip_network(target.address), port))
        return cls(tuple(networks), frozenset(names), frozenset(ports), _LOOPBACK in entries)

    def has_name(self, host: str, port: int) -> bool:
        return not self.names.isdisjoint({(host, None), (host, port)})

    def has_port(self, host: str, port: int, address: Address | None) -> bool:
        """Whether a port is allowed for an address of a host; None means that the address is not yet known."""
        if not is_reserved(port) or port in self.ports or (host, port) in self.names:
            return True
        opened = [network for network, own in self.networks if own == port]
        if self.is_loopback_open:
            opened += LOOPBACK
        return any(address is None or address in network for network in opened)

    def has_address(self, address: Address, port: int) -> bool:
        return any(opened in (None, port) and address in network for network, opened in self.networks)


def _network(entry: str) -> Network | None:
    try:
        return ip_network(entry)
    except ValueError:
        return None


def _port(entry: str) -> int:
    digits = entry.removeprefix("*:")
    if not _PORT.fullmatch(digits) or not 0 < int(digits) <= targets.PORT_MAX:
        raise _invalid(entry)
    return int(digits)


def _place(entry: str) -> tuple[targets.Target, int | None]:
    shape = _PLACE.fullmatch(entry)
    try:
        if shape is not None:
            target = targets.read(f"http://{entry}")
            return target, target.port if shape[1] else None
    except OutboundRefusedError:
        pass
    raise _invalid(entry)


def _invalid(entry: str) -> SettingsError:
    return SettingsError(
        f"{entry!r} is not a valid entry.",
        field="outbound_allow",
        hint="Use loopback, a network (10.0.0.0/8), an address or host with an optional port (hooks:8080), or a port "
        "of every host (*:22).",
    )
