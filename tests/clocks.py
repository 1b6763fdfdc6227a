"""Time travel, as the kit has it."""

from penstock.testing import Clock

__all__ = ["Clock"]
