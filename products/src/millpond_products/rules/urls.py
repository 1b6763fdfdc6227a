"""URLs, with or without a scheme, and the domains they lead to.

Domains are compared as in DNS: lower case, with labels beyond ASCII in Punycode. A denied domain includes its
look-alikes, because a denied name is spelled with foreign letters only to evade the rule. An allowed domain does not
include them, for the same reason.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from millpond.errors import InputError
from millpond_products.rules import folding, patterns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millpond_products.rules.folding import View
    from millpond_products.rules.patterns import Span

PATTERN: Final = (
    r"(?i)[a-z][a-z0-9+.-]{1,15}:[/\\]+[^\s<>\"'`{}|^]+"
    r"|(?:[\pL\pN_-]+(?:\.|\[\.\]|\(\.\)))+\pL[\pL\pN-]+(?::[0-9]{1,5})?(?:/[^\s<>\"'`{}|^]*)?"
)
_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]{1,15}):[/\\]+")
_HOST_END: Final = re.compile(r"[/\\?#]")
_DEFANGED: Final = re.compile(r"[\[(]\.[\])]")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_TRAILING: Final = ".,;:!?)]}"
_WEB: Final = frozenset(("http", "https", "hxxp", "hxxps", "ftp", "ws", "wss"))
# Where the host of a URL certainly ends. Other signs that are invalid in a host do not end it: a browser reads on.
_BREAK: Final = re.compile(r"""[\s/\\?#<>]|["'`][,:;)\]}]""")
_NAMED: Final = re.compile(r"[\w.%+'-]")
_LEADS_ON: Final = re.compile(r"[/\\]|:\d")
_HOST_MAX: Final = 253
UNREAD: Final = ""
"""The host of a URL whose host cannot be parsed."""

# Without a scheme, a name with a dot is a URL only if it has one of these endings: `node.js` and `e.g.` do not.
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


class FoundUrl(NamedTuple):
    """A URL in a text: the domain it leads to, and what that looks like."""

    start: int
    end: int
    host: str
    alike: str
    has_scheme: bool


def domain(given: str, field: str) -> str:
    """A domain of a list in the form that is compared. A leading ``*.`` is ignored: subdomains are always included."""
    host = _SCHEME.sub("", given.strip(), count=1)
    host = _host(_HOST_END.split(host, maxsplit=1)[0].removeprefix("*."))
    if host is None:
        raise InputError(
            f"{given[:80]!r} is not a valid domain.", field=field, hint="Use a domain such as example.com."
        )
    return host


def find(expression: object, view: View) -> Iterator[FoundUrl]:
    """Every URL of a clean text, in characters of the original."""
    text = view.text
    hosts: dict[str, tuple[str, str] | None] = {}
    open_from: Span | None = None
    for first, last in patterns.places(expression, view.data):
        start, end = view.char(first), view.char(last)
        found = text[start:end].rstrip(_TRAILING)
        scheme = _SCHEME.match(found)
        if scheme:
            open_from = start, start + scheme.end()
        elif text[start - 1 : start] == "@":
            if open_from and not _BREAK.search(text, open_from[1], start):  # a user name precedes the @
                found, start = text[open_from[0] : start + len(found)], open_from[0]
                scheme = _SCHEME.match(found)
            elif not _is_target(text, start, start + len(found)):
                continue
        authority = _HOST_END.split(found[scheme.end() if scheme else 0 :], maxsplit=1)[0]
        if authority not in hosts:
            hosts[authority] = _hosts(authority)
        host = hosts[authority]
        if host is None and scheme and authority and _is_web(scheme):
            host = UNREAD, UNREAD
        if host is not None:
            yield FoundUrl(*view.origin(start, start + len(found)), *host, scheme is not None)


def _hosts(authority: str) -> tuple[str, str] | None:
    """The host, and what it looks like."""
    host = _host(_DEFANGED.sub(".", authority))
    return None if host is None else (host, _alike(host))


def _is_target(text: str, start: int, end: int) -> bool:
    """Whether a name after an @ is the host of a URL, and not the domain of an e-mail address."""
    name = text[start:end]
    return not _NAMED.match(text, max(0, start - 2), start - 1) or bool(_LEADS_ON.search(name))


def _is_web(scheme: re.Match[str]) -> bool:
    return scheme[1].lower() in _WEB or len(scheme[0]) - len(scheme[1]) > len(":/")


def is_meant(address: FoundUrl, allow: frozenset[str], deny: frozenset[str], alike: frozenset[str]) -> bool:
    """Whether a rule with these lists matches. It matches a host that cannot be parsed, which could lead anywhere."""
    if address.host == UNREAD:
        return True
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
    """Whether it is one of these domains, or a subdomain of one."""
    labels = host.split(".")
    return any(".".join(labels[place:]) in domains for place in range(len(labels)))


def _host(given: str) -> str | None:
    """The host of a URL's authority, as in DNS; None if it is not a valid host."""
    name = unquote(given.rpartition("@")[2])
    if name.startswith("["):
        return name.partition("]")[0][1:].lower() or None
    name = unicodedata.normalize("NFKC", name.partition(":")[0]).lower().rstrip(".")
    if not 0 < len(name) <= _HOST_MAX:
        return None
    labels = [_ascii(label) for label in name.split(".")]
    return ".".join(labels) if all(map(_LABEL.fullmatch, labels)) else None


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
