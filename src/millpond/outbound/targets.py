"""What a URL says, read in one way.

Two programs that read a URL differently are a hole: one checks this host, the other calls that one. So what could be
read in two ways is refused, and what is left is taken apart here once; nothing reads the text again.
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
_PORT_MAX: Final = 65_535
_PORTS: Final = {"http": 80, "https": 443}
_CHARACTERS: Final = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*")
_SHAPE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?")
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAME_LENGTH_MAX: Final = 253
# Names that mean something inside a network only, or ask a resolver to look there.
_INSIDE: Final = re.compile(
    r"(?:.*\.)?(?:localhost|localdomain|local|internal|intranet|private|corp|home|lan|arpa|onion|alt)|[^.]+"
)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a URL leads."""

    scheme: str
    host: str
    """In small letters; an IPv6 address without its brackets."""
    port: int
    path: str
    """With the query; at least a slash."""
    address: Address | None = None
    """The host, where it is an address and no name."""

    @property
    def authority(self) -> str:
        """Host and port as they stand in a URL and in the header ``host``: the port where it is not the usual one."""
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
    """What is wrong with a URL, and what to do about it."""


@lru_cache(maxsize=4_096)
def _read(url: str) -> Target:
    if len(url) > LENGTH_MAX:
        raise _UnclearError(f"A URL has {LENGTH_MAX:,} characters at most; this has {len(url):,}.", None)
    if not _CHARACTERS.fullmatch(url) or _STRAY_PERCENT.search(url):
        raise _UnclearError(
            "The URL has characters that a URL cannot have.",
            "Percent-encode them in the path and the query; write an international name as xn--….",
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
            "The URL must not have a user name or password.", "Webhooks are signed: check that instead."
        )
    shape = _AUTHORITY.fullmatch(text)
    port = int(shape[2]) if shape and shape[2] else None
    if shape is None or port == 0 or (port or 0) > _PORT_MAX:
        raise _UnclearError("The URL must name a host, and perhaps a port from 1 to 65535.", None)
    return read_host(shape[1].lower()), port


def read_host(host: str) -> str | Address:
    """An address, or a name; both in the one spelling that there is of each."""
    try:
        if host.startswith("["):
            return IPv6Address(host[1:-1].replace("%", "%%"))  # a zone is of this machine: two signs are no address
        if _NUMBER.fullmatch(host.rpartition(".")[2]):  # a resolver would take 127.1 or 0x7f.1 for an address
            return IPv4Address(host)
    except AddressValueError:
        raise _UnclearError(
            "The host of the URL is a number, but no address in its usual form.",
            "Write 192.0.2.1 or [2001:db8::1], without zeros in front and without a zone.",
        ) from None
    if len(host) > _NAME_LENGTH_MAX or not all(map(_LABEL.fullmatch, host.split("."))):
        raise _UnclearError(
            "The host of the URL is not a name that can be looked up.",
            "Write letters, digits and hyphens, with dots between; no dot at the end, nothing percent-encoded.",
        )
    return host
