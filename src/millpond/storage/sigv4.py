"""AWS Signature Version 4 in the query of a URL: each URL allows one operation in a bucket for a limited time.

obstore signs URLs too, but not their headers and query parameters. Without those, an upload URL would accept a file of
any type and any size, and a download URL could not set the file name. So Millpond signs URLs itself: a hash and five
HMACs, which the tests compare with botocore's signer. Nothing here does input or output.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """The credentials that sign."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None


def presign(
    keys: SigningKeys,
    method: str,
    url: str,
    *,
    region: str,
    at: datetime,
    seconds: int,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
) -> str:
    """Sign a URL for a request with exactly these headers. Its path must already be encoded as S3 requires."""
    place = urlsplit(url)
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    signed = {"host": place.netloc} | {name.lower(): value.strip() for name, value in (headers or {}).items()}
    parameters = {
        **(query or {}),
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{keys.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(seconds),
        "X-Amz-SignedHeaders": ";".join(sorted(signed)),
    }
    if keys.session_token is not None:
        parameters["X-Amz-Security-Token"] = keys.session_token
    pairs = "&".join(f"{name}={value}" for name, value in sorted((encode(n), encode(v)) for n, v in parameters.items()))
    lines = "".join(f"{name}:{value}\n" for name, value in sorted(signed.items()))
    canonical = "\n".join((method, place.path or "/", pairs, lines, parameters["X-Amz-SignedHeaders"], _UNSIGNED))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
    signature = hmac.new(_key(keys.secret_key, stamp[:8], region), text.encode(), hashlib.sha256).hexdigest()
    return f"{place.scheme}://{place.netloc}{place.path or '/'}?{pairs}&X-Amz-Signature={signature}"


def encode(text: str, safe: str = "") -> str:
    """Percent-encode as the signature requires."""
    return quote(text, safe=f"{safe}-_.~")


@lru_cache(16)
def _key(secret: str, day: str, region: str) -> bytes:
    """The signing key, which is the same for a whole day and therefore cached."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
