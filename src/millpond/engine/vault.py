"""The vault: secrets that must be told again are kept encrypted, with a key that is not in the database.

What is sealed names the key that sealed it, and is bound to what it is about: moved to another row it does not open.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import secrets
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from millpond.errors import SettingsError, VaultError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from millpond.settings import Settings
    from millpond.store.db import Database

SQL: Final = queries("millpond.engine", "vault")

KEY_BYTES: Final = 32
KEY_FILE: Final = "vault.key"
_VERSION: Final = b"\x01"
_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_SET: Final = "Set MILLPOND_ENCRYPTION_KEY to the key that they were encrypted with, for every process."


class Vault:
    """Keys to seal and open secrets with; the first one seals."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise SettingsError(f"A key to encrypt with has {KEY_BYTES} bytes.", field="encryption_key")
        self._ciphers = {_fingerprint(key): AESGCM(key) for key in keys}
        self.fingerprints = tuple(self._ciphers)
        """By which the keys are told apart; nothing can be opened with them."""

    def __repr__(self) -> str:
        return f"Vault({', '.join(mark.hex() for mark in self.fingerprints)})"

    @classmethod
    def from_text(cls, text: str) -> Vault:
        """Keys in base64 with commas between them."""
        try:
            return cls([base64.b64decode(part.strip(), validate=True) for part in text.split(",")])
        except binascii.Error:  # What it is must not be told.
            pass
        raise SettingsError(
            "It is not base64.",
            field="encryption_key",
            hint="Make one with: python -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'",
        )

    @classmethod
    def at(cls, path: Path) -> Vault:
        """The key in a file, which nobody else may read; made when it is first asked for, once among many processes."""
        try:
            return cls.from_text(path.read_text("ascii"))
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        key = base64.b64encode(secrets.token_bytes(KEY_BYTES))
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-") as made:  # its owner alone reads it
            made.write(key + b"\n")
            made.flush()
            os.fsync(made.fileno())
            with contextlib.suppress(FileExistsError):  # another process was quicker
                os.link(made.name, path)
        return cls.from_text(path.read_text("ascii"))

    def seal(self, text: str, about: str) -> bytes:
        """Encrypt a secret that is about something."""
        mark = self.fingerprints[0]
        nonce = secrets.token_bytes(_NONCE_BYTES)
        head = _VERSION + mark
        return head + nonce + self._ciphers[mark].encrypt(nonce, text.encode(), head + about.encode())

    def open(self, sealed: bytes, about: str) -> str:
        """The secret, if it was sealed by one of the keys and is about this."""
        end = len(_VERSION) + _ID_BYTES
        head, nonce, rest = sealed[:end], sealed[end : end + _NONCE_BYTES], sealed[end + _NONCE_BYTES :]
        cipher = self._ciphers.get(head[len(_VERSION) :])
        if cipher is None or not head.startswith(_VERSION):
            raise VaultError("A secret was encrypted with a key that is not here.", hint=_SET)
        try:
            return cipher.decrypt(nonce, rest, head + about.encode()).decode()
        except InvalidTag as error:
            raise VaultError("A secret in the database is not what was put there.") from error


def open_vault(settings: Settings) -> Vault | Callable[[], Vault]:
    """The keys that are set; else the one in the data directory, which is made when there is a secret to keep."""
    if settings.encryption_key is not None:
        return Vault.from_text(settings.encryption_key)
    return partial(Vault.at, settings.data_dir / KEY_FILE)


class Safe:
    """The vault of an installation, checked when it is first used: all its processes must have the same key."""

    def __init__(self, vault: Vault | Callable[[], Vault] | None, db: Database) -> None:
        self.vault = vault
        self._db = db
        self._is_checked = False

    async def opened(self) -> Vault:
        vault = self.vault = self._found()
        if not self._is_checked:
            await self._db.run(SQL["make_known"], vault.fingerprints[0], list(vault.fingerprints))
            row = await self._db.run(SQL["known"])
            if bytes(row["fingerprint"]) not in vault.fingerprints:
                raise VaultError("The secrets of this installation were encrypted with another key.", hint=_SET)
            self._is_checked = True
        return vault

    def _found(self) -> Vault:
        if isinstance(self.vault, Vault):
            return self.vault
        if self.vault is None:
            raise VaultError(
                "This engine was opened without a key to encrypt secrets with.",
                hint="Set MILLPOND_ENCRYPTION_KEY, or Engine.open(…, vault=Vault.at(path)).",
            )
        try:
            return self.vault()
        except OSError as error:
            raise VaultError(
                f"There is no key to encrypt secrets with, and none can be made: {error.strerror}.",
                hint="Set MILLPOND_ENCRYPTION_KEY.",
            ) from error


def _fingerprint(key: bytes) -> bytes:
    return hashlib.sha256(b"millpond vault\0" + key).digest()[:_ID_BYTES]
