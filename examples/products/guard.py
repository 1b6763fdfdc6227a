"""Guard in the demo: a message and its answer, filtered on their way; a signed webhook says what may go out."""

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
        asked = {"message_input": MESSAGE, "message_output": ANSWER, "webhook_url": f"{ready['url']}/inbox/demo"}
        made = self.call("POST", "/v1/jobs", asked)

        def read() -> tuple[Any, str, str]:
            job = self.call("GET", f"/v1/jobs/{made['job_id']}")
            return job, job["status"], ""

        self.end_of("a message", read)
        inbox = self.stage.call("GET", "/inbox.json", key=ready["admin_key"])["data"]
        (came,) = [each for each in inbox if made["job_id"] in each["body"]]
        webhooks.verify(came["body"], dict(came["headers"]), made["webhook_secret"])
        told = json.loads(came["body"])["data"]
        return (
            "guard filtered a message and its answer, and a signed webhook brought them",
            f"in:  {told['inbound']['text']}",
            f"out: {told['outbound']['text']}",
            self.kept(self.keep("webhook.json", came["body"])),
        )
