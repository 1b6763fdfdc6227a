"""The proof of an EC2 instance, with certificates of our own making."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from millpond.errors import ForbiddenError, SettingsError
from millpond.integrations.aws.identity import Verifier
from tests.aws.authorities import INSTANCE, Authority, authority, document

if TYPE_CHECKING:
    from pathlib import Path


def refused(check: str, text: str) -> Any:
    return pytest.raises(ForbiddenError, match=text, check=lambda error: error.details["check"] == check)


def test_a_signed_document_is_reported() -> None:
    described = Verifier(authority(1).pem).verify(document(), authority(1).sign(document()), INSTANCE)
    assert (described["instanceId"], described["region"]) == (INSTANCE, "eu-central-1")


def test_the_signature_may_come_in_lines() -> None:
    signature = authority(1).sign(document())
    lines = "\n".join(signature[start : start + 64] for start in range(0, len(signature), 64)) + "\n"
    assert Verifier(authority(1).pem).verify(document(), lines)


def test_each_of_several_certificates_will_do() -> None:
    verifier = Verifier((authority(1).pem + authority(2).pem).decode())
    for number in (1, 2):
        assert verifier.verify(document(), authority(number).sign(document()), INSTANCE)


def test_certificates_lie_in_a_file_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_bytes(authority(1).pem)
    (tmp_path / "b.pem").write_bytes(authority(2).pem)
    (tmp_path / "notes.txt").write_text("nothing")
    for place in (tmp_path, str(tmp_path), tmp_path / "b.pem"):
        assert Verifier(place).verify(document(), authority(2).sign(document()))


@pytest.mark.parametrize(
    ("given", "signature"),
    [
        (document(instanceId="i-00000000"), authority(1).sign(document())),
        (document() + " ", authority(1).sign(document())),
        (document().replace("\n", ""), authority(1).sign(document())),
        (document(), authority(2).sign(document())),
        (document(), authority(1).sign(document(), hashes.SHA384())),
        (document(), base64.b64encode(bytes(256)).decode()),
        (document(), ""),
        ("", authority(1).sign(document())),
    ],
    ids=["changed", "too long", "reformatted", "another's", "another digest", "zeroes", "no signature", "no document"],
)
def test_what_was_not_signed_as_it_is_proves_nothing(given: str, signature: str) -> None:
    with refused("signature", "signature does not match"):
        Verifier(authority(1).pem).verify(given, signature, INSTANCE)


def test_the_document_must_be_about_the_worker() -> None:
    with refused("instance", f"The document is for '{INSTANCE}', but the worker is named 'i-0ffffffff'"):
        Verifier(authority(1).pem).verify(document(), authority(1).sign(document()), "i-0ffffffff")


@pytest.mark.parametrize(
    ("allowed", "check"),
    [({"accounts": ["999999999999"]}, "accountId"), ({"regions": ["us-east-1"]}, "region")],
    ids=["account", "region"],
)
def test_account_and_region_may_have_to_be_known(allowed: Any, check: str) -> None:
    with refused(check, f"The {check}"):
        Verifier(authority(1).pem, **allowed).verify(document(), authority(1).sign(document()), INSTANCE)
    open_to = {name: [*values, "123456789012", "eu-central-1"] for name, values in allowed.items()}
    assert Verifier(authority(1).pem, **open_to).verify(document(), authority(1).sign(document()), INSTANCE)


@pytest.mark.parametrize("signature", ["not base64!", "YWJj=YWJj", "Zoë"], ids=["words", "padding", "letters"])
def test_a_signature_that_is_not_base64_is_reported(signature: str) -> None:
    with refused("encoding", "not base64"):
        Verifier(authority(1).pem).verify(document(), signature)


def test_a_long_story_is_not_read() -> None:
    with refused("length", "too long"):
        Verifier(authority(1).pem).verify("x" * 20_000, "")


@pytest.mark.parametrize("text", ["[]", "null", "{", "[" * 2000], ids=["list", "null", "broken", "deep"])
def test_what_is_signed_must_be_an_object(text: str) -> None:
    with refused("form", "not a JSON object"):
        Verifier(authority(1).pem).verify(text, authority(1).sign(text), INSTANCE)


def test_a_document_that_names_no_instance_proves_none() -> None:
    text = '{"region": "eu-central-1"}'
    with refused("instance", "The document is for None"):
        Verifier(authority(1).pem).verify(text, authority(1).sign(text), INSTANCE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"nonsense", "is not a valid PEM file"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "is not a valid PEM file"),
        (Authority(ec.generate_private_key(ec.SECP256R1())).pem, "None of the certificates has an RSA key"),
    ],
    ids=["nonsense", "broken", "another kind of key"],
)
def test_certificates_that_cannot_be_used_are_reported_at_the_start(text: bytes, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        Verifier(text)


def test_a_place_without_certificates_is_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="None of the certificates"):
        Verifier(tmp_path)
    with pytest.raises(SettingsError, match=r"Cannot read .*: No such file"):
        Verifier(tmp_path / "missing.pem")
