"""Signatures: those who know the standard accept ours, and we accept theirs."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import replicate.webhook
import standardwebhooks
import svix
from ui.hatch_build import NODE

from millpond import webhooks
from millpond.errors import InvalidError, WebhookInvalidError
from tests import packages

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(100, 132))).decode()
NOW = datetime(2026, 11, 16, 6, 30, tzinfo=UTC)
STAMP = int(NOW.timestamp())
BODY = '{"type":"job.succeeded","data":{"text":"grün ☃"}}'.encode()
SAID = json.loads(BODY)


def verify(body: bytes | str, headers: dict[str, str], secret: Any = SECRET, **options: Any) -> Any:
    return webhooks.verify(body, headers, secret, now=NOW, **options)


def signed(**changes: str) -> dict[str, str]:
    return webhooks.headers("msg_1", STAMP, BODY, [SECRET]) | changes


# Secrets


def test_a_secret_is_long_enough_and_no_two_are_alike() -> None:
    made = {webhooks.new_secret() for _ in range(100)}
    assert len(made) == 100
    for secret in made:
        assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
        assert webhooks.check_secret(secret) == secret


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_secret_of_somebodys_own_is_taken(size: int) -> None:
    secret = "whsec_" + base64.b64encode(b"x" * size).decode()
    assert webhooks.check_secret(secret) == secret


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        "secret",
        base64.b64encode(b"x" * 32).decode(),
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
        "whsec_" + "é" * 44,
        "whsec_" + base64.b64encode(b"x" * 32).decode() + "\n",
        "whsec_" + base64.b64encode(b"x" * 32).decode().rstrip("="),
    ],
)
def test_what_is_no_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidError) as refused:
        webhooks.check_secret(text, "webhook.secret")
    assert refused.value.field == "webhook.secret"
    assert text.removeprefix("whsec_") not in str(refused.value) or len(text) < 10


# Ours, read by us


@pytest.mark.parametrize("body", [BODY, BODY.decode()])
def test_what_was_signed_is_read(body: bytes | str) -> None:
    assert verify(body, signed()) == SAID


@pytest.mark.parametrize("spell", [str.title, str.upper, str.lower])
def test_the_names_of_headers_may_be_written_anyhow(spell: Callable[[str], str]) -> None:
    assert verify(BODY, {spell(name): value for name, value in signed().items()}) == SAID


def test_while_secrets_are_changed_either_is_enough() -> None:
    headers = webhooks.headers("msg_1", STAMP, BODY, [OTHER, SECRET])
    assert headers["webhook-signature"].count("v1,") == 2
    assert verify(BODY, headers, SECRET) == verify(BODY, headers, OTHER) == SAID
    assert verify(BODY, signed(), [OTHER, SECRET]) == SAID
    assert verify(BODY, signed(), iter([OTHER, SECRET])) == SAID


def test_signatures_of_versions_to_come_do_no_harm() -> None:
    known = signed()["webhook-signature"]
    assert verify(BODY, signed(**{"webhook-signature": f"v1a,AAAA v2,BBBB {known} v1,CCCC"})) == SAID


@pytest.mark.parametrize(
    ("body", "changes", "secret"),
    [
        (BODY + b" ", {}, SECRET),
        (BODY.replace(b"succeeded", b"failed"), {}, SECRET),
        (b"", {}, SECRET),
        (json.dumps(SAID).encode(), {}, SECRET),  # the same, written differently
        (b"\xff\xfe\x00", {}, SECRET),
        ("\ud800", {}, SECRET),
        (BODY, {"webhook-id": "msg_2"}, SECRET),
        (BODY, {"webhook-id": ""}, SECRET),
        (BODY, {"webhook-id": "\ud800"}, SECRET),
        (BODY, {"webhook-timestamp": str(STAMP + 1)}, SECRET),
        (BODY, {"webhook-timestamp": "now"}, SECRET),
        (BODY, {"webhook-timestamp": "-1"}, SECRET),
        (BODY, {"webhook-timestamp": f"{STAMP}.0"}, SECRET),
        (BODY, {"webhook-timestamp": f" {STAMP}"}, SECRET),
        (BODY, {"webhook-timestamp": "9" * 5_000}, SECRET),
        (BODY, {"webhook-timestamp": "١٢٣"}, SECRET),
        (BODY, {"webhook-signature": ""}, SECRET),
        (BODY, {"webhook-signature": "v1,"}, SECRET),
        (BODY, {"webhook-signature": "v1"}, SECRET),
        (BODY, {"webhook-signature": "☃ \ud800"}, SECRET),
        (BODY, {"webhook-signature": "v1," * 10_000}, SECRET),
        (BODY, {"webhook-signature": signed()["webhook-signature"].replace("v1,", "v1a,")}, SECRET),
        (BODY, {"webhook-signature": signed()["webhook-signature"].removeprefix("v1,")}, SECRET),
        (BODY, {"webhook-signature": signed()["webhook-signature"][:-1]}, SECRET),
        (BODY, {}, OTHER),
        (BODY, {}, []),
    ],
)
def test_what_was_tampered_with_is_refused(body: bytes | str, changes: dict[str, str], secret: Any) -> None:
    with pytest.raises(WebhookInvalidError) as refused:
        verify(body, signed(**changes), secret)
    assert refused.value.status == 401
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_what_lacks_a_header_is_refused(name: str) -> None:
    headers = signed()
    del headers[name]
    with pytest.raises(
        WebhookInvalidError, match="headers webhook-id, webhook-timestamp and webhook-signature are required"
    ):
        verify(BODY, headers)


@pytest.mark.parametrize(("seconds", "is_good"), [(0, True), (300, True), (-300, True), (301, False), (-301, False)])
def test_it_must_be_of_now(seconds: int, *, is_good: bool) -> None:
    headers = webhooks.headers("msg_1", STAMP - seconds, BODY, [SECRET])
    if is_good:
        assert verify(BODY, headers) == SAID
    else:
        with pytest.raises(WebhookInvalidError, match="outside the allowed window"):
            verify(BODY, headers)
        assert verify(BODY, headers, tolerance=timedelta(hours=1)) == SAID


def test_by_itself_it_goes_by_the_clock() -> None:
    now = int(time.time())
    assert webhooks.verify(BODY, webhooks.headers("msg_1", now, BODY, [SECRET]), SECRET) == SAID
    with pytest.raises(WebhookInvalidError):
        webhooks.verify(BODY, webhooks.headers("msg_1", now - 1_000, BODY, [SECRET]), SECRET)


@pytest.mark.parametrize("body", [b"", b"not json", b"\xff\xfe", b'{"a":'])
def test_a_body_that_is_no_json_is_distinguished(body: bytes) -> None:
    with pytest.raises(WebhookInvalidError, match="not JSON"):
        verify(body, webhooks.headers("msg_1", STAMP, body, [SECRET]))


def test_a_secret_that_is_none_is_the_readers_mistake_and_not_the_senders() -> None:
    with pytest.raises(InvalidError) as refused:
        verify(BODY, signed(), "my secret")
    assert refused.value.field == "secret"
    assert "my secret" not in str(refused.value)


# Ours, read by others; theirs, read by us


def fresh(*secrets: str) -> dict[str, str]:
    """Others go by the clock."""
    return webhooks.headers("msg_1", int(time.time()), BODY, secrets or (SECRET,))


def test_standardwebhooks_reads_ours_and_we_read_theirs() -> None:
    theirs = standardwebhooks.Webhook(SECRET)
    assert theirs.verify(BODY, fresh()) == SAID
    assert theirs.verify(BODY, fresh(OTHER, SECRET)) == SAID
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        theirs.verify(BODY, fresh(OTHER))
    signature = theirs.sign("msg_1", NOW, BODY.decode())
    assert signature == webhooks.sign(SECRET, "msg_1", STAMP, BODY)
    assert verify(BODY, signed(**{"webhook-signature": signature})) == SAID


def test_svix_reads_ours_and_we_read_theirs() -> None:
    theirs = svix.Webhook(SECRET)
    theirs.verify(BODY, fresh())
    theirs.verify(BODY, fresh(OTHER, SECRET))
    with pytest.raises(svix.WebhookVerificationError):
        theirs.verify(BODY + b" ", fresh())
    signature = theirs.sign("msg_1", NOW, BODY.decode())
    assert verify(BODY, signed(**{"webhook-signature": signature})) == SAID


def test_replicates_client_reads_ours() -> None:
    secret = replicate.webhook.WebhookSigningSecret(key=SECRET)
    check = replicate.webhook.Webhooks.validate
    check(headers=fresh(), body=BODY.decode(), secret=secret, tolerance=300)
    check(headers=fresh(OTHER, SECRET), body=BODY.decode(), secret=secret, tolerance=300)
    with pytest.raises(replicate.webhook.InvalidSignatureError):
        check(headers=fresh(OTHER), body=BODY.decode(), secret=secret, tolerance=300)


def test_the_libraries_of_node_read_ours_and_we_read_theirs() -> None:
    peers = packages.place("peers")
    if not peers.exists():
        pytest.skip("the libraries of Node.js are not here: `make test-packages` tells why npm does not bring them")
    cases = [
        {"secret": SECRET, "headers": fresh(), "body": BODY.decode()},
        {"secret": SECRET, "headers": fresh(OTHER, SECRET), "body": BODY.decode()},
        {"secret": OTHER, "headers": fresh(), "body": BODY.decode()},
        {"secret": SECRET, "headers": fresh(), "body": BODY.decode() + " "},
    ]
    asked = {"secret": SECRET, "id": "msg_1", "timestamp": STAMP, "body": BODY.decode(), "cases": cases}
    command = [NODE, peers / "check.cjs"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=60)
    decoded = json.loads(done.stdout)
    for library in ("svix", "standardwebhooks"):
        assert [case["ok"] for case in decoded["verified"][library]] == [True, True, False, False]
        assert verify(BODY, signed(**{"webhook-signature": decoded["signed"][library]})) == SAID


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_" + base64.b64encode(b"x" * 23).decode()])
def test_nobody_signs_or_verifies_with_a_secret_that_anybody_could_guess(secret: str) -> None:
    """A setting that is empty must not let everybody in who signs with nothing."""
    with pytest.raises(InvalidError, match="at least 24 are required") as caught:
        webhooks.sign(secret, "msg_1", STAMP, BODY)
    assert caught.value.field == "secret"
    for given in (secret, [SECRET, secret]):
        with pytest.raises(InvalidError):
            verify(BODY, signed(), given)


def test_a_webhook_has_no_endless_list_of_signatures() -> None:
    good = signed()["webhook-signature"]
    many = " ".join(["v1,aGVsbG8="] * (webhooks.SIGNATURES_MAX - 1) + [good])
    assert verify(BODY, signed(**{"webhook-signature": many})) == SAID
    with pytest.raises(WebhookInvalidError, match="more than 32 signatures"):
        verify(BODY, signed(**{"webhook-signature": f"{many} {good}"}))


def test_what_is_shown_of_a_hook_is_no_secret() -> None:
    hook = webhooks.Hook(url="https://me:hunter2@example.com:8443/a/b?token=hunter2#hunter2", secret=SECRET)
    assert repr(hook) == "Hook(url='https://example.com:8443/a/b', events=None)"
    assert str(hook.__rich_repr__()) == "[('url', 'https://example.com:8443/a/b'), ('events', None)]"
    assert webhooks.shown_url("https://example.com?a") == "https://example.com"
