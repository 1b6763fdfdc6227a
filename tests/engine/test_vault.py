"""The vault: what is sealed opens with its key, for what it is about, and in no other way."""

from __future__ import annotations

import asyncio
import base64
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from millpond.engine.webhooks.vault import KeyStatus, Safe, Vault, open_vault
from millpond.errors import SettingsError, VaultError
from millpond.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from millpond.store.db import Database

OLD, NEW, OTHER = (bytes([n]) * 32 for n in (1, 2, 3))


def text(*keys: bytes) -> str:
    return ",".join(base64.b64encode(key).decode() for key in keys)


def test_what_is_sealed_opens_and_is_not_to_be_seen() -> None:
    vault = Vault([OLD])
    sealed = vault.seal("whsec_abc", "hook:1")
    assert vault.open(sealed, "hook:1") == "whsec_abc"
    assert b"whsec" not in sealed
    assert vault.seal("whsec_abc", "hook:1") != sealed


def test_it_does_not_open_for_something_else_nor_when_it_was_changed() -> None:
    vault = Vault([OLD])
    sealed = vault.seal("whsec_abc", "hook:1")
    with pytest.raises(VaultError, match="is corrupted"):
        vault.open(sealed, "hook:2")
    for place in range(len(sealed)):
        broken = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises(VaultError):
            vault.open(broken, "hook:1")
    for cut in (b"", sealed[:5], sealed[:25]):
        with pytest.raises(VaultError):
            vault.open(cut, "hook:1")


def test_the_first_key_seals_and_each_opens_its_own() -> None:
    sealed = Vault([OLD]).seal("secret", "x")
    both = Vault.from_text(text(NEW, OLD))
    assert both.open(sealed, "x") == "secret"
    assert Vault([NEW]).open(both.seal("secret", "x"), "x") == "secret"
    with pytest.raises(VaultError, match="unknown key") as caught:
        Vault([NEW]).open(sealed, "x")
    assert "MILLPOND_ENCRYPTION_KEY" in str(caught.value)


@pytest.mark.parametrize("given", ["", "nonsense!", base64.b64encode(b"short").decode(), text(OLD) + ","])
def test_keys_that_are_none_are_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Vault.from_text(given)
    assert caught.value.field == "encryption_key"
    assert not given or given not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or given not in str(caught.value.__context__)


def test_a_vault_shows_nothing_of_its_keys() -> None:
    shown = repr(Vault([OLD]))
    assert OLD.hex() not in shown
    assert text(OLD) not in shown


def test_a_key_file_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "vault.key"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: Vault.at(path), range(8)))
    assert len({vault.fingerprints for vault in made}) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["vault.key"]


def test_the_key_that_is_set_goes_before_the_one_in_the_data_directory(tmp_path: Path) -> None:
    given = open_vault(Settings(encryption_key=text(OLD), data_dir=tmp_path), is_development=False)
    assert isinstance(given, Vault)
    assert given.fingerprints == Vault([OLD]).fingerprints
    assert list(tmp_path.iterdir()) == []


async def test_a_key_is_made_when_there_is_a_secret_to_keep(db: Database, tmp_path: Path) -> None:
    safe = Safe(open_vault(Settings(data_dir=tmp_path), is_development=True), db)
    assert list(tmp_path.iterdir()) == []
    assert (await safe.opened()).fingerprints == Vault.at(tmp_path / "vault.key").fingerprints
    (tmp_path / "file").write_text("")
    with pytest.raises(VaultError, match="neither read nor created"):
        await Safe(open_vault(Settings(data_dir=tmp_path / "file"), is_development=True), db).opened()


async def test_all_processes_of_an_installation_have_the_same_key(db: Database) -> None:
    first = Safe(Vault([OLD]), db)
    assert await asyncio.gather(first.opened(), first.opened()) == [first.vault] * 2
    with pytest.raises(VaultError, match="another key") as caught:
        await Safe(Vault([OTHER]), db).opened()
    assert "MILLPOND_ENCRYPTION_KEY" in str(caught.value)
    await Safe(Vault([NEW, OLD]), db).opened()
    with pytest.raises(VaultError, match="another key"):
        await Safe(Vault([OLD]), db).opened()
    await Safe(Vault([NEW]), db).opened()


async def test_without_a_key_nothing_is_kept(db: Database) -> None:
    with pytest.raises(VaultError, match="Webhook secrets are disabled"):
        await Safe(None, db).opened()


def test_outside_development_no_key_is_made_and_one_that_is_there_is_used(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert open_vault(settings, is_development=False) is None
    made = Vault.at(tmp_path / "vault.key")
    found = open_vault(settings, is_development=False)
    assert callable(found)
    assert found().fingerprints == made.fingerprints
    (tmp_path / "vault.key").unlink()
    with pytest.raises(FileNotFoundError):
        found()
    assert list(tmp_path.iterdir()) == []


async def test_the_status_of_a_key_is_known_before_it_is_used(db: Database) -> None:
    assert await Safe(None, db).status() == KeyStatus(has_key=False, has_secrets=False)
    assert await Safe(Vault([OTHER]), db).status() == KeyStatus(has_key=True, has_secrets=False)
    await Safe(Vault([OLD]), db).opened()
    assert await Safe(None, db).status() == KeyStatus(has_key=False, has_secrets=True)
    assert await Safe(Vault([NEW, OLD]), db).status() == KeyStatus(has_key=True, has_secrets=True)
    with pytest.raises(VaultError, match="another key"):
        await Safe(Vault([OTHER]), db).status()
    await Safe(Vault([OLD]), db).opened()  # asking has changed nothing
