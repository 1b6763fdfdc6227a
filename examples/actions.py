"""Runs a command on the server, and prints its output as it appears: `python examples/actions.py COMMAND ARGUMENT …`.

It needs a server, its URL in MILLPOND_URL and a client key in MILLPOND_API_KEY. The server runs only the commands that
its own MILLPOND_COMMANDS allows: MILLPOND_COMMANDS='{"count": ["seq"]}' millpond up --product actions
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx2

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = os.environ.get("MILLPOND_URL", "http://127.0.0.1:8686")
TRIES_MAX = 10


def main() -> None:
    command, *arguments = sys.argv[1:] or ("count", "5")
    body = {"action": "run-command", "input": {"command": command, "arguments": arguments}}
    with httpx2.Client(base_url=f"{SERVER}/actions/api/", timeout=30) as http:
        http.headers["Authorization"] = f"Bearer {os.environ['MILLPOND_API_KEY']}"
        answer = http.post("jobs", json=body, headers={"Idempotency-Key": str(uuid4())})
        if answer.is_error:
            sys.exit(answer.json()["detail"])
        print(f"{answer.json()['id']} is {answer.json()['state']}")
        for event, data in follow(http, f"jobs/{answer.json()['id']}/stream"):
            print(data["text"] if event == "log" else f"{data['state']}: {data['output']}")


def follow(http: httpx2.Client, path: str) -> Iterator[tuple[str, Any]]:
    """Every event of a stream, once; after a lost connection, continue after the last event that was received."""
    seen, tries = "", 0
    while tries < TRIES_MAX:
        try:
            with http.stream("GET", path, headers={"Last-Event-ID": seen} if seen else {}) as stream:
                stream.raise_for_status()
                event = ""
                for line in stream.iter_lines():
                    name, _, text = line.partition(": ")
                    if name == "event":
                        event = text
                    elif name == "id":
                        seen, tries = text, 0
                    elif name == "data":
                        yield event, json.loads(text)
                        if event == "status":
                            return
        except httpx2.TransportError:
            pass
        tries += 1
        time.sleep(1)
    sys.exit("The stream broke too often.")


if __name__ == "__main__":
    main()
