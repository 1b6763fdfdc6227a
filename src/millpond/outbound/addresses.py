"""Which IP addresses are public, and which are private to some network.

Python's flags follow the registries of IANA as they were when Python was built, and do not cover the addresses that
clouds use in other ranges. So an address must pass every flag, and this module's own table too.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LOOPBACK: Final[tuple[Network, ...]] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))

_INSIDE_V4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # "this network"
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by carriers; Alibaba's metadata
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # the host of an Azure virtual machine
            "169.254.0.0/16",  # link-local; the metadata of most clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; Oracle's metadata
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # multicast tunnels
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_WORLD_V6: Final = IPv6Network("2000::/3")  # all that IANA has allocated; all else is treated as private
_INSIDE_V6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: contains any IPv4 address, also a private one
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)
# In networks without IPv4, DNS64 returns such an address for a host that has only IPv4.
_NAT64: Final = IPv6Network("64:ff9b::/96")
_FLAGS: Final = ("is_link_local", "is_loopback", "is_multicast", "is_private", "is_reserved", "is_unspecified")


def is_public(address: Address) -> bool:
    """Whether an address is public, and not embedded in another one.

    An IPv4 address embedded in an IPv6 address is not public, whatever it is: it is unknown which gateway translates
    it, and into which network. The exception is NAT64, which IPv6-only networks need.
    """
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
        if address.scope_id is not None or address not in _WORLD_V6:
            return False
        inside = any(address in network for network in _INSIDE_V6)
    else:
        inside = any(address in network for network in _INSIDE_V4)
    return not inside and address.is_global and not any(getattr(address, flag) for flag in _FLAGS)
