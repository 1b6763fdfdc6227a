"""Our presigner against botocore's: the same request, the same URL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from millpond.errors import SettingsError
from millpond.storage.s3 import S3
from millpond.storage.sigv4 import SigningKeys, encode, presign
from tests.storage.backends import MINUTE

AT = datetime(2026, 11, 16, 3, 4, 5, tzinfo=UTC)
KEYS = SigningKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
SESSION = SigningKeys("ASIAEXAMPLE", "secret", "a+very/long==token")


def by_botocore(
    monkeypatch: pytest.MonkeyPatch, keys: SigningKeys, method: str, url: str, region: str, seconds: int, **given: Any
) -> str:
    monkeypatch.setattr(auth, "get_current_datetime", lambda: AT.replace(tzinfo=None))
    asked = f"?{urlencode(given['query'], quote_via=quote)}" if given.get("query") else ""
    request = AWSRequest(method=method, url=url + asked, headers=given.get("headers"))
    credentials = Credentials(keys.access_key, keys.secret_key, keys.session_token)
    auth.S3SigV4QueryAuth(credentials, "s3", region, expires=seconds).add_auth(request)
    return str(request.url)


CASES: dict[str, dict[str, Any]] = {
    "get": {"method": "GET", "url": "https://bucket.s3.eu-central-1.amazonaws.com/a/b.png"},
    "get with a name": {
        "method": "GET",
        "url": "https://bucket.s3.eu-central-1.amazonaws.com/a/b.png",
        "query": {"response-content-disposition": "inline; filename=\"x y.png\"; filename*=UTF-8''x%20y.png"},
    },
    "put with what it is held to": {
        "method": "PUT",
        "url": "http://127.0.0.1:8333/artifacts/tenants/acme/out.png",
        "headers": {
            "Content-Type": "image/png",
            "Content-Length": "2048",
            "x-amz-checksum-sha256": "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=",
        },
    },
    "path that needs encoding": {
        "method": "GET",
        "url": f"http://127.0.0.1:8333/artifacts/{encode('ü 漢/100%/q?x#y&z+(1)~.png', safe='/')}",
    },
    "session": {"method": "PUT", "url": "https://b.s3.us-east-1.amazonaws.com/x", "keys": SESSION},
    "root": {"method": "GET", "url": "https://b.s3.us-east-1.amazonaws.com/"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_url_is_the_one_that_botocore_signs(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"keys": KEYS, "region": "eu-central-1", "seconds": 900} | CASES[case]
    theirs = urlsplit(by_botocore(monkeypatch, **given))
    keys, method, url = given.pop("keys"), given.pop("method"), given.pop("url")
    ours = urlsplit(presign(keys, method, url, at=AT, **given))
    assert (ours.scheme, ours.netloc, ours.path) == (theirs.scheme, theirs.netloc, theirs.path)
    assert dict(parse_qsl(ours.query, strict_parsing=True)) == dict(parse_qsl(theirs.query, strict_parsing=True))
    assert "X-Amz-Signature=" in ours.query


@pytest.mark.parametrize(
    ("url", "begin"),
    [
        ("s3://pics", "https://pics.s3.us-east-1.amazonaws.com/a%20b?"),
        ("s3://pics/pre/fix/?region=eu-west-1", "https://pics.s3.eu-west-1.amazonaws.com/pre/fix/a%20b?"),
        ("s3://pics/x?region=eu-west-1&style=path", "https://s3.eu-west-1.amazonaws.com/pics/x/a%20b?"),
        ("s3://pics?endpoint=http://127.0.0.1:9000", "http://127.0.0.1:9000/pics/a%20b?"),
        ("s3://pics?endpoint=https://s3.test:443", "https://s3.test/pics/a%20b?"),
        ("s3://pics?endpoint=http://[::1]:9000/store/", "http://[::1]:9000/store/pics/a%20b?"),
        ("s3://pics/x?endpoint=https://s3.test&style=host", "https://pics.s3.test/x/a%20b?"),
    ],
)
def test_the_settings_say_where_a_bucket_is(url: str, begin: str) -> None:
    store = S3.from_url(url, {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"})
    signed = store.sign_put("a b", lifetime=MINUTE, content_type="image/png", size=3)
    assert signed.url.startswith(begin)
    assert "X-Amz-SignedHeaders=content-length%3Bcontent-type%3Bhost%3Bif-none-match" in signed.url
    assert signed.headers == {"Content-Type": "image/png", "If-None-Match": "*"}


def test_a_session_token_is_part_of_what_is_signed() -> None:
    names = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
    store = S3.from_url("s3://pics", {f"AWS_{name}": "x/y" for name in names})
    assert "X-Amz-Security-Token=x%2Fy" in store.sign_get("a", lifetime=MINUTE).url


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///x", "s3://b?colour=red", "s3://b?style=round", "s3://b?endpoint=ftp://x", "s3://b?endpoint=http://x:y"]
)  # fmt: skip
def test_what_names_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(SettingsError) as raised:
        S3.from_url(url, {})
    assert raised.value.field == "storage"


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(SESSION)
    assert "token" not in repr(SESSION).replace("session_token", "")
