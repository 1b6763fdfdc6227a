"""Secrets: found by their form, by their checksum, or by what stands before them; never shown in a verdict."""

from __future__ import annotations

import base64

import pytest
from products.tests.rules.deciding import decide, labels, ruleset

from millpond import webhooks
from millpond.engine.access import credentials
from millpond.errors import InputError
from millpond_products.rules import Secrets

_WORD = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"
_HEX = "0123456789abcdef" * 4


def _part(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


# Put together here, so that nobody who scans this file takes one for real.
ARE = [
    ("millpond_key", credentials.new_key("admin")),
    ("millpond_key", credentials.new_worker_token()),
    ("webhook_secret", "whsec_" + base64.b64encode(b"x7" * 16).decode()),
    (
        "aws_key",
        "AKIA" + "IOSFODNN7EXAMPLE"[:16].replace("0", "2").replace("1", "3").replace("8", "4").replace("9", "5"),
    ),
    ("github_token", "ghp_" + "zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17"),
    ("github_token", "github_pat_" + _WORD[:22] + "_" + (_WORD * 2)[:59]),
    ("gitlab_token", "glpat-" + _WORD[:20]),
    ("openai_key", "sk-proj-" + _WORD * 2),
    ("openai_key", "sk-ant-" + "api03-" + _WORD),
    ("stripe_key", "sk_live_" + _WORD[:24]),
    ("slack_token", "xoxb-" + "123456789012-" + _WORD[:24]),
    ("google_key", "AIza" + (_WORD * 2)[:35]),
    ("replicate_token", "r8_" + (_WORD * 2)[:37]),
    ("npm_token", "npm_" + (_WORD * 2)[:36]),
    ("sendgrid_key", "SG." + _WORD[:22] + "." + (_WORD * 2)[:43]),
    ("twilio_key", "SK" + _HEX[:32]),
    ("telegram_token", "123456789:AA" + (_WORD * 2)[:33]),
    ("digitalocean_token", "dop_v1_" + _HEX),
    ("shopify_token", "shpat_" + _HEX[:32]),
    ("jwt", ".".join((_part('{"alg":"HS256","typ":"JWT"}'), _part('{"sub":"1234567890"}'), _WORD))),
    ("private_key", "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc+/=\n-----END RSA PRIVATE KEY-----"),
]


@pytest.mark.parametrize(("label", "text"), ARE, ids=[f"{n}-{label}" for n, (label, _) in enumerate(ARE)])
async def test_a_secret_is_found_by_its_form(label: str, text: str) -> None:
    given = f"Use {text} please"
    assert await labels(given, Secrets()) == [(label, text)]
    decision = await decide(given, Secrets(), action="redact")
    assert decision.text == f"Use [{label.upper()}] please"
    (verdict,) = decision.verdicts
    assert set(verdict.excerpt) <= {"*", "…"}, "nothing of it is shown"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("api_key = 'aK39fj2kd93jfkd02jf'", "aK39fj2kd93jfkd02jf"),
        ('"client_secret": "aK39fj2kd93jfkd02jf"', "aK39fj2kd93jfkd02jf"),
        ("TOKEN=aK39fj2kd93jfkd02jf", "aK39fj2kd93jfkd02jf"),
        ("password: hunter22", "hunter22"),
        ("PGPASSWORD=correcthorse", "correcthorse"),
        ("Authorization: Bearer aK39fj2kd93jfkd02jf", "aK39fj2kd93jfkd02jf"),
        ("postgresql://ann:s3cretpw@db.example.com/x", "ann:s3cretpw"),
    ],
)
async def test_a_secret_is_found_by_what_stands_before_it(text: str, secret: str) -> None:
    assert [found for _, found in await labels(text, Secrets())] == [secret]


@pytest.mark.parametrize(
    "text",
    [
        "ghp_" + "zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq18",  # the checksum
        "mp_admin_" + "x" * 49,  # the checksum
        "password: ********",
        "password: <your password>",
        "api_key = ${API_KEY}",
        "key: aaaaaaaaaaaaaaaaaaaaaaa",
        "The key = to success is patience",
        "eyJub.eyJub.abc",
        "sk-short",
        "AKIA in the middle of AKIAlowercase123456",
        "task-force-one-and-a-half-men-of-war",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    ],
)
async def test_what_is_no_secret_passes(text: str) -> None:
    assert await labels(text, Secrets()) == []


async def test_what_cannot_be_seen_does_not_help() -> None:
    key = credentials.new_key("client")
    assert await labels(f"{key[:20]}\u200b{key[20:]}", Secrets()) == [("millpond_key", f"{key[:20]}\u200b{key[20:]}")]


@pytest.mark.parametrize("letter", "\u034f\u2065\ufff0\U000e0080\x01\u0301\u0336", ids=ascii)
async def test_neither_unseen_letters_nor_marks_help(letter: str) -> None:
    key = "sk_live_" + _WORD[:24]
    split = f"{key[:12]}{letter}{key[12:]}"
    assert await labels(f"Use {split} now", Secrets()) == [("stripe_key", split)]


@pytest.mark.parametrize("around", ["密钥{}是", "{}é"])
async def test_letters_of_other_scripts_may_touch_a_key(around: str) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLE"[:16]
    assert await labels(around.format(key), Secrets()) == [("aws_key", key)]


async def test_a_token_whose_head_goes_on_for_ever_is_no_hindrance() -> None:
    deep = _part('{"a":' + "[" * 2_000)
    assert await labels(f"{deep}.eyJhIjox.x", Secrets(labels=("jwt",))) == []
    long = _part('{"a":"' + "x" * 4_096 + '"}')
    assert len(await labels(f"{long}.eyJhIjox.x", Secrets(labels=("jwt",)))) == 1, "it is not read, and so not let pass"


async def test_a_private_key_without_an_end_takes_what_follows() -> None:
    text = "-----BEGIN PRIVATE KEY-----\n" + "MIIEow" * 10
    assert (await decide(text, Secrets(), action="redact")).text == "[PRIVATE_KEY]"


async def test_only_the_secrets_that_a_rule_names_are_looked_for() -> None:
    text = f"{'ghp_' + 'zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17'} password: hunter22"
    assert await labels(text, Secrets(labels=("secret",))) == [("secret", "hunter22")]
    with pytest.raises(InputError) as caught:
        ruleset(Secrets(labels=("secret", "handshake")))
    assert caught.value.field == "rules[0].matcher.labels[1]"


async def test_our_own_webhook_secrets_are_known() -> None:
    if not hasattr(webhooks, "new_secret"):
        pytest.skip("made elsewhere")
    secret = webhooks.new_secret()
    assert await labels(secret, Secrets()) == [("webhook_secret", secret)]
