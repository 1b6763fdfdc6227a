"""Files in the test kit: storage of the test's own, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.testing import Lab
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import Iterator

import pytest


@pytest.fixture
def lab(dsn: str) -> Iterator[Lab]:
    made = Lab(dsn, app)
    yield made
    made.close()


def test_a_test_can_give_a_job_a_file_and_look_at_it(lab: Lab) -> None:
    picture = lab.upload(b"pixels", name="cat.png", content_type="image/png")
    job = lab.submit("free", {"image": picture.id})
    assert lab.download(picture) == b"pixels"
    assert lab.artifacts(job) == []
    assert lab.cancel(job).outcome == "canceled"
