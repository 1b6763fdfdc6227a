"""Files in the test kit: storage of the test's own, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.testing import Harness
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import Iterator

import pytest


@pytest.fixture
def harness(dsn: str) -> Iterator[Harness]:
    made = Harness(dsn, app)
    yield made
    made.close()


def test_a_test_can_give_a_job_a_file_and_look_at_it(harness: Harness) -> None:
    picture = harness.upload(b"pixels", name="cat.png", content_type="image/png")
    job = harness.submit("free", {"image": picture.id})
    assert harness.download(picture) == b"pixels"
    assert harness.artifacts(job) == []
    assert harness.cancel(job).outcome == "canceled"
