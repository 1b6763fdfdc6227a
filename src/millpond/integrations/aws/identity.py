"""Verifies the identity documents of EC2 instances, which Amazon signs, with Amazon's certificates.

The certificates are public, one for each region; the operator configures those of the regions in use ("RSA" in
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/regions-certs.html). Every program on the instance can read the
document, and it stays valid for the instance's lifetime: it proves which instance it comes from, not when.
"""

from __future__ import annotations

import base64
import binascii
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import msgspec

from millpond.errors import ForbiddenError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

_LENGTH_MAX: Final = 16_384
_END: Final = b"-----END CERTIFICATE-----"


class Verifier:
    """Verifies documents with certificates in PEM format: a file, a folder of ``.pem`` files, or the text itself."""

    def __init__(
        self, certificates: Path | str | bytes, *, accounts: Iterable[str] = (), regions: Iterable[str] = ()
    ) -> None:
        self._keys = _public_keys(certificates)
        self._allowed = {"accountId": frozenset(accounts), "region": frozenset(regions)}

    def verify(self, document: str, signature: str, worker: str | None = None) -> dict[str, Any]:
        """The members of a document that Amazon signed for this worker's instance, in an allowed account and region."""
        if len(document) > _LENGTH_MAX or len(signature) > _LENGTH_MAX:
            _refuse("length", "document", "The identity document or signature is too long.")
        if not self._is_signed(document.encode("utf-8", "replace"), _decoded(signature)):
            _refuse("signature", "signature", "The signature does not match any of the configured certificates.")
        members = _members(document)
        if worker is not None and members.get("instanceId") != worker:
            _refuse(
                "instance",
                "document",
                f"The document is for {members.get('instanceId')!r}, but the worker is named {worker!r}.",
            )
        for member, allowed in self._allowed.items():
            if allowed and members.get(member) not in allowed:
                _refuse(member, "document", f"The {member} {members.get(member)!r} is not allowed.")
        return members

    def _is_signed(self, document: bytes, signature: bytes) -> bool:
        invalid = _cryptography("exceptions").InvalidSignature
        padding = _cryptography("hazmat.primitives.asymmetric.padding").PKCS1v15()
        sha256 = _cryptography("hazmat.primitives.hashes").SHA256()
        for key in self._keys:
            try:
                key.verify(signature, document, padding, sha256)
            except invalid:
                continue
            return True
        return False


def _cryptography(module: str) -> Any:
    try:
        return import_module(f"cryptography.{module}")
    except ImportError as error:
        hint = "Run pip install 'millpond[aws]'."
        raise SettingsError("The verification of EC2 instances requires cryptography.", hint=hint) from error


def _public_keys(certificates: Path | str | bytes) -> list[Any]:
    """The RSA keys of all certificates. An unreadable certificate, or none at all, is a configuration error."""
    x509, rsa = _cryptography("x509"), _cryptography("hazmat.primitives.asymmetric.rsa")
    keys: list[Any] = []
    for name, text in _texts(certificates):
        try:
            keys += [found.public_key() for found in x509.load_pem_x509_certificates(text)]
        except ValueError as error:
            raise SettingsError(
                f"{name} is not a valid PEM file of certificates: {error}.", field="ec2_certificates"
            ) from error
    keys = [key for key in keys if isinstance(key, rsa.RSAPublicKey)]
    if not keys:
        raise SettingsError(
            "None of the certificates has an RSA key.",
            field="ec2_certificates",
            hint="Use Amazon's RSA certificates.",
        )
    return keys


def _texts(certificates: Path | str | bytes) -> list[tuple[str, bytes]]:
    if isinstance(certificates, bytes):
        return [("The text", certificates)]
    if isinstance(certificates, str) and _END in certificates.encode():
        return [("The text", certificates.encode())]
    path = Path(certificates)
    try:
        files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
        return [(str(file), file.read_bytes()) for file in files]
    except OSError as error:
        raise SettingsError(f"Cannot read {path}: {error.strerror}.", field="ec2_certificates") from error


def _decoded(signature: str) -> bytes:
    try:
        return base64.b64decode("".join(signature.split()), validate=True)
    except (binascii.Error, ValueError):
        _refuse("encoding", "signature", "The signature is not base64.")


def _members(document: str) -> dict[str, Any]:
    try:
        members = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError):
        members = None
    if not isinstance(members, dict):
        _refuse("form", "document", "The signed document is not a JSON object.")
    return cast("dict[str, Any]", members)


def _refuse(check: str, field: str, why: str) -> NoReturn:
    raise ForbiddenError(
        f"The identity of the instance could not be verified. {why}", field=f"identity.{field}", check=check
    )
