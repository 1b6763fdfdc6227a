"""The temporary credentials of a role, for a bucket without keys of its own.

The sources are those of Amazon's libraries, in the same order: a web identity (EKS), a container (ECS, EKS Pod
Identity), the instance (EC2). botocore would be 29 MB for three requests, and obstore does not reveal what it finds.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import httpx2
import msgspec

from millpond.errors import StorageUnavailableError, UnavailableError
from millpond.integrations.aws.metadata import Metadata
from millpond.storage.sigv4 import SigningKeys

if TYPE_CHECKING:
    from collections.abc import Mapping

_EARLY: Final = timedelta(minutes=15)
"""How long before their end keys are renewed. Amazon provides new ones at least five minutes before."""
_LATE: Final = timedelta(seconds=30)
"""How long before their end keys are no longer used."""
_PAUSE: Final = 10.0  # seconds from the start of one renewal to the next
_FETCH_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = 3.0
_REGION: Final = "us-east-1"
_CONTAINER_URL: Final = "http://169.254.170.2"
_ROLES: Final = "meta-data/iam/security-credentials/"
_HINT: Final = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role that may use the bucket."


class RoleKeys:
    """Temporary keys: fetched when they are first needed, and renewed before they expire.

    A thread renews them while the present ones are still valid, because signing must not wait. It waits only if there
    are no valid keys: the first time, and when they could not be renewed.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._lock = threading.Lock()
        self._keys: SigningKeys | None = None
        self._renewal: Future[SigningKeys] | None = None
        self._began = 0.0

    def __call__(self) -> SigningKeys:
        keys = self._keys
        if keys is not None and _left(keys) > _EARLY:
            return keys
        renewal, began = self._renew()
        if keys is not None and _left(keys) > _LATE:
            return keys
        try:
            return renewal.result(max(0.0, began + _WAIT_SECONDS - time.monotonic()))
        except TimeoutError as error:
            raise _unavailable("they are still being fetched") from error

    def _renew(self) -> tuple[Future[SigningKeys], float]:
        """The renewal that runs, or that has just run; otherwise a new one."""
        with self._lock:
            present = time.monotonic()
            if self._renewal is None or (self._renewal.done() and present - self._began > _PAUSE):
                self._renewal, self._began = Future(), present
                threading.Thread(target=self._run, args=(self._renewal,), name="storage keys", daemon=True).start()
            return self._renewal, self._began

    def _run(self, renewal: Future[SigningKeys]) -> None:
        try:
            self._keys = asyncio.run(fetch_keys(self._environ))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is read
            renewal.set_exception(error)
        else:
            renewal.set_result(self._keys)


def _left(keys: SigningKeys) -> timedelta:
    return timedelta.max if keys.expires_at is None else keys.expires_at - datetime.now(UTC)


class _Credentials(msgspec.Struct):
    """What all sources return."""

    access_key: str = msgspec.field(name="AccessKeyId")
    secret_key: str = msgspec.field(name="SecretAccessKey")
    expires_at: datetime = msgspec.field(name="Expiration")
    token: str | None = msgspec.field(name="Token", default=None)

    def keys(self) -> SigningKeys:
        return SigningKeys(self.access_key, self.secret_key, self.token or None, self.expires_at)


async def fetch_keys(environ: Mapping[str, str]) -> SigningKeys:
    """The keys of the role that this process has; raises :class:`StorageUnavailableError`."""
    try:
        async with asyncio.timeout(_FETCH_SECONDS):
            return (await _fetch(environ)).keys()
    except TimeoutError as error:
        raise _unavailable(f"there was no response within {_FETCH_SECONDS:g} seconds") from error
    except (httpx2.HTTPError, OSError, UnavailableError, msgspec.DecodeError, ET.ParseError) as error:
        raise _unavailable(str(error) or type(error).__name__) from error


async def _fetch(environ: Mapping[str, str]) -> _Credentials:
    if environ.get("AWS_ROLE_ARN") and environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return await _of_web_identity(environ)
    path, url = (environ.get(f"AWS_CONTAINER_CREDENTIALS_{name}_URI", "") for name in ("RELATIVE", "FULL"))
    if path or url:
        return await _of_container(f"{_CONTAINER_URL}{path}" if path else url, environ)
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise UnavailableError("there are none")
    return await _of_instance(environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT"))


async def _of_web_identity(environ: Mapping[str, str]) -> _Credentials:
    """Exchange the token of a file, which is replaced regularly, for keys."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or _REGION
    form = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": environ["AWS_ROLE_ARN"],
        "RoleSessionName": environ.get("AWS_ROLE_SESSION_NAME") or "millpond",
        "WebIdentityToken": _content(environ["AWS_WEB_IDENTITY_TOKEN_FILE"]),
    }
    async with httpx2.AsyncClient() as http:
        url = environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
        response = await http.post(url, data=form)
    response.raise_for_status()
    found = ET.fromstring(response.text).find(".//{*}Credentials")  # noqa: S314 - Amazon's, over TLS
    members: dict[str, Any] = {} if found is None else {each.tag.rpartition("}")[2]: each.text for each in found}
    return msgspec.convert(members | {"Token": members.get("SessionToken")}, _Credentials)


async def _of_container(url: str, environ: Mapping[str, str]) -> _Credentials:
    file = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    token = _content(file) if file else environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    async with httpx2.AsyncClient(trust_env=False) as http:  # a proxy would see the keys
        response = await http.get(url, headers={"Authorization": token} if token else {})
    response.raise_for_status()
    return msgspec.json.decode(response.content, type=_Credentials)


async def _of_instance(url: str | None) -> _Credentials:
    async with Metadata(url) as metadata:
        roles = await metadata.read(_ROLES)
        names = roles.text.split() if roles else []
        found = await metadata.read(f"{_ROLES}{names[0]}") if names else None
    if found is None:
        raise UnavailableError("the instance has no role")
    return msgspec.json.decode(found.text, type=_Credentials)


def _content(file: str) -> str:
    return Path(file).read_text("utf-8").strip()


def _unavailable(reason: str) -> StorageUnavailableError:
    return StorageUnavailableError(f"The credentials of the bucket could not be fetched: {reason}.", hint=_HINT)
