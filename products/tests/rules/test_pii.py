"""PII: what has check digits is checked, and what only looks like it passes."""

# ruff: noqa: RUF001 - other widths and styles are the point
from __future__ import annotations

import random
from typing import Any

import pytest
from products.tests.rules.deciding import decide, labels

from millpond.errors import InputError
from millpond_products.rules import Pii, read

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
# By label: what stands in a text as people write it, and what of it is meant.
IN_PASSING = [
    ("email", "mail john@example.com—he answers", "john@example.com"),
    ("email", "john@example.com–thanks", "john@example.com"),
    ("email", "john@example.com-x", "john@example.com"),
    ("email", "john@example.com.2 apples", "john@example.com"),
    ("email", "u@xn--e1afmkfd.xn--p1ai", "u@xn--e1afmkfd.xn--p1ai"),
    ("email", "a" * 70 + "@example.com", "a" * 70 + "@example.com"),
    ("card", "order B7 4111 1111 1111 1111", "4111 1111 1111 1111"),
    ("card", "4111 1111 1111 1111 3pm", "4111 1111 1111 1111"),
    ("card", "card4111111111111111", "4111111111111111"),
    ("card", "4111111111111111é", "4111111111111111"),
    ("card", "4111  1111  1111  1111", "4111  1111  1111  1111"),
    ("card", "4111 - 1111 - 1111 - 1111", "4111 - 1111 - 1111 - 1111"),
    ("card", "4111 1111\n1111 1111", "4111 1111\n1111 1111"),
    ("card", "4111\n1111\n1111\n1111", "4111\n1111\n1111\n1111"),
    ("card", "4111\t1111\t1111\t1111", "4111\t1111\t1111\t1111"),
    ("card", "4111_1111_1111_1111", "4111_1111_1111_1111"),
    ("card", "4111/1111/1111/1111", "4111/1111/1111/1111"),
    ("card", "4111,1111,1111,1111", "4111,1111,1111,1111"),
    ("card", "3782_822463_10005", "3782_822463_10005"),
    ("card", "DE89 3704 0044 0532 0130 00 4111 1111 1111 1111", "4111 1111 1111 1111"),
    ("iban", "DE89 3704 0044 0532 0130 00 4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00"),
    ("iban", "DE89  3704 0044 0532 0130 00", "DE89  3704 0044 0532 0130 00"),
    ("iban", "DE89/3704/0044/0532/0130/00", "DE89/3704/0044/0532/0130/00"),
    ("iban", "DE89\n3704 0044 0532 0130 00", "DE89\n3704 0044 0532 0130 00"),
    ("iban", "IBANDE89370400440532013000", "DE89370400440532013000"),
    ("iban", "will be 10 DE89 3704 0044 0532 0130 00", "DE89 3704 0044 0532 0130 00"),
    ("ip", "ip:8.8.8.8", "8.8.8.8"),
    ("ip", "addr:2001:4860:4860::8888", "2001:4860:4860::8888"),
    ("ip", "node:2001:4860:4860::8888", "2001:4860:4860::8888"),
    ("ip", "8.8.8.8_", "8.8.8.8"),
    ("ip", "[2001:4860:4860::8888]:443", "2001:4860:4860::8888"),
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
    "1.2.3.4-rc1",
    "pkg-1.2.3.4",
    "00:1a:2b:3c:4d:5e",
    "foo::1",
    "abc::xyz",
    "4111,1111\n1111 1111",  # numbers in a table
    "411\n11111\n1111\n1111",
    "41,11,11,11,11,11,11,11",
    "ann@example.com2",
    "DE89\n\n\n3704 0044 0532 0130 00 is 89",
]


@pytest.mark.parametrize(("label", "text"), ARE, ids=str)
async def test_it_is_found_in_a_sentence(label: str, text: str) -> None:
    assert await labels(f"It is {text}, he said.", Pii()) == [(label, text)]
    assert await labels(text, Pii()) == [(label, text)]
    assert (await decide(f"({text})", Pii(), action="redact")).text == f"([{label.upper()}])"


@pytest.mark.parametrize("text", ARE_NOT)
async def test_what_only_looks_like_it_passes(text: str) -> None:
    assert await labels(f"It is {text}, he said.", Pii()) == []


@pytest.mark.parametrize(("label", "text", "meant"), IN_PASSING, ids=str)
async def test_it_is_found_as_people_write_it(label: Any, text: str, meant: str) -> None:
    assert await labels(text, Pii(labels=(label,))) == [(label, meant)]


async def test_a_range_is_two_addresses() -> None:
    assert await labels("8.8.8.8-8.8.8.9", Pii(labels=("ip",))) == [("ip", "8.8.8.8"), ("ip", "8.8.8.9")]


UNSEEN = (
    "\u034f\u115f\u17b4\u180b\u180f\u200b\u200f\u202e\u2060\u2065\u206f\u3164"
    "\ufe0f\ufeff\uffa0\ufff0\U000e0080\U000e0fff\x00\x01\x1f\x7f\x80"
)


@pytest.mark.parametrize("letter", UNSEEN, ids=ascii)
async def test_nothing_unseen_helps(letter: str) -> None:
    given: Any = (("email", "ann@example.com"), ("card", "4111111111111111"))
    for label, text in given:
        split = f"{text[:5]}{letter * 4}{text[5:]}"
        assert await labels(f"It is {split}, he said.", Pii(labels=(label,))) == [(label, split)]


async def test_gaps_that_are_controls_are_gaps() -> None:
    assert await labels("4111\x0b1111\x0c1111 1111", Pii(labels=("card",))) == [("card", "4111\x0b1111\x0c1111 1111")]


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
    for deployment, digit in enumerate(reversed(digits)):
        number = int(digit) * (1 + deployment % 2)
        total += number - 9 * (number > 9)
    return total % 10 == 0


async def test_the_check_digit_of_cards_is_that_of_the_standard() -> None:
    chance = random.Random(11)
    for _ in range(300):
        digits = "4" + "".join(chance.choices("0123456789", k=15))
        found = await labels(digits, Pii(labels=("card",)))
        assert bool(found) == _luhn(digits), digits
