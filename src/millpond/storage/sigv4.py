"""AWS Signature Version 4 in a query: URLs with which anybody may do one thing in a bucket, for a while.

obstore signs URLs too, but neither headers nor query parameters with them. Without those a URL to upload to would take
a file of any type and any size, and a URL to download from could not name the file. So this is ours: a hash and five
HMACs, held against botocore's signer by the tests. Nothing here does input or output.
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
class Keys:
    """Who signs."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def presign(
    keys: Keys,
    method: str,
    url: str,
    *,
    region: str,
    at: datetime,
    seconds: int,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
) -> str:
    """The URL, signed for a request with exactly these headers. Its path must be encoded already, as S3 wants it."""
    place = urlsplit(url)
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    signed = {"host": place.netloc} | {name.lower(): value.strip() for name, value in (headers or {}).items()}
    asked = {
        **(query or {}),
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{keys.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(seconds),
        "X-Amz-SignedHeaders": ";".join(sorted(signed)),
    }
    if keys.session_token is not None:
        asked["X-Amz-Security-Token"] = keys.session_token
    pairs = "&".join(f"{name}={value}" for name, value in sorted((encode(n), encode(v)) for n, v in asked.items()))
    lines = "".join(f"{name}:{value}\n" for name, value in sorted(signed.items()))
    canonical = "\n".join((method, place.path or "/", pairs, lines, asked["X-Amz-SignedHeaders"], _UNSIGNED))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
    signature = hmac.new(_key(keys.secret_key, stamp[:8], region), text.encode(), hashlib.sha256).hexdigest()
    return f"{place.scheme}://{place.netloc}{place.path or '/'}?{pairs}&X-Amz-Signature={signature}"


def encode(text: str, safe: str = "") -> str:
    """Percent-encoded as the signature wants it."""
    return quote(text, safe=f"{safe}-_.~")


@lru_cache(16)
def _key(secret: str, day: str, region: str) -> bytes:
    """The key of a day: it is the same for all that is signed on it."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
