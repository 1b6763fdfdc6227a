"""The vault: secrets that must be read again are stored encrypted, with a key that is not in the database.

A sealed secret names the key that sealed it, and is bound to what it is about: copied to another row it does not open.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import secrets
import tempfile
from dataclasses import dataclass
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

SQL: Final = queries("millpond.engine.webhooks", "vault")

KEY_BYTES: Final = 32
KEY_FILE: Final = "vault.key"
_VERSION: Final = b"\x01"
_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_SET: Final = "Set MILLPOND_ENCRYPTION_KEY in every process to the key that the secrets were encrypted with."


class Vault:
    """Keys that open secrets; the first one also seals them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise SettingsError(f"An encryption key must have {KEY_BYTES} bytes.", field="encryption_key")
        self._ciphers = {_fingerprint(key): AESGCM(key) for key in keys}
        self.fingerprints = tuple(self._ciphers)
        """Identify the keys; nothing can be opened with them."""

    def __repr__(self) -> str:
        return f"Vault({', '.join(mark.hex() for mark in self.fingerprints)})"

    @classmethod
    def from_text(cls, text: str) -> Vault:
        """Keys in base64, separated by commas."""
        try:
            return cls([base64.b64decode(part.strip(), validate=True) for part in text.split(",")])
        except binascii.Error:  # The error must not quote the key.
            pass
        raise SettingsError(
            "The encryption key is not valid base64.",
            field="encryption_key",
            hint="Generate a key with: python -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'",
        )

    @classmethod
    def read(cls, path: Path) -> Vault:
        """The key in a file, which must exist."""
        return cls.from_text(path.read_text("ascii"))

    @classmethod
    def at(cls, path: Path) -> Vault:
        """The key in a file that only its owner may read. The first process that needs it creates the file."""
        try:
            return cls.read(path)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        key = base64.b64encode(secrets.token_bytes(KEY_BYTES))
        # Only the owner can read a temporary file.
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-") as made:
            made.write(key + b"\n")
            made.flush()
            os.fsync(made.fileno())
            with contextlib.suppress(FileExistsError):  # another process was quicker
                os.link(made.name, path)
        return cls.read(path)

    def seal(self, text: str, about: str) -> bytes:
        """Encrypt a secret, and bind it to what it is about."""
        mark = self.fingerprints[0]
        nonce = secrets.token_bytes(_NONCE_BYTES)
        head = _VERSION + mark
        return head + nonce + self._ciphers[mark].encrypt(nonce, text.encode(), head + about.encode())

    def open(self, sealed: bytes, about: str) -> str:
        """Decrypt a secret, if it was sealed by one of the keys and is about this."""
        end = len(_VERSION) + _ID_BYTES
        head, nonce, rest = sealed[:end], sealed[end : end + _NONCE_BYTES], sealed[end + _NONCE_BYTES :]
        cipher = self._ciphers.get(head[len(_VERSION) :])
        if cipher is None or not head.startswith(_VERSION):
            raise VaultError("A secret was encrypted with an unknown key.", hint=_SET)
        try:
            return cipher.decrypt(nonce, rest, head + about.encode()).decode()
        except InvalidTag as error:
            raise VaultError("A secret in the database is corrupted.") from error


def open_vault(settings: Settings, *, is_development: bool) -> Vault | Callable[[], Vault] | None:
    """The keys of the settings; otherwise the key file in the data directory, or None if there is no key.

    Only in development is the file created, with the first secret. Elsewhere a key on the disk of one machine would
    encrypt secrets that no other machine can decrypt, and would be lost with that disk.
    """
    if settings.encryption_key is not None:
        return Vault.from_text(settings.encryption_key)
    path = settings.data_dir / KEY_FILE
    if is_development:
        return partial(Vault.at, path)
    return partial(Vault.read, path) if path.exists() else None


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """Whether a process has an encryption key, and whether its installation has encrypted secrets with one."""

    has_key: bool
    has_secrets: bool


class Safe:
    """The vault of an installation, checked when it is first used: all its processes must have the same key."""

    def __init__(self, vault: Vault | Callable[[], Vault] | None, db: Database) -> None:
        self.vault = vault
        self._db = db
        self._is_checked = False

    async def opened(self) -> Vault:
        vault = self.vault = self._load()
        if not self._is_checked:
            await self._db.run(SQL["make_known"], vault.fingerprints[0], list(vault.fingerprints))
            await self._check(vault)
            self._is_checked = True
        return vault

    async def status(self) -> KeyStatus:
        """Whether there is a key, and secrets. Raises if the key is not the one in use. Writes nothing."""
        vault = None if self.vault is None else self._load()
        return KeyStatus(has_key=vault is not None, has_secrets=await self._check(vault))

    async def _check(self, vault: Vault | None) -> bool:
        """Check the key against the fingerprint in the database; returns whether there is one."""
        row = await self._db.run(SQL["known"])
        if row is not None and vault is not None and bytes(row["fingerprint"]) not in vault.fingerprints:
            raise VaultError("The secrets of this installation were encrypted with another key.", hint=_SET)
        return row is not None

    def _load(self) -> Vault:
        if isinstance(self.vault, Vault):
            return self.vault
        if self.vault is None:
            raise VaultError(
                "Webhook secrets are disabled: there is no encryption key.",
                hint="Set MILLPOND_ENCRYPTION_KEY in every process, or use Engine.open(…, vault=Vault.at(path)).",
            )
        try:
            return self.vault()
        except OSError as error:
            raise VaultError(
                f"The file of the encryption key can be neither read nor created: {error.strerror}.",
                hint="Set MILLPOND_ENCRYPTION_KEY.",
            ) from error


def _fingerprint(key: bytes) -> bytes:
    return hashlib.sha256(b"millpond vault\0" + key).digest()[:_ID_BYTES]
