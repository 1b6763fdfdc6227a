"""URLs: addresses on the web, with or without their scheme, and the domains they lead to.

A domain is compared as the name system sees it: small letters, labels beyond ASCII in Punycode. For what is denied its
look-alikes count too, for nobody means well who spells a denied name with foreign letters. For what is allowed they
do not, for the same reason.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import InputError
from penstock.rules import folding, patterns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.rules.folding import View

PATTERN: Final = (
    r"(?i)[a-z][a-z0-9+.-]{1,15}:[/\\]{1,3}[^\s<>\"'`{}|^]+"
    r"|(?:[\pL\pN_-]+(?:\.|\[\.\]|\(\.\)))+\pL[\pL\pN-]+(?::[0-9]{1,5})?(?:/[^\s<>\"'`{}|^]*)?"
)
_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]{1,15}):[/\\]{1,3}")
_HOST_END: Final = re.compile(r"[/\\?#]")
_DEFANGED: Final = re.compile(r"[\[(]\.[\])]")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_TRAILING: Final = ".,;:!?)]}"
_URL_MAX: Final = 8_192

# A name with a dot in it is an address without a scheme only where it ends like one: `node.js` and `e.g.` do not.
_ENDINGS: Final = frozenset(
    str.split(
        "academy ae af africa ag agency ai al am app ar art asia at au az ba band bank bb bd be best bg bike bio"
        " biz blog bo br build buzz by ca cafe care casa cash cat cc center ch chat church city cl click cloud club"
        " cm cn co codes coffee com community company cool cr cy cz de design dev digital direct discount dk do"
        " download ec edu education ee eg email energy es estate eu events exchange expert express fail family fans"
        " farm fi finance fit fm foundation fr fun fund fyi gallery game games gay ge gg gh gift global gov gr group"
        " gs gt guide guru hair health help hk hn host hosting hr ht hu id ie il im in industries info ink institute"
        " int international io iq ir is it je jo jobs jp ke kg kh ki kim kr kw kz la land lat law lb legal li life"
        " limited link live lk loan lol love ls lt ltd lu lv ly ma market marketing md me media men mg mil mk ml mn"
        " mobi moe mom money mov ms mt mu museum mx my mz name nc net network news ng ngo ni ninja nl no np nu nz om"
        " one ong onl online onion org page parts party pe ph photo photos pics pk pl place plus porn press pro pt"
        " pub pw py qa quest racing red ren rest review rip ro rocks rs ru run rw sa sale sb sc school science se"
        " services sex sexy sg sh shop show si site sk sl social software solutions space sr st store stream su"
        " support surf sv sy systems sz tc team tech technology tel tf tg th tips tj tk tm tn to today tokyo tools"
        " top tours town toys tr trade training travel tt tv tw tz ua ug uk university uno us uy uz va ve vet video"
        " vin vip vn vote wang watch webcam website wiki win wine work works world ws wtf xxx xyz yachts yoga yt za"
        " zip zm zone zw"
    )
)


class Address(NamedTuple):
    """A URL in a text: the domain it leads to, and what that looks like."""

    start: int
    end: int
    host: str
    alike: str
    has_scheme: bool


def domain(given: str, field: str) -> str:
    """A domain of a list, as it is compared. ``*.`` before it changes nothing: subdomains belong to it anyway."""
    host = _SCHEME.sub("", given.strip(), count=1)
    host = _host(_HOST_END.split(host, maxsplit=1)[0].removeprefix("*."))
    if host is None:
        raise InputError(f"{given[:80]!r} is not a domain.", field=field, hint="Write it like example.com.")
    return host


def find(expression: object, view: View) -> Iterator[Address]:
    """Every URL of a clean text, in characters of the original."""
    for first, last in patterns.places(expression, view.data):
        start, end = view.char(first), view.char(last)
        if start and view.text[start - 1] == "@":  # the rest of an e-mail address
            continue
        found = view.text[start:end].rstrip(_TRAILING)
        scheme = _SCHEME.match(found)
        rest = _DEFANGED.sub(".", found[scheme.end() if scheme else 0 :][:_URL_MAX])
        host = _host(_HOST_END.split(rest, maxsplit=1)[0])
        if host is not None:
            yield Address(*view.origin(start, start + len(found)), host, _alike(host), scheme is not None)


def is_meant(address: Address, allow: frozenset[str], deny: frozenset[str], alike: frozenset[str]) -> bool:
    """Whether a rule with these lists is about it."""
    if deny and (_is_under(address.host, deny) or _is_under(address.alike, alike)):
        return True
    if deny and not allow:
        return False
    if not (address.has_scheme or address.host.rpartition(".")[2] in _ENDINGS or address.host.startswith("www.")):
        return False
    return not _is_under(address.host, allow)


def alikes(domains: Sequence[str]) -> frozenset[str]:
    return frozenset(map(_alike, domains))


def _is_under(host: str, domains: frozenset[str]) -> bool:
    """Whether it is one of these domains, or below one."""
    labels = host.split(".")
    return any(".".join(labels[place:]) in domains for place in range(len(labels)))


def _host(given: str) -> str | None:
    """The host of a URL's authority, as the name system sees it; nothing, where it cannot be one."""
    name = given.rpartition("@")[2]
    if name.startswith("["):
        return name.partition("]")[0][1:].lower() or None
    name = unicodedata.normalize("NFKC", name.partition(":")[0]).lower().rstrip(".")
    labels = [_ascii(label) for label in name.split(".")]
    return ".".join(labels) if name and all(map(_LABEL.fullmatch, labels)) and len(labels) <= 127 else None  # noqa: PLR2004


def _ascii(label: str) -> str:
    if label.isascii():
        return label
    try:
        return "xn--" + label.encode("punycode").decode()
    except UnicodeError:
        return ""


def _alike(host: str) -> str:
    return ".".join(map(_read_as, host.split(".")))


def _read_as(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return folding.fold(label[4:].encode().decode("punycode"))
    except (UnicodeError, ValueError):
        return label
