"""All five contracts, sentence by sentence, against processes that anybody can start."""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("effects", "studio", "guard", "partner", "actions", "towns"))
)
