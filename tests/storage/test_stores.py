"""What every store must do, tried on a folder and on a real S3 server."""

from __future__ import annotations

import asyncio
import hashlib
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from millpond.errors import InvalidError, NotFoundError, TooLargeError
from tests.storage.backends import MINUTE, Backend
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.storage import Storage

PATH = "tenants/acme/jobs/1/out.png"
BODY = bytes(range(256)) * 8
SHA256 = hashlib.sha256(BODY).hexdigest()
OTHER = "0" * 64

REFUSED = range(400, 500)


def changed(url: str, **query: str) -> str:
    """The URL with other values of its parameters."""
    place = urlsplit(url)
    return place._replace(query=urlencode(dict(parse_qsl(place.query)) | query)).geturl()


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


# In and out


async def test_what_is_put_by_a_signed_url_is_got_by_one(backend: Backend) -> None:
    put = await backend.put(PATH, BODY, sha256=SHA256)
    assert put.status_code == 200, put.text
    got = await backend.get(PATH)
    assert (got.status_code, got.content) == (200, BODY)
    assert got.headers["content-type"] == "image/png"
    assert put.headers["etag"] == got.headers["etag"]


async def test_a_signed_request_says_how_it_must_be_sent_and_until_when(backend: Backend) -> None:
    signed = backend.sign_put(PATH, BODY)
    assert signed.method == "PUT"
    assert signed.headers["Content-Type"] == "image/png"
    left = signed.expires_at - datetime.now(UTC)
    assert timedelta(seconds=50) < left <= MINUTE
    assert backend.store.sign_get(PATH, lifetime=MINUTE).headers == {}


async def test_a_stored_file_cannot_be_put_again(backend: Backend) -> None:
    signed = backend.sign_put(PATH, BODY, size=None)
    assert (await backend.send(signed, BODY)).status_code == 200
    same, other = await backend.send(signed, BODY), await backend.send(signed, b"other")
    assert (same.status_code, other.status_code) == (412, 412)
    assert (await backend.put(PATH, b"another")).status_code == 412  # by another URL
    assert (await backend.get(PATH)).content == BODY


async def test_a_client_cannot_leave_out_that_it_replaces_nothing(backend: Backend) -> None:
    signed = backend.sign_put(PATH, BODY)
    await backend.send(signed, BODY)
    for changed_headers in ({"If-None-Match": ""}, {"If-None-Match": '"else"'}):
        refused = await backend.send(signed, BODY, headers=changed_headers)
        assert refused.status_code in {*REFUSED, 412}
    bare = signed.headers.copy()
    bare.pop("If-None-Match", None)
    assert (await backend.http.put(signed.url, content=BODY, headers=bare)).status_code in {*REFUSED, 412}
    assert (await backend.get(PATH)).content == BODY


async def test_a_refused_upload_can_be_repeated(backend: Backend) -> None:
    """Nothing is stored of it, so it takes no path."""
    signed = backend.sign_put(PATH, BODY, sha256=SHA256)
    assert (await backend.send(signed, BODY[::-1])).status_code in REFUSED
    assert (await backend.send(signed, BODY)).status_code == 200


async def test_an_empty_file_is_a_file(backend: Backend) -> None:
    assert (await backend.put(PATH, b"")).status_code == 200
    assert (await backend.get(PATH)).content == b""
    about = await backend.store.head(PATH)
    assert about.size == 0


async def test_a_file_comes_with_the_name_it_is_signed_for(backend: Backend) -> None:
    await backend.put(PATH, BODY)
    got = await backend.get(PATH, filename='Grüße "x"/../é.png', content_type="image/png")
    response = got.headers["content-disposition"]
    assert response.startswith("inline; ")
    assert "filename*=UTF-8''Gr%C3%BC%C3%9Fe%20%22x%22%2F..%2F%C3%A9.png" in response


async def test_what_could_hold_script_is_saved_and_not_shown(backend: Backend) -> None:
    await backend.put(PATH, BODY, content_type="text/html")
    got = await backend.get(PATH, filename="x.html", content_type="text/html")
    assert got.headers["content-disposition"].startswith("attachment; ")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("bytes=0-9", (0, 10)),
        ("bytes=100-", (100, 2048)),
        ("bytes=-48", (2000, 2048)),
        ("bytes=2040-9999", (2040, 2048)),
    ],
)
async def test_a_part_of_a_file_can_be_got(backend: Backend, asked: str, expected: tuple[int, int]) -> None:
    await backend.put(PATH, BODY)
    got = await backend.get(PATH, headers={"Range": asked})
    start, end = expected
    assert (got.status_code, got.content) == (206, BODY[start:end])
    assert got.headers["content-range"] == f"bytes {start}-{end - 1}/2048"


async def test_a_part_that_is_not_there_is_refused(backend: Backend) -> None:
    await backend.put(PATH, BODY)
    got = await backend.get(PATH, headers={"Range": "bytes=2048-"})
    assert got.status_code == 416
    assert got.headers["content-range"] == "bytes */2048"


async def test_what_one_has_is_not_sent_again(backend: Backend) -> None:
    tag = (await backend.put(PATH, BODY)).headers["etag"]
    got = await backend.get(PATH, headers={"If-None-Match": tag})
    assert (got.status_code, got.content) == (304, b"")


async def test_a_missing_file_is_not_found(backend: Backend) -> None:
    assert (await backend.get("tenants/nobody/x")).status_code == 404


# Signatures


@pytest.mark.parametrize(
    "path", ["tenants/other/jobs/1/out.png", "tenants/acme/jobs/1/out.pn", "tenants/acme/jobs/1/out.png/x"]
)
async def test_a_url_is_for_one_path(backend: Backend, path: str) -> None:
    await backend.put(PATH, BODY)
    for signed in (backend.store.sign_get(PATH, lifetime=MINUTE), backend.sign_put(PATH, BODY)):
        url = signed.url.replace(PATH, path)
        content = BODY if signed.method == "PUT" else None
        assert (await backend.send(signed, content, url=url)).status_code == 403
    assert await backend.store.head(path) is None


async def test_a_url_is_for_one_method(backend: Backend) -> None:
    await backend.put(PATH, BODY)
    get, put = backend.store.sign_get(PATH, lifetime=MINUTE), backend.sign_put(PATH, b"x")
    assert (await backend.send(get, b"x", method="PUT")).status_code == 403
    assert (await backend.send(put, method="GET")).status_code == 403
    for method in ("DELETE", "POST"):
        assert (await backend.send(get, method=method)).status_code in REFUSED
    assert (await backend.get(PATH)).content == BODY


async def test_a_url_is_good_until_it_expires(backend: Backend) -> None:
    await backend.put(PATH, BODY)
    second = timedelta(seconds=1)
    get, put = backend.store.sign_get(PATH, lifetime=second), backend.sign_put(PATH, b"x", lifetime=second)
    deadline = time.monotonic() + PATIENCE
    while (refused := await backend.send(get)).status_code == 200:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    assert refused.status_code == 403
    assert (await backend.send(put, b"x")).status_code == 403
    assert (await backend.get(PATH)).content == BODY


async def test_nobody_can_give_a_url_more_time(backend: Backend) -> None:
    await backend.put(PATH, BODY)
    signed = backend.store.sign_get(PATH, lifetime=MINUTE)
    longer = {"local": {"expires": str(int(time.time()) + 9999)}, "s3": {"X-Amz-Expires": "9999"}}[backend.name]
    assert (await backend.send(signed, url=changed(signed.url, **longer))).status_code == 403


async def test_a_wrong_signature_is_refused(backend: Backend) -> None:
    await backend.put(PATH, BODY)
    signed = backend.store.sign_get(PATH, lifetime=MINUTE)
    name = {"local": "signature", "s3": "X-Amz-Signature"}[backend.name]
    good = dict(parse_qsl(urlsplit(signed.url).query))[name]
    for wrong in ("", "x", good[:-1], good[:-1] + ("0" if good[-1] != "0" else "1"), good + "0", good.swapcase()):
        assert (await backend.send(signed, url=changed(signed.url, **{name: wrong}))).status_code in REFUSED
    bare = urlsplit(signed.url)._replace(query="").geturl()
    assert (await backend.send(signed, url=bare)).status_code == 403


async def test_a_name_that_was_not_signed_is_refused(backend: Backend) -> None:
    await backend.put(PATH, BODY)
    signed = backend.store.sign_get(PATH, lifetime=MINUTE, filename="a.png")
    name = {"local": "filename", "s3": "response-content-disposition"}[backend.name]
    assert (await backend.send(signed, url=changed(signed.url, **{name: "evil.html"}))).status_code == 403


# What an upload is held to


async def test_another_type_than_signed_is_refused(backend: Backend) -> None:
    signed = backend.sign_put(PATH, BODY)
    for given in ("text/html", "image/png2", ""):
        assert (await backend.send(signed, BODY, headers={"Content-Type": given})).status_code in REFUSED
    assert await backend.store.head(PATH) is None


@pytest.mark.parametrize("body", [BODY + b"x", BODY[:-1], b""], ids=["longer", "shorter", "empty"])
async def test_another_length_than_signed_is_refused(backend: Backend, body: bytes) -> None:
    refused = await backend.send(backend.sign_put(PATH, BODY), body)
    assert refused.status_code in REFUSED, refused.text
    assert await backend.store.head(PATH) is None


async def test_a_longer_body_that_does_not_say_so_is_refused(backend: Backend) -> None:
    refused = await backend.send(backend.sign_put(PATH, BODY), pieces(BODY, b"x"))
    assert refused.status_code >= 400
    assert await backend.store.head(PATH) is None


async def test_another_checksum_than_signed_is_refused(backend: Backend) -> None:
    signed = backend.sign_put(PATH, BODY, sha256=OTHER)
    refused = await backend.send(signed, BODY)
    assert refused.status_code in REFUSED, refused.text
    assert await backend.store.head(PATH) is None


async def test_nobody_can_change_what_an_upload_is_held_to(backend: Backend) -> None:
    signed = backend.sign_put(PATH, BODY, sha256=OTHER)
    tries: list[dict[str, Any]] = [
        {"url": changed(signed.url, size="9999")},
        {"url": changed(signed.url, type="text/html"), "headers": {"Content-Type": "text/html"}},
        {"url": changed(signed.url, sha256=SHA256)},
        {"url": signed.url.replace(OTHER, SHA256), "headers": {"x-amz-checksum-sha256": ""}},
    ]
    for each in tries:
        assert (await backend.send(signed, BODY, **each)).status_code in REFUSED
    assert await backend.store.head(PATH) is None


async def test_nothing_larger_than_the_limit_is_signed(store: Storage) -> None:
    with pytest.raises(TooLargeError):
        store.sign_put(PATH, lifetime=MINUTE, content_type="image/png", size=store.size_max + 1)


async def test_nothing_is_signed_for_no_time_or_for_ever(store: Storage) -> None:
    for seconds in (0, -1, 8 * 24 * 3600):
        with pytest.raises(InvalidError):
            store.sign_get(PATH, lifetime=timedelta(seconds=seconds))


async def test_what_is_no_media_type_is_not_signed(store: Storage) -> None:
    for given in ("", "png", "image/png\r\nX-Evil: 1", "image/ png", "a/b" * 100, "text/plain;", "ä/b"):
        with pytest.raises(InvalidError):
            store.sign_put(PATH, lifetime=MINUTE, content_type=given, size=1)


# Paths


@pytest.mark.parametrize(
    "path",
    ["a b/c d.png", "ü/漢字/é.png", "100%/50%25.png", "q?x=1#y&z.png", "a+b=c;d,e.png", "x'y(z)[1]{2}~!$*.png", "A/a"],
)
async def test_any_readable_path_is_one_and_the_same_everywhere(backend: Backend, path: str) -> None:
    assert (await backend.put(path, b"first")).status_code == 200
    assert await backend.store.read(path) == b"first"
    await backend.store.write(path, b"second")
    assert (await backend.get(path)).content == b"second"
    assert [each.path for each in await backend.store.list()] == [path]
    await backend.store.delete(path)
    assert await backend.store.list() == []


ASTRAY = (
    *("", "/", "/etc/passwd", "..", "../x", "a/../b", "a/..", "a//b", "a/", "./a", "a/./b", ".key", "a/.drafts/x"),
    *("a\0b", "a\nb", "a\\b", "\ud800", "x" * 241, "/".join(["x" * 100] * 11)),
)


async def test_a_path_that_leads_elsewhere_is_refused(store: Storage) -> None:
    for path in ASTRAY:
        with pytest.raises(InvalidError):
            store.sign_get(path, lifetime=MINUTE)
        with pytest.raises(InvalidError):
            store.sign_put(path, lifetime=MINUTE, content_type="image/png", size=1)
        for call in (store.head, store.read, store.delete):
            with pytest.raises(InvalidError):
                await call(path)
        with pytest.raises(InvalidError):
            await store.write(path, b"x")


# From inside


async def test_head_returns_size_and_type(backend: Backend) -> None:
    await backend.put(PATH, BODY)
    about = await backend.store.head(PATH)
    assert (about.path, about.size, about.content_type) == (PATH, len(BODY), "image/png")
    assert abs(datetime.now(UTC) - about.changed_at) < timedelta(minutes=5)
    assert await backend.store.head("nothing/here") is None


async def test_what_is_written_in_pieces_is_one_file(store: Storage) -> None:
    about = await store.write(PATH, pieces(b"a" * 3_000_000, b"", b"b" * 3_000_000), content_type="text/plain")
    assert (about.size, about.sha256) == (6_000_000, hashlib.sha256(b"a" * 3_000_000 + b"b" * 3_000_000).hexdigest())
    assert b"".join([piece async for piece in store.stream(PATH)]) == b"a" * 3_000_000 + b"b" * 3_000_000


async def test_a_write_that_breaks_off_leaves_what_was_there(store: Storage) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    await store.write(PATH, b"whole")
    with pytest.raises(ZeroDivisionError):
        await store.write(PATH, broken())
    assert await store.read(PATH) == b"whole"


async def test_a_file_that_is_not_there_cannot_be_read(store: Storage) -> None:
    with pytest.raises(NotFoundError):
        await store.read(PATH)
    with pytest.raises(NotFoundError):
        async for _ in store.stream(PATH):
            pass
    await store.delete(PATH)


async def test_files_are_listed_by_their_paths_part_by_part(store: Storage) -> None:
    paths = sorted(["b/1", "b/2/x", "b/20", "b/3", "c", "ba/1"])
    for path in paths:
        await store.write(path, b"12")
    assert [each.path for each in await store.list()] == paths
    assert {each.size for each in await store.list()} == {2}
    below = [path for path in paths if path.startswith("b/")]
    assert [each.path for each in await store.list("b/")] == below
    walked: list[str] = []
    while page := await store.list("b/", after=walked[-1] if walked else "", limit=2):
        walked += [each.path for each in page]
    assert walked == below
    assert await store.list("nowhere/") == []


async def test_of_writers_of_one_path_one_succeeds(backend: Backend) -> None:
    bodies = [bytes([number]) * 300_000 for number in range(8)]
    answers = await asyncio.gather(*(backend.put(PATH, body, content_type=f"image/x-{body[0]}") for body in bodies))
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(200) == 1, statuses
    assert set(statuses) <= {200, 409, 412}
    got = await backend.get(PATH)
    assert got.content == bodies[statuses.index(200)]
    assert got.headers["content-type"] == f"image/x-{got.content[0]}"


async def test_a_reader_gets_one_whole_file_while_this_process_replaces_it(backend: Backend) -> None:
    bodies = [bytes([number]) * 200_000 for number in range(6)]
    await backend.put(PATH, bodies[0])

    async def reader() -> bytes:
        return (await backend.get(PATH)).content

    _, *read = await asyncio.gather(
        asyncio.gather(*(backend.store.write(PATH, body) for body in bodies)), *(reader() for _ in range(6))
    )
    assert all(content in bodies for content in read)


async def test_signing_needs_nobody(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, and no thread: not even a running loop is asked."""
    store.sign_get(PATH, lifetime=MINUTE)  # a folder's key is read once

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("It opened something.")

    monkeypatch.setattr("socket.socket", refuse)
    monkeypatch.setattr("os.open", refuse)
    await asyncio.to_thread(store.sign_get, PATH, lifetime=MINUTE, filename="x.png")
    await asyncio.to_thread(store.sign_put, PATH, lifetime=MINUTE, content_type="image/png", size=1, sha256=OTHER)
