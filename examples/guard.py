"""Filters a message before and after a model, as a client of guard: `python examples/guard.py "TEXT"`.

It needs a server (`millpond up --product guard`), its URL in MILLPOND_URL and a client key in MILLPOND_API_KEY. With an
operator's key in ADMIN_KEY and the name of the tenant in TENANT, it creates a rule first; without rules, all text
passes.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx2

from millpond import webhooks

SERVER = os.environ.get("MILLPOND_URL", "http://127.0.0.1:8686")
arrived: queue.Queue[tuple[bytes, dict[str, str]]] = queue.Queue()


class Receiver(BaseHTTPRequestHandler):
    """Receives webhooks, and puts them into a queue."""

    def do_POST(self) -> None:
        arrived.put((self.rfile.read(int(self.headers["content-length"])), dict(self.headers)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    message = sys.argv[1] if len(sys.argv) > 1 else "I am ada@example.com. What do you think?"
    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with httpx2.Client(base_url=f"{SERVER}/guard/v1/", timeout=30) as http:
        http.headers["Authorization"] = f"Bearer {os.environ['MILLPOND_API_KEY']}"
        if admin := os.environ.get("ADMIN_KEY"):
            rule = {"name": "No addresses", "direction": "both", "action": "redact", "matcher": {"type": "pii"}}
            headers = {"Authorization": f"Bearer {admin}"}
            json_of(http.post("rules", json=rule, headers=headers, params={"tenant": os.environ["TENANT"]}))
        hook = f"http://127.0.0.1:{receiver.server_port}/hooks"
        job = json_of(http.post("jobs", json={"message_input": message, "webhook_url": hook}))
        passed = next_webhook(job["webhook_secret"])
        print(f"{passed['event']}: {passed['data']['inbound']['text']}")
        response = f"You said: {message}"  # call your model here, with the text that has passed
        json_of(http.post(f"jobs/{job['job_id']}/response", json={"message_output": response}))
        passed = next_webhook(job["webhook_secret"])
        print(f"{passed['event']}: {passed['data']['outbound']['text']}")


def next_webhook(secret: str) -> Any:
    """Wait for the next webhook, and verify its signature."""
    body, headers = arrived.get(timeout=30)
    return webhooks.verify(body, headers, secret)


def json_of(answer: httpx2.Response) -> Any:
    return answer.json() if answer.is_success else sys.exit(f"{answer.request.url}: {answer.text}")


if __name__ == "__main__":
    main()
