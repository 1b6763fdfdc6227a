"""PII: what has check digits is checked, and what only looks like it passes."""

# ruff: noqa: RUF001 - other widths and styles are the point
from __future__ import annotations

import random

import pytest

from penstock.errors import InputError
from penstock.rules import Pii, read
from tests.rules.deciding import decide, labels

# By label: as it stands in a text.
ARE = [
    ("email", "ann@example.com"),
    ("email", "Ann.O'Neil+tag@sub.example.co.uk"),
    ("email", "josé@exämple.de"),
    ("email", "ann＠example.com"),
    ("email", "a\u200bnn@example.com"),
    ("email", "пётр@почта.рф"),
    ("phone", "+49 30 1234567"),
    ("phone", "+49 (0)30 123456-78"),
    ("phone", "+1 415-555-2671"),
    ("phone", "+14155552671"),
    ("phone", "0049 30 1234567"),
    ("phone", "(415) 555-2671"),
    ("phone", "415-555-2671"),
    ("phone", "415.555.2671"),
    ("phone", "1-415-555-2671"),
    ("phone", "020 7946 0958"),
    ("phone", "07700 900123"),
    ("phone", "07700900123"),
    ("phone", "030/1234567"),
    ("phone", "0171-2345678"),
    ("phone", "01 23 45 67 89"),
    ("phone", "+٤٩ ٣٠ ١٢٣٤٥٦٧"),
    ("iban", "DE89370400440532013000"),
    ("iban", "DE89 3704 0044 0532 0130 00"),
    ("iban", "de89 3704 0044 0532 0130 00"),
    ("iban", "GB29 NWBK 6016 1331 9268 19"),
    ("iban", "FR14 2004 1010 0505 0001 3M02 606"),
    ("iban", "NO93 8601 1117 947"),
    ("iban", "CH93-0076-2011-6238-5295-7"),
    ("iban", "MT84 MALT 0110 0001 2345 MTLC AST0 01S"),
    ("card", "4111111111111111"),
    ("card", "4111 1111 1111 1111"),
    ("card", "4111-1111-1111-1111"),
    ("card", "5555 5555 5555 4444"),
    ("card", "2223003122003222"),
    ("card", "3782 822463 10005"),
    ("card", "6011 1111 1111 1117"),
    ("card", "3056 930902 5904"),
    ("card", "3530 1113 3330 0000"),
    ("card", "４１１１ １１１１ １１１１ １１１１"),
    ("ip", "192.168.0.1"),
    ("ip", "8.8.8.8"),
    ("ip", "2001:db8::1"),
    ("ip", "fe80::1ff:fe23:4567:890a"),
    ("ip", "::ffff:192.0.2.128"),
    ("ip", "2001:0db8:85a3:0000:0000:8a2e:0370:7334"),
]
ARE_NOT = [
    "ann@example",
    "@ann",
    "a@b",
    "5 < 6 @ home.",
    "2024-01-15",
    "15.01.2024 10:30",
    "12:30:45",
    "from 1999 to 2024",
    "order 1234567890",
    "12,345,678",
    "+999 1234567890",
    "+12",
    "DE89 3704 0044 0532 0130 01",  # the check digits
    "DE89 3704 0044 0532 0130",  # too short
    "XX89 3704 0044 0532 0130 00",  # no such country
    "4111 1111 1111 1112",
    "1234 5678 9012 3456",
    "99999999999999999999999",
    "256.1.1.1",
    "1.2.3",
    "1.2.3.4.5",
    "v1.2.3.4-beta",
    "std::vector",
    "::",
    "10:20",
]


@pytest.mark.parametrize(("label", "text"), ARE, ids=str)
async def test_it_is_found_in_a_sentence(label: str, text: str) -> None:
    assert await labels(f"It is {text}, he said.", Pii()) == [(label, text)]
    assert await labels(text, Pii()) == [(label, text)]
    assert (await decide(f"({text})", Pii(), action="redact")).text == f"([{label.upper()}])"


@pytest.mark.parametrize("text", ARE_NOT)
async def test_what_only_looks_like_it_passes(text: str) -> None:
    assert await labels(f"It is {text}, he said.", Pii()) == []


async def test_a_card_is_found_among_other_digits() -> None:
    assert await labels("12 4111 1111 1111 1111 99 and 0 0 5555-5555-5555-4444.", Pii(labels=("card",))) == [
        ("card", "4111 1111 1111 1111"),
        ("card", "5555-5555-5555-4444"),
    ]


async def test_only_what_the_rule_names_is_looked_for() -> None:
    text = "ann@example.com 078-05-1120 10.0.0.1"
    assert await labels(text, Pii(labels=("ip",))) == [("ip", "10.0.0.1")]
    assert await labels(text, Pii(labels=("ssn",))) == [("ssn", "078-05-1120")]
    assert ("ssn", "078-05-1120") not in await labels(text, Pii()), "only where it is wished for"
    assert await labels("000-05-1120 666-05-1120 078-00-1120 978-05-1120 1078-05-1120", Pii(labels=("ssn",))) == []
    with pytest.raises(InputError) as caught:
        read({"name": "x", "matcher": {"type": "pii", "labels": ["shoe size"]}})
    assert caught.value.field == "rule.matcher.labels[0]"


def _luhn(digits: str) -> bool:
    """As the standard says it, digit by digit: the product adds up sums beforehand."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        number = int(digit) * (1 + place % 2)
        total += number - 9 * (number > 9)
    return total % 10 == 0


async def test_the_check_digit_of_cards_is_that_of_the_standard() -> None:
    chance = random.Random(11)
    for _ in range(300):
        digits = "4" + "".join(chance.choices("0123456789", k=15))
        found = await labels(digits, Pii(labels=("card",)))
        assert bool(found) == _luhn(digits), digits
