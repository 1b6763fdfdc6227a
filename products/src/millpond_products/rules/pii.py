"""PII: data that identifies a person or a bank account. Check digits are verified.

It is searched in the folded text, where the digits of all scripts are ASCII digits, and letters are in lower case.
"""

from __future__ import annotations

import re
import socket
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from millpond_products.rules.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millpond_products.rules.patterns import Span

# The length of an IBAN by country.
_IBAN_LENGTHS: Final = {
    country: length
    for length, countries in {
        15: "no",
        16: "be",
        18: "dk fi fk fo gl nl sd",
        19: "mk si",
        20: "at ba ee kz lt lu mn xk",
        21: "ch cr hr li lv",
        22: "bg bh de gb ge ie me rs va",
        23: "ae gi il iq om so tl",
        24: "ad cz es md pk ro sa se sk tn vg",
        25: "ly pt st",
        26: "is tr",
        27: "bi dj fr gr it mc mr sm",
        28: "al az by cy do gt hn hu lb ni pl sv",
        29: "br eg ps qa ua",
        30: "jo kw mu yt",
        31: "mt sc",
        32: "lc",
        33: "ru",
    }.items()
    for country in countries.split()
}
# The issuers of cards: their lowest and highest prefix, and the lengths of their numbers.
_ISSUERS: Final = (
    (4, 4, (13, 16, 19)),  # Visa
    (51, 55, (16,)),  # Mastercard
    (2221, 2720, (16,)),
    (34, 34, (15,)),  # American Express
    (37, 37, (15,)),
    (300, 305, (14, 16)),  # Diners Club
    (3095, 3095, (14,)),
    (36, 36, (14,)),
    (38, 39, (14,)),
    (6011, 6011, (16, 17, 18, 19)),  # Discover
    (644, 649, (16, 17, 18, 19)),
    (65, 65, (16, 17, 18, 19)),
    (3528, 3589, (16, 17, 18, 19)),  # JCB
    (62, 62, (16, 17, 18, 19)),  # UnionPay
    (5018, 5018, (13, 14, 15, 16, 17, 18, 19)),  # Maestro
    (5020, 5020, (13, 14, 15, 16, 17, 18, 19)),
    (5038, 5038, (13, 14, 15, 16, 17, 18, 19)),
    (6304, 6304, (13, 14, 15, 16, 17, 18, 19)),
    (6759, 6763, (13, 14, 15, 16, 17, 18, 19)),
    (2200, 2204, (16, 17, 18, 19)),  # Mir
    (60, 60, (16,)),  # RuPay
    (81, 82, (16,)),
)
# The international calling codes: the first digits after the plus.
_CALLING: Final = frozenset(
    str.split(
        "1 7 20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 81"
        " 82 84 86 90 91 92 93 94 95 98 211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233"
        " 234 235 236 237 238 239 240 241 242 243 244 245 246 247 248 249 250 251 252 253 254 255 256 257 258 260"
        " 261 262 263 264 265 266 267 268 269 290 291 297 298 299 350 351 352 353 354 355 356 357 358 359 370 371"
        " 372 373 374 375 376 377 378 380 381 382 383 385 386 387 389 420 421 423 500 501 502 503 504 505 506 507"
        " 508 509 590 591 592 593 594 595 596 597 598 599 670 672 673 674 675 676 677 678 679 680 681 682 683 685"
        " 686 687 688 689 690 691 692 800 808 850 852 853 855 856 870 878 880 881 882 883 886 888 960 961 962 963"
        " 964 965 966 967 968 970 971 972 973 974 975 976 977 979 992 993 994 995 996 998"
    )
)

_DIGITS_MIN: Final = 13
_IBAN_MAX: Final = 34
_GAP: Final = " \t\r\n-._/"
_ADDRESS_MAX: Final = 45
_DOMAIN_MAX: Final = 253
# As much as can be a domain: a number after it, or a suffix that was added with a dash, is not part of it.
_DOMAIN: Final = re.compile(r"(?:[^\W_](?:[^\W_]|-)*\.)+(?:xn--[a-z0-9-]{2,59}|[^\W\d_]+)(?![^\W_])")
_COUNTRIES: Final = "|".join(sorted(_IBAN_LENGTHS))
_COUNTRY: Final = re.compile(rf"(?:(?<![^\W_])|(?<=(?<![^\W_])iban))(?:{_COUNTRIES})[ \t\r\n._/-]{{0,2}}[0-9]")
# The usual separators between the groups of a card number. Others also separate unrelated numbers, so they count only
# if they are the same between all groups, and the groups are those of a card.
_USUAL_GAPS: Final = frozenset(("", " ", "-", "."))
_GROUPS: Final = frozenset(((4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3), (4, 4, 4, 1), (8, 8), (6, 13)))
# Each form with its minimum and maximum number of digits. Every repetition is bounded, so the work at a place is too.
_PHONES: Final = tuple(
    (re.compile(rf"(?<![\w+/-]){form}(?![\w]|[-./]\d)"), minimum, maximum)
    for form, minimum, maximum in (
        (r"(?:\+|(?<!\d[ .-])00)[1-9](?:[ ()./-]{0,3}\d){6,14}", 8, 17),  # +49 30 1234567, 0049...
        (r"(?:1[-. ])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[-. ])[2-9]\d\d[-. ]\d{4}", 10, 11),  # (415) 555-2671
        (
            r"(?<!\d[ .-])(?:\(0[1-9]\d{0,3}\)|0[1-9]\d{0,3})(?:[ ./-]{1,2}\d{2,8}){1,5}",
            9,
            12,
        ),  # 030/1234567, 01 23 45 67 89, 07700 900123
        (r"0[1-9]\d{8,9}", 10, 11),  # 07700900123
    )
)
_DATE: Final = re.compile(r"(?:\d{1,2}[./-]){2}(?:\d\d|\d{4})(?!\d)|\d{4}(?:[./-]\d{1,2}){2}")


def _is_word(text: str, place: int) -> bool:
    return 0 <= place < len(text) and text[place].isalnum()


def _emails(text: str, start: int, end: int) -> Iterator[Span]:
    behind = text.rindex("@", start, end) + 1
    domain = _DOMAIN.match(text, behind, min(len(text), end + 1, behind + _DOMAIN_MAX + 1))
    if domain is not None:
        yield start, domain.end()


def _phones(text: str, start: int, end: int) -> Iterator[Span]:
    for form, minimum, maximum in _PHONES:
        for found in form.finditer(text, start, min(end + 1, len(text))):
            digits = re.sub(r"\D", "", found[0])
            if found[0].startswith(("+", "00")):
                digits = digits.removeprefix("00")
                is_one = any(digits[:length] in _CALLING for length in (1, 2, 3))
            else:
                is_one = not _DATE.match(found[0])
            if is_one and minimum <= len(digits) <= maximum:
                yield found.span()


def _ibans(text: str, start: int, end: int) -> Iterator[Span]:
    """Try each country code that may begin an IBAN: a false one must not hide a real one."""
    for found in _COUNTRY.finditer(text, start, end):
        stop = _iban_end(text, found.start())
        if stop:
            yield found.start(), stop


def _iban_end(text: str, start: int) -> int:
    """The end of the IBAN whose country code is at ``start``, by the country's length; 0 if it is not an IBAN."""
    length = _IBAN_LENGTHS[text[start : start + 2]]
    letters: list[str] = []
    place = start
    for place in range(start, min(start + 2 * _IBAN_MAX, len(text))):
        letter = text[place]
        if letter.isascii() and letter.isalnum():
            letters.append(letter)
            if len(letters) == length:
                break
        elif letter not in _GAP:
            return 0
    is_one = len(letters) == length and not _is_word(text, place + 1) and _is_iban("".join(letters))
    return place + 1 if is_one else 0


def _is_iban(letters: str) -> bool:
    turned = letters[4:] + letters[:4]
    return int("".join(str(int(letter, 36)) for letter in turned)) % 97 == 1


def _cards(text: str, start: int, end: int) -> Iterator[Span]:
    """Find the card numbers of known issuers in groups of digits; each begins and ends at the edge of a group.

    The sums for the check digit are accumulated once, so that each candidate costs the same.
    """
    places = [place for place in range(start, end) if text[place].isdecimal()]
    digits = "".join(text[place] for place in places)
    doubled = [
        [int(d) if n % 2 != odd else sum(divmod(2 * int(d), 10)) for n, d in enumerate(digits)] for odd in (0, 1)
    ]
    sums = [list(accumulate(numbers, initial=0)) for numbers in doubled]
    free = 0
    for first in range(len(digits) - _DIGITS_MIN + 1):
        if first < free or (first and places[first - 1] == places[first] - 1):
            continue
        for length in reversed(_lengths(digits[first : first + 4])):
            last = first + length
            if last > len(digits) or (last < len(digits) and places[last] == places[last - 1] + 1):
                continue
            total = sums[last % 2]
            if (total[last] - total[first]) % 10 == 0 and _is_grouped(text[places[first] : places[last - 1] + 1]):
                yield places[first], places[last - 1] + 1
                free = last
                break


def _is_grouped(number: str) -> bool:
    """Whether the digits belong together, by their separators."""
    gaps = set(re.findall(r"\D+", number))
    alike = {" " if gap.isspace() else gap for gap in gaps}  # a line may break anywhere
    return gaps <= _USUAL_GAPS or (len(alike) == 1 and tuple(map(len, re.findall(r"\d+", number))) in _GROUPS)


def _lengths(beginning: str) -> tuple[int, ...]:
    for minimum, maximum, lengths in _ISSUERS:
        if minimum <= int(beginning[: len(str(minimum))]) <= maximum:
            return lengths
    return ()


def _addresses(text: str, start: int, end: int) -> Iterator[Span]:
    found = text[start:end]
    if not found.endswith("::"):
        found = found.rstrip(".:")
    if len(found) > _ADDRESS_MAX or not found.strip(":"):
        return
    end = start + len(found)
    if ":" in found and (_is_word(text, start - 1) or (found[0] == ":" and found[1] != ":")):
        start, found = end - len(found.partition(":")[2]), found.partition(":")[2]  # after a name and a colon
    family = socket.AF_INET6 if ":" in found else socket.AF_INET
    if _stands_alone(text, start, end) and _is_address(family, found):
        yield start, end


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether it is not part of something longer, such as a version number. A range is two addresses."""
    if _is_word(text, start - 1) or _is_word(text, end):
        return False
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    goes_on = _is_word(text, end + 1)
    if after in (".", "-", "_") and goes_on and not (after == "-" and text[end + 1].isdecimal()):
        return after == "." and not text[end + 1].isdecimal()
    return (
        before not in (".", "-", "_")
        or not _is_word(text, start - 2)
        or (before == "-" and text[start - 2].isdecimal())
    )


def _is_address(family: socket.AddressFamily, found: str) -> bool:
    try:
        socket.inet_pton(family, found)
    except (OSError, ValueError):
        return False
    return True


def _ssns(text: str, start: int, end: int) -> Iterator[Span]:
    """US social security numbers. Numbers that are never assigned are ignored."""
    area, group, serial = text[start:end].split("-")
    is_assigned = area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"
    if is_assigned and not _is_word(text, start - 1) and not _is_word(text, end) and text[end : end + 1] != "-":
        yield start, end


SHAPES: Final = (
    Shape("email", r"[\pL\pN._%+'-]+@[\pL\pN-]+(?:\.[\pL\pN-]+)+", _emails),
    Shape("phone", r"[+(0-9][0-9 ()./+-]{6,}[0-9]", _phones),
    Shape(
        "iban",
        rf"(?:\b|\biban)(?:{_COUNTRIES})[\s._/-]{{0,2}}[0-9][\s._/-]{{0,2}}[0-9](?:[\s._/-]{{0,2}}[a-z0-9]){{11}}",
        _ibans,
    ),
    Shape("card", r"[0-9](?:[\s.,_/-]{0,3}[0-9]){12,}", _cards),
    Shape("ip", r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-f]{0,4}:[0-9a-f]{0,4}:[0-9a-f:.]*", _addresses),
    Shape("ssn", r"[0-9]{3}-[0-9]{2}-[0-9]{4}", _ssns),
)
"""The order matters: if two of them match at the same place, the first one is reported first."""
