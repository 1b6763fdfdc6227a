"""Time travel, as the kit has it."""

from millpond.testing import Clock

__all__ = ["Clock"]
