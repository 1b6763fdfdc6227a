"""Imported by every process under fault: its clock is off by as many seconds as a file says."""

import os
import time
from pathlib import Path

_FILE = Path(os.environ["FAULTS_CLOCK"])
_time, _time_ns = time.time, time.time_ns


def _skew() -> float:
    try:
        return float(_FILE.read_text() or 0)
    except (OSError, ValueError):
        return 0.0


time.time = lambda: _time() + _skew()
time.time_ns = lambda: _time_ns() + int(_skew() * 1e9)
