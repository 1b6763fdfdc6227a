"""What the tests of the courier share."""

from __future__ import annotations

from tests.engine.conftest import post, post_office

__all__ = ["post", "post_office"]
