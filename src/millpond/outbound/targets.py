"""Parses URLs, in one way only.

Two parsers that read a URL differently are a vulnerability: one checks this host, the other calls that one. So
ambiguous URLs are rejected, and all others are parsed once, here; nothing parses the text again.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final

import msgspec

from millpond.errors import OutboundRefusedError

if TYPE_CHECKING:
    from millpond.outbound.addresses import Address

LENGTH_MAX: Final = 2_048
PORT_MAX: Final = 65_535
_PORTS: Final = {"http": 80, "https": 443}
_CHARACTERS: Final = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*")
_SHAPE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?")
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAME_LENGTH_MAX: Final = 253
# Names that exist only inside a network, or that make a resolver search there.
_INSIDE: Final = re.compile(
    r"(?:.*\.)?(?:localhost|localdomain|local|internal|intranet|private|corp|home|lan|arpa|onion|alt)|[^.]+"
)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a URL."""

    scheme: str
    host: str
    """In lower case; an IPv6 address without its brackets."""
    port: int
    path: str
    """The path with the query; at least a slash."""
    address: Address | None = None
    """The host, if it is an IP address."""

    @property
    def authority(self) -> str:
        """Host and port as in a URL and in the header ``host``: without the port if it is the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def is_name_inside(self) -> bool:
        return self.address is None and _INSIDE.fullmatch(self.host) is not None


def read(url: str, *, field: str = "url") -> Target:
    try:
        return _read(url)
    except _UnclearError as unclear:
        message, hint = unclear.args
        raise OutboundRefusedError(message, field=field, hint=hint) from None


class _UnclearError(Exception):
    """What is wrong with a URL, and a hint."""


@lru_cache(maxsize=4_096)
def _read(url: str) -> Target:
    if len(url) > LENGTH_MAX:
        raise _UnclearError(f"The URL has {len(url):,} characters; the limit is {LENGTH_MAX:,}.", None)
    if not _CHARACTERS.fullmatch(url) or _STRAY_PERCENT.search(url):
        raise _UnclearError(
            "The URL contains invalid characters.",
            "Percent-encode path and query, and write international host names as xn--….",
        )
    shape = _SHAPE.fullmatch(url)
    if shape is None or shape[1].lower() not in _PORTS:
        raise _UnclearError("The URL must begin with https:// or http://.", None)
    scheme = shape[1].lower()
    host, port = _authority(shape[2])
    return Target(
        scheme=scheme,
        host=str(host),
        port=_PORTS[scheme] if port is None else port,
        path=(shape[3] or "/") + (shape[4] or ""),
        address=None if isinstance(host, str) else host,
    )


def _authority(text: str) -> tuple[str | Address, int | None]:
    if "@" in text:
        raise _UnclearError(
            "The URL must not contain a user name or password.", "Verify the signature of webhooks instead."
        )
    shape = _AUTHORITY.fullmatch(text)
    port = int(shape[2]) if shape and shape[2] else None
    if shape is None or port == 0 or (port or 0) > PORT_MAX:
        raise _UnclearError("The URL must contain a host, and optionally a port from 1 to 65535.", None)
    return read_host(shape[1].lower()), port


def read_host(host: str) -> str | Address:
    """Parse a host: an address or a name, each of which has only one accepted spelling."""
    try:
        if host.startswith("["):
            # A zone is local to a machine: doubling its sign makes the address invalid.
            return IPv6Address(host[1:-1].replace("%", "%%"))
        if _NUMBER.fullmatch(host.rpartition(".")[2]):  # a resolver would accept 127.1 or 0x7f.1 as an address
            return IPv4Address(host)
    except AddressValueError:
        raise _UnclearError(
            "The host of the URL is not an IP address in standard notation.",
            "Write 192.0.2.1 or [2001:db8::1], without leading zeros and without a zone.",
        ) from None
    if len(host) > _NAME_LENGTH_MAX or not all(map(_LABEL.fullmatch, host.split("."))):
        raise _UnclearError(
            "The host of the URL is not a valid DNS name.",
            "Use letters, digits, hyphens and dots, without a trailing dot and without percent-encoding.",
        )
    return host
