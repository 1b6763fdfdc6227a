"""What the products' programs share. They are started by hand, and print their address, or by ``up`` or ``serve``."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from millpond import lifeline, logs
from millpond.errors import ConflictError, MillpondError, SettingsError
from millpond.log_sink import write_soon

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Generator

SETTINGS_EXIT = 5
"""The exit status of a program that cannot run as configured; the supervisor does not restart it."""


def add_options(parser: argparse.ArgumentParser, *, host: str, port: int) -> None:
    add = parser.add_argument
    add("--host", default=host, help="the address to listen on [default: %(default)s]")
    add("--port", type=int, default=port, help="the port; 0 for any free port [default: %(default)s]")
    add("--ready-file", type=Path, help="also write the JSON line to this file, and remove the file at exit")


def run(program: Callable[[], None]) -> None:
    """Run a program; a :class:`MillpondError` is printed in one line, without a traceback."""
    lifeline.stop_with_parent()
    logs.configure()
    try:
        program()
    except MillpondError as error:
        hint = f" {error.hint}" if error.hint else ""
        sys.stderr.write(f"{error.message}{hint}\n")
        sys.exit(SETTINGS_EXIT)


@contextlib.contextmanager
def announced(line: dict[str, Any], file: Path | None, exports: dict[str, str]) -> Generator[None]:
    """Print the program's address as a line of JSON and, on a terminal, the variables with which to use it."""
    text = msgspec.json.encode(line).decode() + "\n"
    if file is not None:
        _write_private(file, text)  # before the line is printed, because its reader may open the file at once
    try:
        write_soon(sys.stdout, text)
        if exports and sys.stderr.isatty():
            logs.write("export " + " ".join(f"{name}={value}" for name, value in exports.items()) + "\n")
        yield
    finally:
        if file is not None:
            file.unlink(missing_ok=True)


def _write_private(file: Path, text: str) -> None:
    """Write a file atomically, readable by its owner alone, because it contains a key."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.touch(mode=0o600)
        draft.write_text(text)
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise SettingsError(f"{file} cannot be written: {error.strerror}.", field="ready_file") from error


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno or 0) if error.errno in errno.errorcode else str(error)
        message = f"Cannot listen on {host}, port {port}: {reason}."
        raise ConflictError(message, field="port", hint="Choose another --port; 0 takes any free port.") from error
