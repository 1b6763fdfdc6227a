"""Where a server listens, and enough of the wire protocol to connect to it without a driver."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from millpond.errors import EmbeddedPostgresError

if TYPE_CHECKING:
    from io import BufferedRWPair
    from pathlib import Path

NAME = "millpond"  # of the database and of its superuser
PORT = 5432  # only a part of the socket's file name
SOCKET = f".s.PGSQL.{PORT}"

_ANSWER_SECONDS = 10.0
_HEAD = struct.Struct("!ci")  # a message's kind, and its length without the kind


def dsn(socket_dir: Path) -> str:
    return f"postgresql://{NAME}@/{NAME}?host={quote(str(socket_dir), safe='')}&port={PORT}"


@dataclass(frozen=True, slots=True)
class _Reply:
    """A server's response: its version, or the SQLSTATE and message of an error."""

    version: str = ""
    failure: str = ""
    message: str = ""


def greet(socket_dir: Path) -> str | None:
    """The version of the server with Millpond's database, which is created if it is missing; None if none responds."""
    reply = _ask(socket_dir, NAME)
    if reply is not None and reply.failure == "3D000":  # the database does not exist: create it
        _ask(socket_dir, "postgres", f"create database {NAME}")
        reply = _ask(socket_dir, NAME)
    if reply is None or reply.failure.startswith("57P"):  # starting up or shutting down
        return None
    if reply.failure:
        raise EmbeddedPostgresError(
            f"The server at {socket_dir} rejected the connection: {reply.message} ({reply.failure}).",
            hint="Stop other users of the server, or restore its default settings.",
        )
    return reply.version.split()[0]


def _ask(socket_dir: Path, database: str, statement: str = "") -> _Reply | None:
    """Connect, and run a statement if one is given; None if no server responds."""
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(_ANSWER_SECONDS)
            peer.connect(str(socket_dir / SOCKET))
            with peer.makefile("rwb") as stream:
                return _converse(stream, database, statement)
    except (OSError, EOFError):
        return None


def _converse(stream: BufferedRWPair, database: str, statement: str) -> _Reply:
    names = f"user\0{NAME}\0database\0{database}\0\0".encode()
    stream.write(struct.pack("!ii", len(names) + 8, 3 << 16) + names)
    reply = _read_reply(stream)
    if statement and not reply.failure:
        query = statement.encode() + b"\0"
        stream.write(_HEAD.pack(b"Q", len(query) + 4) + query)
        reply = _read_reply(stream)
    return reply


def _read_reply(stream: BufferedRWPair) -> _Reply:
    stream.flush()
    version = ""
    while True:
        kind, body = _read_message(stream)
        if kind == b"S" and body.startswith(b"server_version\0"):
            version = body.split(b"\0")[1].decode()
        elif kind == b"E":
            fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0")}
            return _Reply(failure=fields[b"C"], message=fields[b"M"])
        elif kind == b"Z":
            return _Reply(version=version)


def _read_message(stream: BufferedRWPair) -> tuple[bytes, bytes]:
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    kind, length = _HEAD.unpack(head)
    return kind, stream.read(length - 4)
