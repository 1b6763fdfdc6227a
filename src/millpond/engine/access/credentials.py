"""Credentials: the formats of keys and tokens, and whether a text has one of them. Nothing is looked up here.

A key is ``mp_<scope>_``, 32 random bytes, and a checksum: a typo is recognized without a query, and scanners of public
code can find leaked keys. A token contains what it allows, signed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args
from uuid import UUID

from millpond.errors import InvalidError, UnauthorizedError

if TYPE_CHECKING:
    from collections.abc import Iterable

Scope = Literal["client", "worker", "viewer", "operator", "admin"]
TokenScope = Literal["read", "cancel"]

TOKEN_PREFIX: Final = "mpt_"  # noqa: S105 - what a token begins with
WORKER_PREFIX: Final = "mpw_"
SECRET_BYTES: Final = 32

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_LENGTH: Final = 43  # 32 bytes in base 62
_CHECK_LENGTH: Final = 6  # a CRC-32 in base 62
_KEY: Final = re.compile(rf"mp_(?:{'|'.join(get_args(Scope))})_[0-9A-Za-z]{{{_RANDOM_LENGTH + _CHECK_LENGTH}}}")
_WORKER_BYTES: Final = 40
_WORKER_LENGTH: Final = 54  # 40 bytes in base 62: a worker token has 64 characters in total
_WORKER: Final = re.compile(rf"{WORKER_PREFIX}[0-9A-Za-z]{{{_WORKER_LENGTH + _CHECK_LENGTH}}}")
_SHOWN: Final = 4

_BITS: Final[dict[str, int]] = {name: 1 << place for place, name in enumerate(get_args(TokenScope))}
_HEAD: Final = struct.Struct(">BBQ16s")  # version, scopes, the millisecond in which it ends, job
_VERSION: Final = 1
_LETTERS_MAX: Final = 512
_MAC_LENGTH: Final = 32


def new_key(scope: str) -> str:
    text = f"mp_{scope}_{_base62(int.from_bytes(secrets.token_bytes(SECRET_BYTES)), _RANDOM_LENGTH)}"
    return text + _checksum(text)


def is_key(text: str) -> bool:
    """Whether a text has the format of a key, and the right checksum."""
    return _KEY.fullmatch(text) is not None and _checksum(text[:-_CHECK_LENGTH]) == text[-_CHECK_LENGTH:]


def new_worker_token() -> str:
    """A token for a fleet worker."""
    text = WORKER_PREFIX + _base62(int.from_bytes(secrets.token_bytes(_WORKER_BYTES)), _WORKER_LENGTH)
    return text + _checksum(text)


def is_worker_token(text: str) -> bool:
    """Whether a text has the format of a worker token, and the right checksum."""
    return _WORKER.fullmatch(text) is not None and _checksum(text[:-_CHECK_LENGTH]) == text[-_CHECK_LENGTH:]


def digest(key: str) -> bytes:
    """The digest of a key, as it is stored. The random part is too long to be guessed, so a fast hash is sufficient."""
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


def hint(key: str) -> str:
    """A short form of a key, which identifies it but does not help to guess it."""
    return f"{key[: key.rindex('_') + 1 + _SHOWN]}…{key[-_SHOWN:]}"


@dataclass(frozen=True, slots=True)
class Token:
    """The content of a browser token: which scopes for which job of which tenant, until when."""

    tenant: str
    job_id: UUID
    scopes: frozenset[str]
    ends: float

    def sign(self, secret: bytes) -> str:
        bits = sum(_BITS[name] for name in self.scopes)
        body = _HEAD.pack(_VERSION, bits, round(self.ends * 1000), self.job_id.bytes) + self.tenant.encode()
        return TOKEN_PREFIX + packed(body + _mac(secret, body))

    @classmethod
    def read(cls, text: str, secret: bytes) -> Token:
        """Read a token that this installation has signed."""
        body = _signed_body(text.removeprefix(TOKEN_PREFIX), secret)
        version, bits, ends, job_id = _HEAD.unpack_from(body)
        if version != _VERSION:
            raise _not_ours()
        scopes = frozenset(name for name, bit in _BITS.items() if bits & bit)
        return cls(body[_HEAD.size :].decode(), UUID(bytes=job_id), scopes, ends / 1000)


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    given = frozenset(scopes)
    if not given or not given <= _BITS.keys():
        raise InvalidError(f"The permissions must be one or more of {', '.join(_BITS)}.", field="scopes")
    return given


def packed(content: bytes) -> str:
    """Bytes as the letters of a token: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unpacked(letters: str) -> bytes:
    """The bytes of a token; raises ValueError for any text that :func:`packed` does not make of them.

    The last letter has bits that decoding ignores. Without this check, a token would have several spellings, and one
    that is blocked or remembered by its text could be sent again in another one.
    """
    if len(letters) > _LETTERS_MAX:
        raise ValueError(f"The token has more than {_LETTERS_MAX} letters.")
    content = base64.b64decode(letters + "=" * (-len(letters) % 4), altchars=b"-_", validate=True)
    if packed(content) != letters:
        raise ValueError("The token has another spelling.")
    return content


def _signed_body(letters: str, secret: bytes) -> bytes:
    try:
        whole = unpacked(letters)
    except ValueError:
        raise _not_ours() from None
    body, mac = whole[:-_MAC_LENGTH], whole[-_MAC_LENGTH:]
    if len(body) <= _HEAD.size or not hmac.compare_digest(mac, _mac(secret, body)):
        raise _not_ours()
    return body


def _not_ours() -> UnauthorizedError:
    return UnauthorizedError("The token is malformed or incomplete.", hint="Request a new token.")


def _mac(secret: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, TOKEN_PREFIX.encode() + body, "sha256")


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), _CHECK_LENGTH)


def _base62(number: int, length: int) -> str:
    letters = ""
    for _ in range(length):
        number, rest = divmod(number, len(_ALPHABET))
        letters = _ALPHABET[rest] + letters
    return letters
