"""The proof of an EC2 instance: a document about it with Amazon's signature, checked against Amazon's certificates.

The certificates are public, one for each region; the operator configures those of the regions in use ("RSA" in
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/regions-certs.html). Every program on the instance can read the
document, and it stays good for the instance's life: it proves which machine it came from, not when.
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
    """Checks documents against certificates in PEM: a file, a folder of ``.pem`` files, or the text itself."""

    def __init__(
        self, certificates: Path | str | bytes, *, accounts: Iterable[str] = (), regions: Iterable[str] = ()
    ) -> None:
        self._keys = _public_keys(certificates)
        self._allowed = {"accountId": frozenset(accounts), "region": frozenset(regions)}

    def verify(self, document: str, signature: str, worker: str | None = None) -> dict[str, Any]:
        """What the document says, if it is Amazon's, about this worker's instance, and of an allowed origin."""
        if len(document) > _LENGTH_MAX or len(signature) > _LENGTH_MAX:
            _refuse("length", "document", "The identity is longer than any of Amazon's.")
        if not self._is_signed(document.encode("utf-8", "replace"), _decoded(signature)):
            _refuse(
                "signature", "signature", "None of the configured certificates made this signature of the document."
            )
        told = _members(document)
        if worker is not None and told.get("instanceId") != worker:
            _refuse(
                "instance", "document", f"It proves {told.get('instanceId')!r}, and the worker is called {worker!r}."
            )
        for member, allowed in self._allowed.items():
            if allowed and told.get(member) not in allowed:
                _refuse(member, "document", f"Its {member} {told.get(member)!r} is not one that may join.")
        return told

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
        hint = "pip install 'millpond[aws]'"
        raise SettingsError("The proof of an EC2 instance needs cryptography.", hint=hint) from error


def _public_keys(certificates: Path | str | bytes) -> list[Any]:
    """The RSA keys of all certificates; one that cannot be read, or none at all, is an operator's mistake."""
    x509, rsa = _cryptography("x509"), _cryptography("hazmat.primitives.asymmetric.rsa")
    keys: list[Any] = []
    for name, text in _texts(certificates):
        try:
            keys += [found.public_key() for found in x509.load_pem_x509_certificates(text)]
        except ValueError as error:
            raise SettingsError(f"{name} holds no certificates in PEM: {error}.", field="ec2_certificates") from error
    keys = [key for key in keys if isinstance(key, rsa.RSAPublicKey)]
    if not keys:
        raise SettingsError(
            "There is no certificate with an RSA key.",
            field="ec2_certificates",
            hint="Take those that Amazon calls RSA.",
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
        raise SettingsError(f"{path} cannot be read: {error.strerror}.", field="ec2_certificates") from error


def _decoded(signature: str) -> bytes:
    try:
        return base64.b64decode("".join(signature.split()), validate=True)
    except (binascii.Error, ValueError):
        _refuse("encoding", "signature", "The signature is not base64.")


def _members(document: str) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError):
        told = None
    if not isinstance(told, dict):
        _refuse("form", "document", "The document is signed, but it is not a JSON object.")
    return cast("dict[str, Any]", told)


def _refuse(check: str, field: str, why: str) -> NoReturn:
    raise ForbiddenError(f"The proof of the instance is not good. {why}", field=f"identity.{field}", check=check)
