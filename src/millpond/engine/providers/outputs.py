"""Collecting: a provider's files are copied into storage at once, because it does not keep them for long."""

from __future__ import annotations

import asyncio
import base64
import binascii
import mimetypes
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urlsplit

from millpond import values
from millpond.errors import PermanentError, TooLargeError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millpond.outbound import Outbound
    from millpond.providers import Prediction
    from millpond.work import Artifact
    from millpond.worker.context import Job

FILES_MAX: Final = 100
SECONDS: Final = 600.0
"""How many seconds the download of one file may take."""
_URL: Final = re.compile(r"https?://\S+", re.IGNORECASE)
_DATA: Final = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?:;[\w.+=-]+)*?;base64,(?P<data>[A-Za-z0-9+/=]*)")
_MEDIA: Final = re.compile(r"[a-z0-9][a-z0-9.+-]*/[a-z0-9][a-z0-9.+-]*")
_UNKNOWN: Final = "application/octet-stream"
_HEAD: Final = 16
_LETTERS_MAX: Final = 100
_OK: Final = 200
_GONE: Final = (401, 403, 404, 410)

_SIGNS: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypqt", "video/quicktime"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (8, b"WAVE", "audio/wav"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"glTF", "model/gltf-binary"),
    (0, b"PK\x03\x04", "application/zip"),
)
"""The signatures of file types: offset, bytes, media type. The first match counts."""


async def collect(
    outbound: Outbound, job: Job, origin: str, prediction: Prediction, *, size_max: int, part: str = ""
) -> list[Artifact]:
    """Save every file that a prediction names, in its order; each once, however often it is named.

    The files of a part of a job are named after the part, because providers give all their files the same names.
    """
    found = _files(prediction.output)
    if len(found) > FILES_MAX:
        raise PermanentError(f"The provider returned {len(found)} files; the limit is {FILES_MAX}.")
    taken: set[str] = set()
    saved: list[Artifact] = []
    with tempfile.TemporaryDirectory(prefix="millpond-") as folder:
        path = Path(folder, "file")
        for number, url in enumerate(found, 1):
            declared = await _fetch(outbound, url, origin, path, size_max)
            media = _media(await asyncio.to_thread(_first_bytes, path), declared, url)
            name = _part_name(part, number, media) if part else _name(url, number, media, taken)
            saved.append(await job.upload(path, name, media))
    return saved


async def _fetch(outbound: Outbound, url: str, origin: str, path: Path, size_max: int) -> str:
    """Download a URL to a file; return its declared media type."""
    if data := _DATA.fullmatch(url):
        try:
            whole = base64.b64decode(data["data"], validate=True)
        except binascii.Error:
            raise PermanentError("The provider's output contains an invalid data URL.") from None
        await asyncio.to_thread(path.write_bytes, whole)
        return data["type"] or ""
    try:
        async with outbound.stream("GET", url, seconds=SECONDS, size_max=size_max, may=(origin,)) as streamed:
            if streamed.status != _OK:
                raise _missing(streamed.status)
            with await asyncio.to_thread(path.open, "wb") as file:
                async for chunk in streamed:
                    await asyncio.to_thread(file.write, chunk)
            return streamed.headers.get("content-type", "")
    except TooLargeError:
        raise PermanentError(f"A file of the provider's output is larger than {size_max:,} bytes.") from None


def _missing(status: int) -> PermanentError | TransientError:
    message = f"A file of the provider's output could not be downloaded: HTTP {status}."
    return PermanentError(message) if status in _GONE else TransientError(message)


def with_file_ids(output: Any, files: Sequence[Artifact]) -> Any:
    """An output with the ids of its files in place of their URLs, which expire."""
    return _replaced(output, {url: file.id for url, file in zip(_files(output), files, strict=True)})


def _replaced(output: Any, ids: Mapping[str, str]) -> Any:
    match output:
        case str():
            return ids.get(output, output)
        case list():
            return [_replaced(part, ids) for part in cast("list[Any]", output)]
        case dict():
            return {name: _replaced(part, ids) for name, part in cast("dict[str, Any]", output).items()}
        case _:
            return output


def _files(output: Any) -> list[str]:
    return list(dict.fromkeys(_urls(output)))


def _urls(output: Any) -> Iterator[str]:
    """Every string in an output that is a URL and nothing else."""
    match output:
        case str():
            if _URL.fullmatch(output) or _DATA.fullmatch(output):
                yield output
        case list():
            for part in cast("list[Any]", output):
                yield from _urls(part)
        case dict():
            for part in cast("dict[str, Any]", output).values():
                yield from _urls(part)
        case _:
            pass


def _media(head: bytes, declared: str, url: str) -> str:
    """The media type of a file: by its first bytes, by its declared type, by its name."""
    for place, sign, media in _SIGNS:
        if head[place : place + len(sign)] == sign:
            return media
    media_type = declared.partition(";")[0].strip().lower()
    if _MEDIA.fullmatch(media_type) and media_type != _UNKNOWN:
        return media_type
    return mimetypes.guess_type(urlsplit(url).path)[0] or _UNKNOWN


def _name(url: str, number: int, media: str, taken: set[str]) -> str:
    """The last part of a URL's path, if it is a name, changed if another file has it."""
    given = "" if url.startswith("data:") else unquote(urlsplit(url).path).rpartition("/")[2]
    plain = _plain(values.printable(given, _LETTERS_MAX)).strip("._")
    ending = mimetypes.guess_extension(media) or ""
    name = plain or f"output{ending}"
    if not Path(name).suffix:
        name += ending
    if name in taken:
        name = f"{number}-{name}"
    taken.add(name)
    return name


def _part_name(part: str, number: int, media: str) -> str:
    stem = _plain(part) + (f"-{number}" if number > 1 else "")
    return stem + (mimetypes.guess_extension(media) or "")


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)
