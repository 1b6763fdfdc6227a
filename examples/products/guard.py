"""Guard in the demo: filters a message and its answer; a signed webhook contains the filtered texts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from examples.products.part import Part

from millpond import webhooks

MESSAGE = "Hi! I am Ada, write to ada@example.com, my card is 4111 1111 1111 1111."
ANSWER = "Thank you, Ada. Our staff key is AKIAIOSFODNN7EXAMPLE."
RULES = (
    {"name": "No addresses", "direction": "both", "action": "redact", "matcher": {"type": "pii"}},
    {"name": "No keys", "direction": "outbound", "action": "redact", "matcher": {"type": "secrets"}},
)


@dataclass(slots=True, kw_only=True)
class Guard(Part):
    name: ClassVar[str] = "guard"

    def play(self) -> tuple[str, ...]:
        ready = self.stage.ready
        for rule in RULES:
            self.call("POST", f"/v1/rules?tenant={ready['tenant']}", rule, key=ready["admin_key"])
        body = {"message_input": MESSAGE, "message_output": ANSWER, "webhook_url": f"{ready['url']}/inbox/demo"}
        made = self.call("POST", "/v1/jobs", body)

        def read() -> tuple[Any, str, str]:
            job = self.call("GET", f"/v1/jobs/{made['job_id']}")
            return job, job["status"], ""

        self.end_of("a message", read)
        inbox = self.stage.call("GET", "/inbox.json", key=ready["admin_key"])["data"]
        (webhook,) = [each for each in inbox if made["job_id"] in each["body"]]
        webhooks.verify(webhook["body"], dict(webhook["headers"]), made["webhook_secret"])
        data = json.loads(webhook["body"])["data"]
        return (
            "guard filtered a message and its answer, and sent them in a signed webhook",
            f"in:  {data['inbound']['text']}",
            f"out: {data['outbound']['text']}",
            self.kept(self.keep("webhook.json", webhook["body"])),
        )
