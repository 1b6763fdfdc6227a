"""What is particular about a bucket: keys that come and go, and errors of a server that is not there."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from millpond.engine.engine import Engine
from millpond.errors import ArtifactMismatchError, ArtifactMissingError, StorageUnavailableError
from millpond.settings import Settings
from millpond.storage import open_storage
from millpond.storage.s3 import S3
from tests.doubles.careless_bucket import careless_bucket
from tests.factories import ACCOUNT, TENANT
from tests.product import app
from tests.storage.backends import MINUTE, Backend
from tests.storage.seaweedfs import BUCKET, KEYS, SeaweedFS, free_ports

if TYPE_CHECKING:
    import httpx2

    from millpond.store.db import Database

BODY = b"some bytes"
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def keys_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret_key)


async def test_the_settings_lead_to_the_bucket(seaweedfs: SeaweedFS, keys_in_environment: None) -> None:
    store = open_storage(Settings(storage=seaweedfs.url("some/prefix"), upload_max=100))
    assert isinstance(store, S3)
    assert store.size_max == 100
    await store.write("x", BODY)
    assert await seaweedfs.store().read("some/prefix/x") == BODY


async def test_a_bucket_that_is_not_there_is_reported(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.storage.s3._RETRY", {"max_retries": 0})
    gone = S3(BUCKET, endpoint=f"http://127.0.0.1:{free_ports(1)[0]}", keys=KEYS)
    wrong = S3(BUCKET, endpoint=seaweedfs.endpoint, keys=type(KEYS)("testkey", "wrong"))
    for store in (gone, wrong):
        for call in (store.head("x"), store.read("x"), store.write("x", BODY), store.list(), store.delete("x")):
            with pytest.raises(StorageUnavailableError) as raised:
                await call
            assert KEYS.secret_key not in str(raised.value)


async def test_whether_uploads_can_replace_files_is_tried(seaweedfs: SeaweedFS) -> None:
    store = seaweedfs.store(f"test-{uuid4().hex[:8]}")
    assert [await store.refuses_replacement() for _ in range(2)] == [True, True]
    with careless_bucket() as url:
        keys = {"AWS_ACCESS_KEY_ID": KEYS.access_key, "AWS_SECRET_ACCESS_KEY": KEYS.secret_key}
        assert not await S3.from_url(url, keys).refuses_replacement()


async def test_artifacts_live_in_a_bucket_as_they_do_in_a_folder(
    db: Database, seaweedfs: SeaweedFS, http: httpx2.AsyncClient
) -> None:
    engine = Engine(db, app, storage=seaweedfs.store(f"test-{uuid4().hex[:8]}"))
    artifacts, backend = engine.artifacts, Backend("s3", engine.artifacts.store, http)
    record, upload = await artifacts.upload(
        TENANT, ACCOUNT, name="cat.png", content_type="image/png", size=len(BODY), sha256=SHA256
    )
    with pytest.raises(ArtifactMissingError):
        await artifacts.confirm(TENANT, record.id)
    assert (await backend.send(upload, BODY)).status_code == 200
    with pytest.raises(ArtifactMismatchError):
        await artifacts.confirm(TENANT, record.id, sha256="0" * 64)
    stored = await artifacts.confirm(TENANT, record.id, size=len(BODY), sha256=SHA256)
    assert (stored.sha256, await artifacts.fetch(stored)) == (SHA256, BODY)
    assert (await backend.send(artifacts.sign_get(stored, MINUTE))).content == BODY
    # A checksum that was not bound is looked at.
    loose, upload = await artifacts.upload(TENANT, ACCOUNT, name="x", content_type="text/plain", size=len(BODY))
    await backend.send(upload, BODY)
    with pytest.raises(ArtifactMismatchError) as raised:
        await artifacts.confirm(TENANT, loose.id, sha256="0" * 64)
    assert raised.value.details["found"] == SHA256
    assert (await artifacts.confirm(TENANT, loose.id, sha256=SHA256)).sha256 == SHA256
    await artifacts.delete(stored)
    assert await artifacts.store.head(record.path) is None
    await artifacts.store.write("tenants/acme/uploads/1/stray", BODY)
    assert await artifacts.sweep(stray_age=-MINUTE) == 1
    assert [each.path for each in await artifacts.store.list()] == [loose.path]
