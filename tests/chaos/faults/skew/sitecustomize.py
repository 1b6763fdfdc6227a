"""Imported by every process under fault: its clock is off by as many seconds as a file says.

``datetime.now`` asks the system and not ``time.time``. It is replaced within its class: a subclass would be another
type to all that compares types, as msgspec does.
"""

import ctypes
import gc
import os
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

_FILE = Path(os.environ["FAULTS_CLOCK"])
_time, _time_ns, _now = time.time, time.time_ns, vars(datetime)["now"]


def _skew() -> float:
    try:
        return float(_FILE.read_text() or 0)
    except (OSError, ValueError):
        return 0.0


def _skewed_now(cls: type[datetime], tz: tzinfo | None = None) -> datetime:
    return _now.__get__(None, cls)(tz) + timedelta(seconds=_skew())


time.time = lambda: _time() + _skew()
time.time_ns = lambda: _time_ns() + int(_skew() * 1e9)
gc.get_referents(vars(datetime))[0]["now"] = classmethod(_skewed_now)
ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))
