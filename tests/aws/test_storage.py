"""The keys of a bucket, from the role of a web identity."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from millpond.errors import StorageUnavailableError
from millpond.storage.credentials import fetch_keys

if TYPE_CHECKING:
    from pathlib import Path

    from tests.aws.amazon import Amazon


async def test_a_web_identity_is_exchanged_for_keys(amazon: Amazon, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.signed.token\n")
    environ = {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/web-servers",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_ENDPOINT_URL_STS": amazon.url,
    }
    keys = await fetch_keys(environ)
    assert keys.session_token
    assert keys.expires_at is not None
    assert keys.expires_at > datetime.now(UTC)
    amazon.refusals.append((403, "AccessDenied"))
    with pytest.raises(StorageUnavailableError, match="403"):
        await fetch_keys(environ)
