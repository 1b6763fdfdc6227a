"""Credentials: how keys and browser tokens look, and whether one that is shown can be ours. Nothing is looked up here.

A key is ``mp_<scope>_``, 32 random bytes, and a checksum: a slip of the pen is seen without a query, and scanners of
public code can find what should not be there. A token carries what it allows, signed.
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
_WORKER_LENGTH: Final = 54  # 40 bytes in base 62: with all around it a worker's token has 64 letters
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
    """Whether it has the form of a key, to the last letter."""
    return _KEY.fullmatch(text) is not None and _checksum(text[:-_CHECK_LENGTH]) == text[-_CHECK_LENGTH:]


def new_worker_token() -> str:
    """What a worker of the fleet comes with, once it is registered."""
    text = WORKER_PREFIX + _base62(int.from_bytes(secrets.token_bytes(_WORKER_BYTES)), _WORKER_LENGTH)
    return text + _checksum(text)


def is_worker_token(text: str) -> bool:
    """Whether it has the form of a worker's token, to the last letter."""
    return _WORKER.fullmatch(text) is not None and _checksum(text[:-_CHECK_LENGTH]) == text[-_CHECK_LENGTH:]


def digest(key: str) -> bytes:
    """As which a key is kept. Its random part is too long to be guessed, so there is no need for a slow one."""
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


def hint(key: str) -> str:
    """Enough of a key to tell it from others, and no help to guess it."""
    return f"{key[: key.rindex('_') + 1 + _SHOWN]}…{key[-_SHOWN:]}"


@dataclass(frozen=True, slots=True)
class Token:
    """What a browser token says: who may do what with which job, until when."""

    tenant: str
    job_id: UUID
    scopes: frozenset[str]
    ends: float

    def sign(self, secret: bytes) -> str:
        bits = sum(_BITS[name] for name in self.scopes)
        body = _HEAD.pack(_VERSION, bits, round(self.ends * 1000), self.job_id.bytes) + self.tenant.encode()
        return TOKEN_PREFIX + base64.urlsafe_b64encode(body + _mac(secret, body)).rstrip(b"=").decode()

    @classmethod
    def read(cls, text: str, secret: bytes) -> Token:
        """What a token says, if we have signed it."""
        body = _signed_body(text.removeprefix(TOKEN_PREFIX), secret)
        version, bits, ends, job_id = _HEAD.unpack_from(body)
        if version != _VERSION:
            raise _not_ours()
        scopes = frozenset(name for name, bit in _BITS.items() if bits & bit)
        return cls(body[_HEAD.size :].decode(), UUID(bytes=job_id), scopes, ends / 1000)


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    given = frozenset(scopes)
    if not given or not given <= _BITS.keys():
        raise InvalidError(f"It must name one or more of {', '.join(_BITS)}.", field="scopes")
    return given


def _signed_body(letters: str, secret: bytes) -> bytes:
    if len(letters) > _LETTERS_MAX or not letters.isascii():
        raise _not_ours()
    try:
        whole = base64.b64decode(letters + "=" * (-len(letters) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise _not_ours() from None
    body, mac = whole[:-_MAC_LENGTH], whole[-_MAC_LENGTH:]
    if len(body) <= _HEAD.size or not hmac.compare_digest(mac, _mac(secret, body)):
        raise _not_ours()
    return body


def _not_ours() -> UnauthorizedError:
    return UnauthorizedError("It is not a token of ours, or not all of one.", hint="Ask for a new one.")


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
