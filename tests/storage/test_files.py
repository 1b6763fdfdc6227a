"""The file server of a local store, over real sockets: its words, its headers, and what it does with rude callers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import pytest

from millpond.api.server import listen
from millpond.errors import InvalidError, StorageUnavailableError
from millpond.storage import files as file_server
from millpond.storage.local import FOOTER, Local
from tests.children import running
from tests.storage.backends import MINUTE, Backend
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

PATH = "tenants/acme/jobs/1/out.png"
BODY = bytes(range(256)) * 8
SHA256 = hashlib.sha256(BODY).hexdigest()


def problem(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    response = answer.json()
    assert response["status"] == answer.status_code
    assert response["type"] == f"/docs/problems/{response['code']}"
    return response


# Its words


async def test_a_refusal_is_precise(disk: Backend) -> None:
    await disk.put(PATH, BODY)
    get, put = disk.store.sign_get(PATH, lifetime=MINUTE), disk.sign_put(f"{PATH}.png", BODY, sha256=SHA256)
    response = problem(await disk.put(PATH, BODY))
    assert (response["status"], response["code"]) == (412, "artifact_stored")
    response = problem(await disk.send(get, url=get.url + "x"))
    assert (response["status"], response["code"]) == (403, "bad_signature")
    response = problem(await disk.send(put, BODY[:-1]))
    assert (response["status"], response["code"]) == (422, "artifact_mismatch")
    assert (response["field"], response["expected"], response["found"]) == ("size", 2048, 2047)
    response = problem(await disk.send(put, BODY + b"x"))
    assert (response["status"], response["code"], response["limit"]) == (413, "too_large", 2048)
    response = problem(await disk.send(put, BODY[::-1]))
    assert (response["status"], response["field"], response["expected"]) == (422, "sha256", SHA256)
    assert response["found"] == hashlib.sha256(BODY[::-1]).hexdigest()
    response = problem(await disk.send(put, BODY, headers={"Content-Type": "text/html"}))
    assert (response["status"], response["field"], response["expected"]) == (422, "Content-Type", "image/png")
    response = problem(await disk.send(get, headers={"Range": "bytes=9999-"}))
    assert (response["status"], response["code"], response["size"]) == (416, "range_not_satisfiable", 2048)
    response = problem(await disk.get("tenants/acme/nothing"))
    assert (response["status"], response["code"]) == (404, "not_found")
    response = problem(await disk.send(get, method="PATCH"))
    assert (response["status"], response["code"]) == (405, "method_not_allowed")
    assert response["allow"] == "GET, HEAD, OPTIONS, PUT"


async def test_an_expired_url_is_distinguished_from_a_wrong_one(disk: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    present = time.time()
    monkeypatch.setattr("millpond.storage.local.time.time", lambda: present - 120)
    late = disk.store.sign_get(PATH, lifetime=MINUTE)
    monkeypatch.undo()
    response = problem(await disk.send(late))
    assert (response["status"], response["code"]) == (403, "url_expired")
    assert response["expired_at"]
    assert problem(await disk.send(late, url=late.url + "x"))["code"] == "bad_signature"


async def test_nonsense_is_refused_and_never_a_fault_of_ours(disk: Backend) -> None:
    base = disk.store.url
    for target in (
        "/",
        "/x",
        "/x?signature=%ff",
        "/x?expires=1&expires=2&signature=x",
        "/x?a=1&b=2",
        "/%ff?signature=x",
        "/..%2f..%2fetc/passwd?signature=x",
        "/x?signature=" + "ä" * 10,
        "/x?" + "&".join(f"a{n}=1" for n in range(50)),
        "//x?expires=1&signature=x",
        "/x?expires=&signature=",
    ):
        for method in ("GET", "PUT", "HEAD"):
            answer = await disk.http.request(method, base + target)
            assert 400 <= answer.status_code < 500, (method, target)


async def test_a_path_that_was_signed_cannot_be_bent_on_the_way(disk: Backend) -> None:
    await disk.put(PATH, BODY)
    signed = disk.store.sign_get(PATH, lifetime=MINUTE)
    for bent in (PATH.replace("jobs", "jobs/../jobs"), f"./{PATH}", f"/{PATH}", PATH.replace("/1/", "/1//")):
        raw = urlsplit(signed.url)._replace(path=f"/{bent}")
        answer = await _raw(
            disk, f"GET {raw.path}?{raw.query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 403")


# Its headers


async def test_no_script_runs_in_what_is_served(disk: Backend) -> None:
    await disk.put(PATH, b"<script>alert(1)</script>", content_type="text/html")
    for answer in (await disk.get(PATH), await disk.get(PATH, headers={"Range": "bytes=0-3"}), await disk.get("x/y")):
        assert "sandbox" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "allow-scripts" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert (await disk.get(PATH)).headers["content-disposition"].startswith("attachment; ")


async def test_any_page_may_use_a_signed_url_and_none_with_credentials(disk: Backend) -> None:
    origin = {"Origin": "https://shop.test"}
    asked = await disk.http.options(
        disk.sign_put(PATH, BODY).url, headers=origin | {"Access-Control-Request-Method": "PUT"}
    )
    assert asked.status_code == 204
    assert {"GET", "HEAD", "PUT"} <= set(asked.headers["access-control-allow-methods"].split(", "))
    assert "Content-Type" in asked.headers["access-control-allow-headers"]
    put = await disk.send(disk.sign_put(PATH, BODY), BODY, headers=origin)
    got, refused = await disk.get(PATH, headers=origin), await disk.http.get(f"{disk.store.url}/x", headers=origin)
    for answer in (asked, put, got, refused):
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers
    assert "ETag" in got.headers["access-control-expose-headers"]


async def test_head_returns_all_but_the_bytes(disk: Backend) -> None:
    await disk.put(PATH, BODY)
    signed = disk.store.sign_get(PATH, lifetime=MINUTE)
    head, got = await disk.send(signed, method="HEAD"), await disk.send(signed)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-length", "content-type", "etag", "accept-ranges", "content-disposition", "last-modified"):
        assert head.headers[name] == got.headers[name]
    assert got.headers["content-length"] == str(len(BODY))
    assert got.headers["etag"] == f'"{SHA256}"'
    assert got.headers["cache-control"] == "private, no-cache"


async def test_a_part_is_only_of_the_file_that_one_has_begun_with(disk: Backend) -> None:
    await disk.put(PATH, BODY)
    part = {"Range": "bytes=0-9"}
    assert (await disk.get(PATH, headers=part | {"If-Range": f'"{SHA256}"'})).status_code == 206
    assert (await disk.get(PATH, headers=part | {"If-Range": '"another"'})).content == BODY
    for whole in ("bytes=0-1,5-6", "bytes=-", "lines=1-2", "bytes=5-2x"):
        answer = await disk.get(PATH, headers={"Range": whole})
        assert (answer.status_code, answer.content) == (200, BODY)
    for nowhere in ("bytes=5-2", "bytes=-0"):
        assert (await disk.get(PATH, headers={"Range": nowhere})).status_code == 416
    for tag in ("*", f'W/"{SHA256}"', f'"x", "{SHA256}"'):
        assert (await disk.get(PATH, headers={"If-None-Match": tag})).status_code == 304


async def test_it_says_that_it_lives(disk: Backend) -> None:
    answer = await disk.http.get(f"{disk.store.url}/healthz")
    assert (answer.status_code, answer.text) == (200, "ok")


# Rude callers


async def _raw(disk: Backend, data: bytes) -> bytes:
    """Bytes as they are, and what comes back until the server hangs up."""
    place = urlsplit(disk.store.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(data)
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()


def _head(signed: Any, *lines: str) -> bytes:
    place = urlsplit(signed.url)
    return "\r\n".join([f"PUT {place.path}?{place.query} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def left(store: Local) -> list[str]:
    return [path.name for path in (store.root / ".drafts").iterdir()] if store.root.exists() else []


async def test_a_body_that_stops_coming_is_given_up(disk: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_server, "IDLE_SECONDS", 0.2)
    signed = disk.sign_put(PATH, BODY)
    answer = await _raw(disk, _head(signed, "Content-Type: image/png", "Content-Length: 2048") + BODY[:100])
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code":"too_slow"' in answer
    assert await disk.store.head(PATH) is None
    assert left(disk.store) == []


async def test_a_body_that_only_trickles_is_given_up(disk: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_server, "GRACE_SECONDS", 0.3)
    place = urlsplit(disk.store.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(_head(disk.sign_put(PATH, BODY), "Content-Type: image/png", "Content-Length: 2048"))

    async def trickle() -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.01)

    trickling = asyncio.create_task(trickle())
    async with asyncio.timeout(PATIENCE):
        answer = await reader.readuntil(b"\r\n")
    trickling.cancel()
    writer.close()
    assert answer == b"HTTP/1.1 408 Request Timeout\r\n"
    assert left(disk.store) == []


async def test_a_body_without_end_is_cut_off(disk: Backend) -> None:
    signed = disk.sign_put(PATH, BODY)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65_536
            yield b"x" * 65_536

    with contextlib.suppress(httpx2.TransportError):  # it may see the line go dead before it reads why
        assert (await disk.send(signed, endless())).status_code == 413
    assert sent < 64 * 1024 * 1024
    assert await disk.store.head(PATH) is None
    assert left(disk.store) == []


async def test_who_hangs_up_leaves_nothing(disk: Backend) -> None:
    signed = disk.sign_put(PATH, BODY)
    place = urlsplit(disk.store.url)
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(_head(signed, "Content-Type: image/png", "Content-Length: 2048") + BODY[:100])
    await writer.drain()
    await _until(lambda: left(disk.store) != [])
    writer.close()
    await _until(lambda: left(disk.store) == [])
    assert await disk.store.head(PATH) is None


async def test_a_client_that_asks_first_is_answered_before_it_sends(disk: Backend) -> None:
    signed = disk.sign_put(PATH, BODY)
    lines = ("Content-Type: image/png", "Content-Length: 9999", "Expect: 100-continue", "Connection: close")
    answer = await _raw(disk, _head(signed, *lines))
    assert answer.startswith(b"HTTP/1.1 413")


async def _until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


# The disk


async def test_a_link_in_the_folder_leads_nowhere(disk: Backend, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    await disk.put("tenants/acme/in", BODY)
    (outside / "secret").write_bytes((disk.store.root / "tenants/acme/in").read_bytes())
    (disk.store.root / "tenants" / "link").symlink_to(outside)
    (disk.store.root / "tenants" / "acme" / "file").symlink_to(outside / "secret")
    for path in ("tenants/link/secret", "tenants/acme/file"):
        assert (await disk.get(path)).status_code == 404
        assert await disk.store.head(path) is None
    assert (await disk.put("tenants/link/new", BODY)).status_code == 422
    with pytest.raises(InvalidError):
        await disk.store.write("tenants/link/new", BODY)
    await disk.store.delete("tenants/link/secret")
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert [each.path for each in await disk.store.list()] == ["tenants/acme/in"]
    assert (await disk.put("tenants/acme/file", b"new")).status_code == 422
    await disk.store.write("tenants/acme/file", b"new")  # takes the place of the link itself
    assert (outside / "secret").stat().st_size == len(BODY) + FOOTER


async def test_a_file_is_no_folder_and_a_folder_no_file(disk: Backend) -> None:
    await disk.put("a/b", BODY)
    assert (await disk.put("a/b/c", BODY)).status_code == 422
    assert (await disk.put("a", BODY)).status_code == 422
    assert await disk.store.read("a/b") == BODY
    assert await disk.store.head("a") is None
    assert left(disk.store) == []


async def test_what_the_disk_has_cut_short_is_no_file(disk: Backend) -> None:
    await disk.put(PATH, BODY)
    file = disk.store.root / PATH
    whole = file.read_bytes()
    for broken in (whole[:-1], whole[:100], b"", whole[:-FOOTER], whole[1:], whole[:-FOOTER] + b"PSF1{".ljust(FOOTER)):
        file.write_bytes(broken)
        assert (await disk.get(PATH)).status_code == 404
        assert await disk.store.head(PATH) is None


async def test_an_empty_folder_is_removed_while_others_write_into_it(local: Local) -> None:
    async def write_and_remove(number: int) -> None:
        for _ in range(10):
            await local.write(f"a/b/{number}", BODY)
            await local.delete(f"a/b/{number}")

    await asyncio.gather(*(write_and_remove(number) for number in range(6)))
    assert [path.name for path in local.root.iterdir()] == [".drafts"]


async def test_files_are_listed_as_a_bucket_lists_them(local: Local) -> None:
    """By their whole paths: a slash comes after a dash, and before a letter."""
    paths = ["a-b", "a/1", "a/2-x", "a/2/y", "a/20", "ab"]
    for path in reversed(paths):
        await local.write(path, b"x")
    assert [each.path for each in await local.list()] == paths == sorted(paths)
    for start, path in enumerate(paths):
        assert [each.path for each in await local.list(after=path)] == paths[start + 1 :]


async def test_drafts_that_were_left_behind_are_swept(local: Local) -> None:
    await local.write(PATH, BODY)
    old, new = (local.root / ".drafts" / name for name in ("old", "new"))
    for draft in (old, new):
        draft.write_bytes(b"half")
    os.utime(old, (time.time() - 3600, time.time() - 3600))
    assert await local.tidy() == 1
    assert left(local) == ["new"]
    assert await local.read(PATH) == BODY


def test_the_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "files"
    stores = [Local(root, "http://files.test") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda store: store._secret(), stores))
    assert len(keys) == 1
    assert len(keys.pop()) == 32
    assert (root / ".key").stat().st_mode & 0o777 == 0o600
    assert root.stat().st_mode & 0o777 == 0o700
    assert left(stores[0]) == []


def test_nothing_is_signed_where_nobody_serves(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailableError, match="No file server is configured"):
        Local(tmp_path).sign_get(PATH, lifetime=MINUTE)


async def test_a_folder_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Local(tmp_path / "file" / "files", "http://files.test")
    with pytest.raises(StorageUnavailableError):
        await store.write(PATH, BODY)
    with pytest.raises(StorageUnavailableError):
        store.sign_get(PATH, lifetime=timedelta(minutes=1))


async def test_a_full_disk_is_reported_and_leaves_nothing(disk: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    signed = disk.sign_put(PATH, BODY)
    monkeypatch.setattr("millpond.storage.local.os.fsync", full)
    response = problem(await disk.send(signed, BODY))
    assert (response["status"], response["code"], response["retryable"]) == (503, "storage_unavailable", True)
    monkeypatch.undo()
    assert await disk.store.head(PATH) is None
    assert left(disk.store) == []


# A process of its own


@contextlib.contextmanager
def process(root: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`millpond files` on a socket that stays ours, as `millpond up` starts it."""
    sock = listen("127.0.0.1", 0)
    words = [sys.executable, "-m", "millpond", "files", "--socket", str(sock.fileno())]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MILLPOND_")}
    fields = kept | {"MILLPOND_STORAGE": str(root)}
    with sock, running(words, env=fields, pass_fds=[sock.fileno()], stdout=subprocess.PIPE) as made:
        yield made, f"http://127.0.0.1:{sock.getsockname()[1]}"


async def test_a_kill_in_the_middle_of_an_upload_leaves_nothing_to_be_seen(tmp_path: Path) -> None:
    root = tmp_path / "files"
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        with process(root) as (server, url):
            store = Local(root, url)
            disk = Backend("local", store, http)
            assert (await disk.put("before", BODY)).status_code == 200
            half = asyncio.Event()

            async def body() -> AsyncIterator[bytes]:
                yield b"x" * 3_000_000
                half.set()
                await asyncio.sleep(3600)

            sending = asyncio.create_task(disk.send(disk.sign_put(PATH, b"x" * 4_000_000), body()))
            await half.wait()
            await _until(lambda: any(path.stat().st_size for path in (root / ".drafts").iterdir()))
            server.kill()
            assert server.wait(PATIENCE) == -signal.SIGKILL
            sending.cancel()
            await asyncio.wait([sending])
            assert await store.head(PATH) is None
            assert [each.path for each in await store.list()] == ["before"]
            for draft in (root / ".drafts").iterdir():
                os.utime(draft, (0, 0))
        with process(root) as (_, url):
            disk.store = Local(root, url)
            assert (await disk.put(PATH, BODY)).status_code == 200
            assert (await disk.get("before")).content == BODY
            assert left(disk.store) == []  # what was left is swept as it starts
