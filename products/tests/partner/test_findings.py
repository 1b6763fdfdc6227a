"""What sources say, and how much of it is kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millpond_products.partner import findings

LONG = 'ü\\"\n' * 20_000
MUCH: dict[str, Any] = {
    "url": "https://s.example/a",
    "name": "n" * 200,
    "description": LONG,
    "image": f"https://s.example/{'i' * 100_000}",
    "isCut": True,
    "bytes": 2**60 // 1_000,
    "openGraph": {f"name-{n}": LONG for n in range(90)},
    "manifests": [{"path": f"p{n}", "dependencies": [f"{'d' * 110}-{m}" for m in range(60)]} for n in range(40)],
}


def test_what_is_not_too_much_is_kept_to_the_letter() -> None:
    found = {"name": "a", "manifests": MUCH["manifests"][:3], "description": "b" * 5_000}
    assert findings.bounded(found, field="github") == found


def test_what_is_too_much_is_said_shorter() -> None:
    described = findings.bounded(MUCH, field="website")
    assert len(msgspec.json.encode(described)) <= findings.SIZE_MAX
    assert list(described) == list(MUCH)
    assert (described["url"], described["isCut"], described["bytes"]) == (MUCH["url"], True, MUCH["bytes"])
    assert described["description"].endswith("…")
    assert described["image"] == ""
    assert described["manifests"][0]["dependencies"]


@pytest.mark.parametrize("member", MUCH)
def test_each_of_them_has_room_alone(member: str) -> None:
    assert findings.bounded({member: MUCH[member]}, field="x")[member] is not None
