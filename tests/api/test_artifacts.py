"""Files over HTTP: announced at the API, sent to the file server, and seen by nobody else."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from millpond.client import AsyncClient, Client
from millpond.engine.engine import Engine
from millpond.errors import (
    ArtifactMissingError,
    InvalidError,
    NotFoundError,
    StorageUnavailableError,
    TooLargeError,
    UnavailableError,
)
from millpond.retry import Backoff
from millpond.storage.files import FileRequest
from tests.api.sites import Site, running_site
from tests.factories import ACCOUNT, STRANGER, TENANT
from tests.product import app
from tests.storage.backends import file_server
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from millpond.storage.local import Local
    from millpond.store.db import Database
    from tests.factories import Factory

BODY = b"some bytes"
SHA256 = hashlib.sha256(BODY).hexdigest()
CAT = {"name": "cat.png", "content_type": "image/png", "size": len(BODY)}


@pytest.fixture
async def site(engine: Engine, files: Local) -> AsyncIterator[Site]:
    """An API with a file server beside it."""
    async with file_server(files), running_site(engine) as running:
        yield running


async def sent(signed: dict[str, Any], content: bytes | None = None) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return await http.request(signed["method"], signed["url"], headers=signed["headers"], content=content)


async def test_a_file_is_announced_sent_and_got(site: Site) -> None:
    made = await site.post("/v1/artifacts", CAT | {"sha256": SHA256})
    assert made.status_code == 201, made.text
    response = made.json()
    assert response["id"].startswith("art_")
    assert (
        response.items() >= {**CAT, "sha256": SHA256, "tenant": TENANT, "account": ACCOUNT, "stored_at": None}.items()
    )
    assert response["download"] is None
    assert response["upload"]["headers"] == {"Content-Type": "image/png"}
    early = (await site.get(f"/v1/artifacts/{response['id']}")).json()
    assert (early["stored_at"], early["download"]) == (None, None)
    assert (await sent(response["upload"], BODY)).status_code == 200
    known = (await site.get(f"/v1/artifacts/{response['id']}")).json()
    assert known["stored_at"] is not None
    assert "upload" not in known
    assert "path" not in known
    got = await sent(known["download"])
    assert (got.status_code, got.content, got.headers["content-type"]) == (200, BODY, "image/png")
    assert "cat.png" in got.headers["content-disposition"]


async def test_nobody_else_finds_it(site: Site) -> None:
    made = (await site.post("/v1/artifacts", CAT)).json()
    path = f"/v1/artifacts/{made['id']}"
    for key in (await site.key(account="bob"), await site.key(tenant=STRANGER)):
        assert (await site.get(path, key=key)).status_code == 404
    assert (await site.get(path, key=None)).status_code == 401
    assert (await site.get("/v1/artifacts/nonsense")).status_code == 404
    assert (await site.order("GET", path)).json()["field"] == "tenant"
    assert (await site.order("GET", f"{path}?tenant={TENANT}")).status_code == 200
    assert (await site.order("GET", f"{path}?tenant={STRANGER}")).status_code == 404


async def test_what_cannot_be_uploaded_is_refused_with_its_field(site: Site) -> None:
    for wrong, status, field in (
        ({"size": -1}, 422, "size"),
        ({"size": 6 * 1024**3}, 413, "size"),
        ({"content_type": "png\r\nX: y"}, 422, "content_type"),
        ({"name": ""}, 422, "name"),
        ({"name": "a\u0007b"}, 422, "name"),
        ({"sha256": "x"}, 422, "sha256"),
        ({"account": "bob"}, 403, "account"),
        ({"colour": "red"}, 422, "colour"),
    ):
        answer = await site.post("/v1/artifacts", CAT | wrong)
        assert (answer.status_code, answer.json()["field"]) == (status, field), answer.text


async def test_without_storage_it_is_said_so(db: Database) -> None:
    async with running_site(Engine(db, app)) as site:
        answer = await site.post("/v1/artifacts", CAT)
    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
    assert answer.headers["retry-after"] == "1"


async def test_a_jobs_files_are_listed_for_its_owner_and_for_a_browser(site: Site, make: Factory) -> None:
    lease = await make.leased()
    saved = await site.engine.artifacts.save(
        TENANT,
        ACCOUNT,
        name="out.png",
        content_type="image/png",
        data=BODY,
        job_id=lease.job_id,
        epoch=lease.epoch,
    )
    job_id = (await site.get("/v1/jobs")).json()["data"][0]["id"]
    (listed,) = (await site.get(f"/v1/jobs/{job_id}/artifacts")).json()["data"]
    assert (listed["id"], listed["job_id"], listed["size"]) == (saved.id, job_id, len(BODY))
    assert (await sent(listed["download"])).content == BODY
    token = (await site.post(f"/v1/jobs/{job_id}/tokens", {})).json()["token"]
    by_token = await site.get(f"/v1/jobs/{job_id}/artifacts?token={token}", key=None)
    assert [each["id"] for each in by_token.json()["data"]] == [saved.id]
    assert (await site.get(f"/v1/jobs/{job_id}/artifacts", key=await site.key(account="bob"))).status_code == 404
    assert (await site.get("/v1/jobs/job_00000000000000000000000000/artifacts")).status_code == 404
    await make.finish(lease)


# The SDK


async def test_a_client_uploads_and_downloads(site: Site, tmp_path: Path) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(BODY * 300_000)
    async with AsyncClient(site.url, site.client_key) as client:
        made = await client.upload(picture)
        assert (made.name, made.content_type, made.size) == ("cat.png", "image/png", 3_000_000)
        assert made.sha256 == hashlib.sha256(picture.read_bytes()).hexdigest()
        assert await client.download(made.id) == picture.read_bytes()
        target = tmp_path / "copy.png"
        assert await client.download(made, target) == b""
        assert target.read_bytes() == picture.read_bytes()
        words = await client.upload(b"hello", name="note.txt")
        assert (words.content_type, await client.download(words)) == ("text/plain", b"hello")
        assert (await client.upload(b"")).content_type == "application/octet-stream"
        job = await client.submit("free", {"image": made.id})
        assert await client.artifacts(job) == []
        with pytest.raises(NotFoundError):
            await client.artifact("art_00000000000000000000000000")
        with pytest.raises(InvalidError, match=r"Cannot read"):
            await client.upload(tmp_path / "nowhere.png")


async def test_an_upload_whose_response_was_lost_is_found_stored(
    site: Site, files: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends the file again, and storage refuses to replace the one that it has."""
    monkeypatch.setattr("millpond.client.requests._BACKOFF", Backoff(first=timedelta(0)))
    answer, lost = FileRequest.reply, 0

    async def lose_the_first(request: FileRequest, status: int, *rest: Any, **options: Any) -> None:
        nonlocal lost
        if request.method == "PUT" and not lost:
            lost += 1
            raise StorageUnavailableError
        await answer(request, status, *rest, **options)

    monkeypatch.setattr(FileRequest, "reply", lose_the_first)
    async with AsyncClient(site.url, site.client_key) as client:
        made = await client.upload(BODY, name="cat.png")
        assert made.stored_at is not None
        assert await client.download(made) == BODY
    assert lost == 1


async def test_a_blocking_client_does_the_same(site: Site, tmp_path: Path) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(BODY)

    def work() -> bytes:
        with Client(site.url, site.client_key) as client:
            made = client.upload(picture)
            client.download(made, tmp_path / "copy.png")
            return client.download(made.id)

    assert await asyncio.to_thread(work) == BODY
    assert (tmp_path / "copy.png").read_bytes() == BODY


async def test_a_client_reports_what_storage_refuses(
    site: Site, files: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second try would come when nobody waits any more, so there is none.
    monkeypatch.setattr(
        "millpond.client.requests._BACKOFF", Backoff(first=timedelta(days=1), longest=timedelta(days=1), jitter=0)
    )
    async with AsyncClient(site.url, site.client_key) as client:
        made = await client.upload(BODY)
        await files.delete((await site.engine.artifacts.read(TENANT, made.id)).path)
        with pytest.raises(NotFoundError):
            await client.download(made)
        with pytest.raises(NotFoundError):
            await client.download(made, tmp_path / "copy")
        assert list(tmp_path.iterdir()) == []
        files.size_max = 3
        with pytest.raises(TooLargeError):
            await client.upload(BODY)
        files.size_max = 100
        files.url = "http://127.0.0.1:9"
        with pytest.raises(UnavailableError, match="Storage at"):
            await client.upload(BODY)
        unsent = (await site.post("/v1/artifacts", CAT)).json()["id"]
        with pytest.raises(ArtifactMissingError):
            await client.download(unsent)
