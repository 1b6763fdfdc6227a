"""How long a test waits before it calls what it waits for a hang.

Nothing waits this long when all is well, so it costs nothing to be generous; a machine that has twenty times as much
to do as usual is slow, and not wrong. It is well below ``faulthandler_timeout``, so a hang is told by the test itself.
"""

PATIENCE = 60.0
"""In seconds."""
