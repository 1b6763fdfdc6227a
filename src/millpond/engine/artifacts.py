"""Artifacts: files in storage, with whose they are. They go in and out by signed URLs, or through here.

A file that nobody has a use for is swept: an upload that was never seen, what an attempt made that did not win, what is
older than the history is kept, and what lies in storage without a row. First the row is marked, then the file is
removed, then the row: whoever takes over after a kill finds where to go on.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec

from millpond import ids, values
from millpond.errors import (
    ArtifactMismatchError,
    ArtifactMissingError,
    ConflictError,
    InvalidError,
    NotFoundError,
    StorageUnavailableError,
    UnavailableError,
)
from millpond.storage import check_path
from millpond.storage.storage import check_sha256, check_size, check_type
from millpond.store.db import DuplicateError, new_id
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from millpond.storage import Object, Signed, Storage
    from millpond.store.db import Database, Row
    from millpond.store.queries import Query

SQL: Final = queries("millpond.engine", "artifacts")

TOP: Final = "tenants/"
"""What lies below this belongs to artifacts, and is swept where no row knows it; all else is left alone."""
UPLOAD_LIFETIME: Final = timedelta(minutes=15)
DOWNLOAD_LIFETIME: Final = timedelta(hours=1)
RETENTION: Final = timedelta(days=90)
NAME_MAX: Final = 255

_GRACE: Final = timedelta(hours=1)
"""How long after the deadline of an upload, or the end of a job, something is left where it is."""
_STRAY_AGE: Final = timedelta(days=1)
_SKEW: Final = timedelta(hours=1)
"""How far the clocks of two machines may be apart."""
_SAFE_BYTES: Final = 120
_SUFFIX_MAX: Final = 16
_LANES: Final = 8  # files that are removed at once
_FIRST: Final = UUID(int=0)
_NAMED: Final = re.compile(r'"(art_[0-7][0-9a-hjkmnp-tv-z]{25})"')
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSAFE: Final = re.compile(r"[^\w .()@+=-]")


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """A file and what is known of it."""

    artifact_id: UUID
    tenant: str
    account: str
    job_id: UUID | None
    epoch: int | None
    """The attempt that makes it; none for what was given."""
    name: str
    content_type: str
    size: int
    """As it was announced; once it is stored, as it is."""
    sha256: str | None
    path: str
    created_at: datetime
    expires_at: datetime
    """Until when it was to be uploaded."""
    stored_at: datetime | None
    """When it was seen in storage."""

    @property
    def id(self) -> str:
        return ids.text("art", self.artifact_id)


class Artifacts:
    """The files of all tenants."""

    def __init__(
        self, home: Callable[[str], Database], homes: Callable[[], Iterable[Database]], store: Storage | None
    ) -> None:
        self._home = home
        self._homes = homes
        self._store = store
        self._places: dict[Any, Any] = {}
        """How far each of the sweeper's walks has come, by its name and its database."""

    @property
    def has_store(self) -> bool:
        return self._store is not None

    @property
    def store(self) -> Storage:
        """Storage itself. What is written there under another path than ``tenants/…`` is never swept."""
        if self._store is None:
            raise StorageUnavailableError(
                "This engine was opened without storage.", hint="Engine.open(…, storage=open_storage(settings))."
            )
        return self._store

    # In

    async def upload(
        self,
        tenant: str,
        account: str,
        *,
        name: str,
        content_type: str,
        size: int,
        sha256: str | None = None,
        job_id: UUID | None = None,
        epoch: int | None = None,
        path: str | None = None,
        lifetime: timedelta = UPLOAD_LIFETIME,
    ) -> tuple[ArtifactRecord, Signed]:
        """Announce a file; tells how to put it into storage."""
        check_size(size, self.store.size_max)
        made = await self._make(
            tenant, account, name, content_type, size, sha256=sha256, job_id=job_id, epoch=epoch, path=path, by=lifetime
        )
        return made, self.sign_put(made, lifetime)

    async def save(
        self,
        tenant: str,
        account: str,
        *,
        name: str,
        content_type: str,
        data: bytes | AsyncIterator[bytes],
        job_id: UUID | None = None,
        epoch: int | None = None,
        path: str | None = None,
    ) -> ArtifactRecord:
        """Put a file into storage from here."""
        size = len(data) if isinstance(data, bytes) else 0
        made = await self._make(
            tenant, account, name, content_type, size, job_id=job_id, epoch=epoch, path=path, by=_GRACE
        )
        about = await self.store.write(made.path, data, content_type=content_type)
        return await self._stored(made, about.size, about.sha256)

    async def _make(
        self,
        tenant: str,
        account: str,
        name: str,
        content_type: str,
        size: int,
        *,
        by: timedelta,
        sha256: str | None = None,
        job_id: UUID | None = None,
        epoch: int | None = None,
        path: str | None = None,
    ) -> ArtifactRecord:
        values.check_name(tenant, field="tenant")
        values.check_name(account, field="account")
        check_name(name)
        check_type(content_type)
        check_sha256(sha256)
        artifact_id = new_id()
        place = _default_path(tenant, job_id, epoch, artifact_id, name) if path is None else _own(tenant, path)
        traits = (artifact_id, tenant, account, job_id, epoch, name, content_type, size, sha256, place, by)
        try:
            row = await self._home(tenant).run(SQL["make"], *traits)
        except DuplicateError:
            raise ConflictError("There is an artifact at this path already.", field="path") from None
        return ArtifactRecord(*row)

    async def confirm(
        self, tenant: str, artifact_id: UUID | str, *, size: int | None = None, sha256: str | None = None
    ) -> ArtifactRecord:
        """Look whether a file is in storage as it was announced, and as is told now; only then it counts."""
        check_sha256(sha256)
        record = await self.read(tenant, artifact_id)
        _compare(record, "size", size, record.size)
        if None not in (sha256, record.sha256):
            _compare(record, "sha256", sha256, record.sha256)
        if record.stored_at is not None and (sha256 is None or record.sha256 is not None):
            return record
        about = await self.store.head(record.path)
        if about is None:
            raise ArtifactMissingError(
                f"{record.id} ({record.name}) is not in storage.", field="artifacts", artifact_id=record.id
            )
        _compare(record, "size", record.size, about.size)
        return await self._stored(record, about.size, await self._verified(record, about, sha256))

    async def _verified(self, record: ArtifactRecord, about: Object, sha256: str | None) -> str | None:
        """The checksum of a file. The store has held the file to the one that was announced; another is looked at."""
        wanted = record.sha256 or sha256
        if wanted is None or (record.sha256 is not None and about.sha256 is None and self.store.is_binding):
            return about.sha256 or wanted
        found = about.sha256 or await self._hash(record)
        _compare(record, "sha256", wanted, found)
        return found

    async def _hash(self, record: ArtifactRecord) -> str:
        digest = hashlib.sha256()
        async for piece in self.store.stream(record.path):
            digest.update(piece)
        return digest.hexdigest()

    async def _stored(self, record: ArtifactRecord, size: int, sha256: str | None) -> ArtifactRecord:
        row = await self._home(record.tenant).run(SQL["store"], record.artifact_id, size, sha256)
        if row is None:
            raise ArtifactMissingError(f"{record.id} was deleted.", field="artifacts", artifact_id=record.id)
        return ArtifactRecord(*row)

    # Out

    async def read(self, tenant: str, artifact_id: UUID | str, account: str | None = None) -> ArtifactRecord:
        """An artifact, if it is this tenant's, and this account's where one is named."""
        found_id = parse(artifact_id)
        found = await self.find(tenant, [found_id], account)
        if not found:
            raise NotFoundError(f"There is no artifact {ids.text('art', found_id)!r}.", field="id")
        return found[0]

    async def find(
        self, tenant: str, artifact_ids: Iterable[UUID], account: str | None = None, job_id: UUID | None = None
    ) -> list[ArtifactRecord]:
        """Those of these artifacts that are the tenant's, and the account's or this job's where one is named."""
        return await self._view(tenant, account, list(artifact_ids), job_id)

    async def of_job(self, tenant: str, job_id: UUID, account: str | None = None) -> list[ArtifactRecord]:
        """What a job was given and what its present, or its last, attempt has made; only what is in storage."""
        return await self._view(tenant, account, None, job_id)

    async def _view(self, tenant: str, *arguments: Any) -> list[ArtifactRecord]:
        rows = await self._home(tenant).read(SQL["view"], tenant, *arguments)
        return [ArtifactRecord(*row) for row in rows]

    def sign_get(self, record: ArtifactRecord, lifetime: timedelta = DOWNLOAD_LIFETIME) -> Signed:
        return self.store.sign_get(
            record.path, lifetime=lifetime, filename=record.name, content_type=record.content_type
        )

    def sign_put(self, record: ArtifactRecord, lifetime: timedelta = UPLOAD_LIFETIME) -> Signed:
        return self.store.sign_put(
            record.path, lifetime=lifetime, content_type=record.content_type, size=record.size, sha256=record.sha256
        )

    async def fetch(self, record: ArtifactRecord) -> bytes:
        return await self.store.read(record.path)

    def stream(self, record: ArtifactRecord) -> AsyncIterator[bytes]:
        return self.store.stream(record.path)

    async def delete(self, record: ArtifactRecord) -> None:
        db = self._home(record.tenant)
        await db.run(SQL["mark"], [record.artifact_id])
        await self._remove(db, [{"id": record.artifact_id, "path": record.path}])

    # Sweeping

    async def sweep(
        self, most: int = 1_000, *, retention: timedelta = RETENTION, stray_age: timedelta = _STRAY_AGE
    ) -> int:
        """Remove some of what nobody has a use for; tells how many files that were. Each call goes on from the last."""
        swept = await self.store.tidy()
        away: list[UnavailableError] = []
        for db in self._homes():
            try:
                swept += await self._sweep_home(db, most, retention)
            except UnavailableError as error:  # the others need not wait for it
                away.append(error)
        swept += await self._remove_strays(most, stray_age)
        if away:
            raise away[0]
        return swept

    async def _sweep_home(self, db: Database, most: int, retention: timedelta) -> int:
        await self._mark_unstored(db, most)
        await self._mark_losers(db, most)
        await self._mark_aged(db, most, retention)
        return await self._remove(db, await db.run(SQL["marked"], most))

    async def _mark_unstored(self, db: Database, most: int) -> None:
        """Uploads that nobody has confirmed in time: one that a job was given counts, if it is there."""
        rows = await self._next(db, SQL["unstored"], _GRACE, most)
        wanted = {row["id"] for row in rows if row["has_job"]} | await self._mentioned(db, rows, ended=True)
        lost = [row["id"] for row in rows if row["id"] not in wanted]
        lost += [row["id"] for row in rows if row["id"] in wanted and not await self._adopt(row)]
        await db.run(SQL["mark_unstored"], lost)

    async def _adopt(self, row: Row) -> bool:
        try:
            await self.confirm(row["tenant"], row["id"])
        except (ArtifactMissingError, ArtifactMismatchError, NotFoundError):
            return False
        return True

    async def _mark_losers(self, db: Database, most: int) -> None:
        """What attempts have made whose job is over without them."""
        rows = await self._next(db, SQL["undecided"], _GRACE, most)
        await db.run(SQL["keep"], [row["id"] for row in rows if row["has_won"]])
        await db.run(SQL["mark"], [row["id"] for row in rows if row["is_over"] and not row["has_won"]])

    async def _mark_aged(self, db: Database, most: int, retention: timedelta) -> None:
        """What outlived its job's history, or was given to no job that still wants it."""
        rows = await self._next(db, SQL["aged"], retention, most)
        loose = [row for row in rows if not row["has_owner"]]
        wanted = {row["id"] for row in rows if row["has_job"]} | await self._mentioned(db, loose, ended=False)
        await db.run(SQL["mark"], [row["id"] for row in rows if row["id"] not in wanted])

    async def _mentioned(self, db: Database, rows: Sequence[Row], *, ended: bool) -> set[UUID]:
        """Those that stand in the input of a job, by their id or their path."""
        found: set[UUID] = set()
        owners: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            owners.setdefault((row["tenant"], row["account"]), []).append(row)
        for (tenant, account), theirs in owners.items():
            words = {word: row["id"] for row in theirs for word in _words(row)}
            since = _before(min(row["id"] for row in theirs))
            told = await db.run(SQL["mentions"], tenant, account, since, list(words), ended)
            found |= {words[row["word"]] for row in told}
        return found

    async def _next(self, db: Database, query: Query, age: timedelta, most: int) -> Sequence[Row]:
        """The next part of a walk over a table; after the last it begins again."""
        walk = (query.name, id(db))
        rows: Sequence[Row] = await db.run(query, self._places.get(walk, _FIRST), age, most)
        self._places[walk] = rows[-1]["id"] if len(rows) == most else _FIRST
        return rows

    async def _remove(self, db: Database, marked: Sequence[Any]) -> int:
        """First the files, then their rows."""
        gone = await self._remove_files(row["path"] for row in marked)
        await db.run(SQL["drop"], [row["id"] for row in marked if row["path"] in gone])
        return len(gone)

    async def _remove_files(self, paths: Iterable[str]) -> set[str]:
        """Tells which are gone; one that cannot be removed now is left for another time."""
        gate, gone, failures = asyncio.Semaphore(_LANES), set[str](), list[StorageUnavailableError]()

        async def remove(path: str) -> None:
            async with gate:
                try:
                    await self.store.delete(path)
                    gone.add(path)
                except StorageUnavailableError as error:
                    failures.append(error)

        await asyncio.gather(*map(remove, paths))
        if failures and not gone:
            raise failures[0]
        return gone

    async def _remove_strays(self, most: int, age: timedelta) -> int:
        """Files without a row. Theirs is written first, so one that is a day old has none coming."""
        found = await self.store.list(TOP, after=self._places.get("strays", ""), limit=most)
        self._places["strays"] = found[-1].path if len(found) == most else ""
        old = [each.path for each in found if each.changed_at < datetime.now(UTC) - age]
        by_home: dict[int, tuple[Database, list[str]]] = {}
        for path in old:
            db = self._home(_tenant(path))
            by_home.setdefault(id(db), (db, []))[1].append(path)
        strays: set[str] = set()
        for db, paths in by_home.values():
            strays |= set(paths) - {row["path"] for row in await db.run(SQL["known"], paths)}
        return len(await self._remove_files(strays))


def named_in(text: str) -> list[str]:
    """The ids of artifacts that stand in some JSON, each once and in order."""
    return list(dict.fromkeys(_NAMED.findall(text))) if '"art_' in text else []


def check_name(given: str) -> str:
    """The name of a file, as people see it."""
    if not given or len(given) > NAME_MAX or _CONTROL.search(given):
        raise InvalidError(
            f"It must be 1 to {NAME_MAX} characters, and none of them a control character.", field="name"
        )
    return given


def parse(artifact_id: UUID | str) -> UUID:
    try:
        return ids.parse("art", artifact_id)
    except NotFoundError:
        raise NotFoundError(f"{str(artifact_id)[:60]!r} is not the id of an artifact.", field="id") from None


def folder(tenant: str) -> str:
    """Below which path the files of a tenant are."""
    part = quote(tenant, safe=":@+")
    return f"{TOP}{'%2E' + part[1:] if part.startswith('.') else part}/"


def _tenant(path: str) -> str:
    return unquote(path.split("/", 2)[1])


def _default_path(tenant: str, job_id: UUID | None, epoch: int | None, artifact_id: UUID, name: str) -> str:
    """One that nobody else writes to: each attempt at a job has paths of its own."""
    if job_id is None:
        return f"{folder(tenant)}uploads/{artifact_id}/{_safe(name)}"
    attempt = "given" if epoch is None else str(epoch)
    return f"{folder(tenant)}jobs/{ids.text('job', job_id)}/{attempt}-{artifact_id}/{_safe(name)}"


def _safe(name: str) -> str:
    """A name that can stand in a path: without what leads elsewhere, and short, but with its suffix."""
    clean = _UNSAFE.sub("_", name).lstrip(". ") or "file"
    stem, dot, suffix = clean.rpartition(".")
    if not stem or len(suffix.encode()) > _SUFFIX_MAX:
        stem, dot, suffix = clean, "", ""
    return stem.encode()[:_SAFE_BYTES].decode(errors="ignore").rstrip() + dot + suffix


def _own(tenant: str, path: str) -> str:
    check_path(path)
    if not path.startswith(folder(tenant)):
        raise InvalidError(f"A path of this tenant begins with {folder(tenant)!r}.", field="path")
    return path


def _compare(record: ArtifactRecord, what: str, expected: Any, found: Any) -> None:
    if expected is not None and expected != found:
        raise ArtifactMismatchError(
            f"The {what} of {record.id} ({record.name}) is {found}, and not {expected}.",
            field=f"artifacts.{what}",
            artifact_id=record.id,
            expected=expected,
            found=found,
        )


def _words(row: Row) -> tuple[str, str]:
    """What a job's input would have to hold, as JSON writes it."""
    return ids.text("art", row["id"]), msgspec.json.encode(row["path"]).decode()


def _before(artifact_id: UUID) -> UUID:
    """The smallest id of a job that can know of this artifact."""
    milliseconds = int(_SKEW.total_seconds() * 1000)
    return UUID(int=max((artifact_id.int >> 80) - milliseconds, 0) << 80)
