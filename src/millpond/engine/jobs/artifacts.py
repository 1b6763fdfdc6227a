"""Artifacts: files in storage and their owners. They are moved by signed URLs, or through this module.

The sweeper deletes files that are no longer needed: uploads that were never confirmed, files of attempts that did not
become part of a job's result, files older than the history, and files in storage without a row. It marks the row first,
then deletes the file, then the row, so after a kill the next process can continue.
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
    from millpond.store.queries import NamedQuery

SQL: Final = queries("millpond.engine.jobs", "artifacts")

TOP: Final = "tenants/"
"""Files below this path belong to artifacts, and are swept if they have no row; all other files are left alone."""
UPLOAD_LIFETIME: Final = timedelta(minutes=15)
DOWNLOAD_LIFETIME: Final = timedelta(hours=1)
RETENTION: Final = timedelta(days=90)
NAME_MAX: Final = 255

_GRACE: Final = timedelta(hours=1)
"""How long a file is kept after the deadline of its upload, or the end of its job."""
_STRAY_AGE: Final = timedelta(days=1)
_SKEW: Final = timedelta(hours=1)
"""How far the clocks of two machines may be apart."""
_SAFE_BYTES: Final = 120
_SUFFIX_MAX: Final = 16
_LANES: Final = 8  # files that are deleted concurrently
_FIRST: Final = UUID(int=0)
_NAMED: Final = re.compile(r'"(art_[0-7][0-9a-hjkmnp-tv-z]{25})"')
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSAFE: Final = re.compile(r"[^\w .()@+=-]")


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """A file and its metadata."""

    artifact_id: UUID
    tenant: str
    account: str
    job_id: UUID | None
    epoch: int | None
    """The attempt that makes it; none for a file that no attempt makes, such as an input."""
    name: str
    content_type: str
    size: int
    """The announced size; once the file is stored, its actual size."""
    sha256: str | None
    path: str
    created_at: datetime
    expires_at: datetime
    """The deadline of the upload."""
    stored_at: datetime | None
    """When the file was found in storage."""

    @property
    def id(self) -> str:
        return ids.text("art", self.artifact_id)


class Artifacts:
    """The files of all tenants."""

    def __init__(
        self, database: Callable[[str], Database], databases: Callable[[], Iterable[Database]], store: Storage | None
    ) -> None:
        self._database = database
        self._databases = databases
        self._store = store
        self._places: dict[Any, Any] = {}
        """The position of each of the sweeper's walks, by query and database."""

    @property
    def has_store(self) -> bool:
        return self._store is not None

    @property
    def store(self) -> Storage:
        """The storage itself. Files that are not below ``tenants/`` are never swept."""
        if self._store is None:
            raise StorageUnavailableError(
                "The engine was opened without storage.", hint="Use Engine.open(…, storage=open_storage(settings))."
            )
        return self._store

    # Uploads

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
        """Announce a file, and return it with a signed request that uploads it."""
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
        """Write a file to storage from this process."""
        size = len(data) if isinstance(data, bytes) else 0
        made = await self._make(
            tenant, account, name, content_type, size, job_id=job_id, epoch=epoch, path=path, by=_GRACE
        )
        written = await self.store.write(made.path, data, content_type=content_type)
        return await self._stored(made, written.size, written.sha256)

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
        place = _default_path(tenant, job_id, epoch, artifact_id, name) if path is None else _checked_path(tenant, path)
        columns = (artifact_id, tenant, account, job_id, epoch, name, content_type, size, sha256, place, by)
        try:
            row = await self._database(tenant).run(SQL["make"], *columns)
        except DuplicateError:
            raise ConflictError("An artifact with this path already exists.", field="path") from None
        return ArtifactRecord(*row)

    async def confirm(
        self, tenant: str, artifact_id: UUID | str, *, size: int | None = None, sha256: str | None = None
    ) -> ArtifactRecord:
        """Check that a file is in storage as announced, and as the arguments say; only then it counts as stored."""
        check_sha256(sha256)
        record = await self.read(tenant, artifact_id)
        _compare(record, "size", size, record.size)
        if None not in (sha256, record.sha256):
            _compare(record, "sha256", sha256, record.sha256)
        if record.stored_at is not None and (sha256 is None or record.sha256 is not None):
            return record
        head = await self.store.head(record.path)
        if head is None:
            raise ArtifactMissingError(
                f"{record.id} ({record.name}) is not in storage.", field="artifacts", artifact_id=record.id
            )
        _compare(record, "size", record.size, head.size)
        return await self._stored(record, head.size, await self._verified(record, head, sha256))

    async def _verified(self, record: ArtifactRecord, head: Object, sha256: str | None) -> str | None:
        """The checksum of a file. The signed URL has enforced the announced one; any other is compared."""
        wanted = record.sha256 or sha256
        if wanted is None or (record.sha256 is not None and head.sha256 is None):
            return head.sha256 or wanted
        found = head.sha256 or await self._hash(record)
        _compare(record, "sha256", wanted, found)
        return found

    async def _hash(self, record: ArtifactRecord) -> str:
        digest = hashlib.sha256()
        async for piece in self.store.stream(record.path):
            digest.update(piece)
        return digest.hexdigest()

    async def _stored(self, record: ArtifactRecord, size: int, sha256: str | None) -> ArtifactRecord:
        row = await self._database(record.tenant).run(SQL["store"], record.artifact_id, size, sha256)
        if row is None:
            raise ArtifactMissingError(f"{record.id} was deleted.", field="artifacts", artifact_id=record.id)
        return ArtifactRecord(*row)

    # Reads and downloads

    async def read(self, tenant: str, artifact_id: UUID | str, account: str | None = None) -> ArtifactRecord:
        """An artifact of this tenant, and of this account if one is given."""
        found_id = parse(artifact_id)
        found = await self.find(tenant, [found_id], account)
        if not found:
            raise NotFoundError(f"There is no artifact {ids.text('art', found_id)!r}.", field="id")
        return found[0]

    async def at_path(self, tenant: str, path: str) -> ArtifactRecord | None:
        """The artifact announced for a path, whether its file is stored yet or not."""
        row = await self._database(tenant).run(SQL["at_path"], tenant, path)
        return None if row is None else ArtifactRecord(*row)

    async def find(
        self, tenant: str, artifact_ids: Iterable[UUID], account: str | None = None, job_id: UUID | None = None
    ) -> list[ArtifactRecord]:
        """The artifacts of these that belong to the tenant, and to the account or the job if one is given."""
        return await self._view(tenant, account, list(artifact_ids), job_id)

    async def of_job(self, tenant: str, job_id: UUID, account: str | None = None) -> list[ArtifactRecord]:
        """The stored files that a job was given, or that its current or last attempt has made."""
        return await self._view(tenant, account, None, job_id)

    async def _view(self, tenant: str, *arguments: Any) -> list[ArtifactRecord]:
        rows = await self._database(tenant).read(SQL["view"], tenant, *arguments)
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
        db = self._database(record.tenant)
        await db.run(SQL["mark"], [record.artifact_id])
        await self._remove(db, [{"id": record.artifact_id, "path": record.path}])

    # Sweeping

    async def sweep(
        self, limit: int = 1_000, *, retention: timedelta = RETENTION, stray_age: timedelta = _STRAY_AGE
    ) -> int:
        """Delete some of the unneeded files, and return how many. Each call continues where the last one ended."""
        swept = await self.store.tidy()
        unreachable: list[UnavailableError] = []
        for db in self._databases():
            try:
                swept += await self._sweep_database(db, limit, retention)
            except UnavailableError as error:  # do not delay the other databases
                unreachable.append(error)
        swept += await self._remove_strays(limit, stray_age)
        if unreachable:
            raise unreachable[0]
        return swept

    async def _sweep_database(self, db: Database, limit: int, retention: timedelta) -> int:
        await self._mark_unstored(db, limit)
        await self._mark_unused(db, limit)
        await self._mark_aged(db, limit, retention)
        return await self._remove(db, await db.run(SQL["marked"], limit))

    async def _mark_unstored(self, db: Database, limit: int) -> None:
        """Mark uploads that were not confirmed in time. If a job refers to one, it is confirmed now, if possible."""
        rows = await self._next(db, SQL["unstored"], _GRACE, limit)
        wanted = {row["id"] for row in rows if row["has_job"]} | await self._mentioned(db, rows, ended=True)
        lost = [row["id"] for row in rows if row["id"] not in wanted]
        lost += [row["id"] for row in rows if row["id"] in wanted and not await self._confirm_late(row)]
        await db.run(SQL["mark_unstored"], lost)

    async def _confirm_late(self, row: Row) -> bool:
        try:
            await self.confirm(row["tenant"], row["id"])
        except (ArtifactMissingError, ArtifactMismatchError, NotFoundError):
            return False
        return True

    async def _mark_unused(self, db: Database, limit: int) -> None:
        """Mark files of attempts that did not become part of the result of their job, which is over."""
        rows = await self._next(db, SQL["undecided"], _GRACE, limit)
        await db.run(SQL["keep"], [row["id"] for row in rows if row["has_won"]])
        await db.run(SQL["mark"], [row["id"] for row in rows if row["is_over"] and not row["has_won"]])

    async def _mark_aged(self, db: Database, limit: int, retention: timedelta) -> None:
        """Mark files past the retention whose job is gone, and those without a job that no live job's input names."""
        rows = await self._next(db, SQL["aged"], retention, limit)
        loose = [row for row in rows if not row["has_owner"]]
        wanted = {row["id"] for row in rows if row["has_job"]} | await self._mentioned(db, loose, ended=False)
        await db.run(SQL["mark"], [row["id"] for row in rows if row["id"] not in wanted])

    async def _mentioned(self, db: Database, rows: Sequence[Row], *, ended: bool) -> set[UUID]:
        """The ids of artifacts that the input of a job contains, as an id or a path."""
        found: set[UUID] = set()
        owners: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            owners.setdefault((row["tenant"], row["account"]), []).append(row)
        for (tenant, account), theirs in owners.items():
            words = {word: row["id"] for row in theirs for word in _words(row)}
            since = _before(min(row["id"] for row in theirs))
            mentions = await db.run(SQL["mentions"], tenant, account, since, list(words), ended)
            found |= {words[row["word"]] for row in mentions}
        return found

    async def _next(self, db: Database, query: NamedQuery, age: timedelta, limit: int) -> Sequence[Row]:
        """The next part of a walk over a table; after the last one the walk starts again."""
        walk = (query.name, id(db))
        rows: Sequence[Row] = await db.run(query, self._places.get(walk, _FIRST), age, limit)
        self._places[walk] = rows[-1]["id"] if len(rows) == limit else _FIRST
        return rows

    async def _remove(self, db: Database, marked: Sequence[Any]) -> int:
        """Delete the files, then their rows."""
        gone = await self._remove_files(row["path"] for row in marked)
        await db.run(SQL["drop"], [row["id"] for row in marked if row["path"] in gone])
        return len(gone)

    async def _remove_files(self, paths: Iterable[str]) -> set[str]:
        """Delete files, and return the paths that are gone. Those that fail are left for a later sweep."""
        slots, gone, failures = asyncio.Semaphore(_LANES), set[str](), list[StorageUnavailableError]()

        async def remove(path: str) -> None:
            async with slots:
                try:
                    await self.store.delete(path)
                    gone.add(path)
                except StorageUnavailableError as error:
                    failures.append(error)

        await asyncio.gather(*map(remove, paths))
        if failures and not gone:
            raise failures[0]
        return gone

    async def _remove_strays(self, limit: int, age: timedelta) -> int:
        """Delete files without a row. A row is written first, so a file that is a day old will not get one."""
        found = await self.store.list(TOP, after=self._places.get("strays", ""), limit=limit)
        self._places["strays"] = found[-1].path if len(found) == limit else ""
        old = [each.path for each in found if each.changed_at < datetime.now(UTC) - age]
        by_database: dict[int, tuple[Database, list[str]]] = {}
        for path in old:
            db = self._database(_tenant(path))
            by_database.setdefault(id(db), (db, []))[1].append(path)
        strays: set[str] = set()
        for db, paths in by_database.values():
            strays |= set(paths) - {row["path"] for row in await db.run(SQL["known"], paths)}
        return len(await self._remove_files(strays))


def named_in(text: str) -> list[str]:
    """The ids of artifacts that occur in a JSON text, each once and in order."""
    return list(dict.fromkeys(_NAMED.findall(text))) if '"art_' in text else []


def check_name(given: str) -> str:
    """Check the display name of a file."""
    if not given or len(given) > NAME_MAX or _CONTROL.search(given):
        raise InvalidError(f"The name must have 1 to {NAME_MAX} characters and no control characters.", field="name")
    return given


def parse(artifact_id: UUID | str) -> UUID:
    try:
        return ids.parse("art", artifact_id)
    except NotFoundError:
        raise NotFoundError(f"{str(artifact_id)[:60]!r} is not an artifact id.", field="id") from None


def folder(tenant: str) -> str:
    """The path below which the files of a tenant are."""
    part = quote(tenant, safe=":@+")
    return f"{TOP}{'%2E' + part[1:] if part.startswith('.') else part}/"


def _tenant(path: str) -> str:
    return unquote(path.split("/", 2)[1])


def _default_path(tenant: str, job_id: UUID | None, epoch: int | None, artifact_id: UUID, name: str) -> str:
    """A path that nothing else writes to: each attempt of a job has paths of its own."""
    if job_id is None:
        return f"{folder(tenant)}uploads/{artifact_id}/{_safe(name)}"
    attempt = "given" if epoch is None else str(epoch)
    return f"{folder(tenant)}jobs/{ids.text('job', job_id)}/{attempt}-{artifact_id}/{_safe(name)}"


def _safe(name: str) -> str:
    """A name that is safe in a path: it leads nowhere else, and is shortened but keeps its suffix."""
    clean = _UNSAFE.sub("_", name).lstrip(". ") or "file"
    stem, dot, suffix = clean.rpartition(".")
    if not stem or len(suffix.encode()) > _SUFFIX_MAX:
        stem, dot, suffix = clean, "", ""
    return stem.encode()[:_SAFE_BYTES].decode(errors="ignore").rstrip() + dot + suffix


def _checked_path(tenant: str, path: str) -> str:
    check_path(path)
    if not path.startswith(folder(tenant)):
        raise InvalidError(f"The path must begin with {folder(tenant)!r}, the folder of the tenant.", field="path")
    return path


def _compare(record: ArtifactRecord, what: str, expected: Any, found: Any) -> None:
    if expected is not None and expected != found:
        raise ArtifactMismatchError(
            f"The {what} of {record.id} ({record.name}) is {found}, but was announced as {expected}.",
            field=f"artifacts.{what}",
            artifact_id=record.id,
            expected=expected,
            found=found,
        )


def _words(row: Row) -> tuple[str, str]:
    """The texts by which the input of a job can name an artifact, as they appear in JSON."""
    return ids.text("art", row["id"]), msgspec.json.encode(row["path"]).decode()


def _before(artifact_id: UUID) -> UUID:
    """The lowest id of a job that can refer to this artifact."""
    milliseconds = int(_SKEW.total_seconds() * 1000)
    return UUID(int=max((artifact_id.int >> 80) - milliseconds, 0) << 80)
