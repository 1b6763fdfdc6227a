"""Advice: what to do about each problem, by its code. The pages about problems are made from it."""

from __future__ import annotations

from typing import Final

ADVICE: Final[dict[str, str]] = {
    "error": "It is a fault of ours, not of the request. Try again; if it stays, report the request id.",
    "invalid": "Look at `field`: it names what is wrong, and `detail` what was expected. Correct it and send it again.",
    "unknown_kind": "Look at `GET /v1/kinds` for the kinds that this server has.",
    "unknown_route": "Look at `GET /v1/routes` for the routes there are; a kind that runs on the fleet has its own.",
    "invalid_input": "Look at `field` and at the `input_schema` of the kind (`GET /v1/kinds/{kind}`).",
    "invalid_amount": "Send a whole number of credits within the limits that `detail` tells.",
    "invalid_idempotency_key": "Use 1 to 255 printable ASCII characters without spaces; a UUID will do.",
    "artifact_missing": "PUT the file to its signed URL, then try again; ask for a new URL if it has expired.",
    "artifact_mismatch": "Compare `expected` with `found`, and upload what was announced, or announce what there is.",
    "invalid_settings": "Correct the environment variables that `detail` names, and start the server again.",
    "range_not_satisfiable": "Ask for bytes within the `size` of the file, or for all of it.",
    "bad_request": "Correct the request as `detail` says.",
    "malformed": "Send HTTP/1.1 with a body that is one JSON object in UTF-8, and a percent-encoded query.",
    "method_not_allowed": "Use one of the methods in the `Allow` header.",
    "not_acceptable": "Leave the `Accept` header out, or name a form that `detail` offers.",
    "too_large": "Send less: 1 MiB a request, 16 MiB for many jobs. Store large data and pass where it is.",
    "head_too_large": "Send shorter headers and a shorter address: 32 KiB together.",
    "too_slow": "Send the headers within 10 seconds and the body within a minute.",
    "unsupported_media_type": "Set `Content-Type: application/json` and send the body uncompressed.",
    "unauthorized": "Send a key as `Authorization: Bearer KEY`. If you did: it is mistyped, revoked or expired.",
    "session_missing": "Sign in: `POST /ui/session` with a key of scope viewer, operator or admin. A key in a header"
    " does not open what is under `/ui`.",
    "session_expired": "Sign in again. Its time was up, nobody used it for long, or its key was revoked.",
    "csrf": "Send it from the dashboard's own page, with the `csrf` of `GET /ui/session` as `Millpond-Csrf`. Behind a"
    " proxy, let that pass the `Host` header on, or set `MILLPOND_PUBLIC_URL`.",
    "forbidden": "Use a key of the scope that `needed` tells, or one for this tenant and account.",
    "worker_revoked": "An operator has thrown this worker out. Ask them; it cannot come back by itself.",
    "worker_unapproved": "Wait until an operator approves it (`millpond workers approve`), and ask again.",
    "rate_limited": "Wait as long as `Retry-After` says. `RateLimit` tells ahead of time how many requests are left.",
    "not_found": "Check the id and the path. What belongs to another tenant looks absent too.",
    "conflict": "Read the present state, and decide anew.",
    "idempotency_conflict": "Use a new key for a new request; to repeat a request, send exactly the same.",
    "move_denied": "Look at the lifecycle of the kind: it draws the moves that there are.",
    "cancel_unavailable": "The job has come to a stage that cannot be interrupted, or its kind takes no cancels.",
    "retry_unavailable": "Wait until the job has ended; some ends cannot be retried.",
    "answer_unavailable": "Only a job in phase `parked` takes an answer, and only one.",
    "refund_unavailable": "Only what an ended job has cost can be given back, and only once.",
    "priority_unavailable": "Only a job in phase `waiting` or `ready` still has its turn before it.",
    "worker_alive": "Two workers must not share a name. If the other one has died, come again after `Retry-After`.",
    "lease_lost": "The job was given to another worker, or ended: drop the result.",
    "fleet_full": "Wait until a worker has left, or let the operator raise MILLPOND_FLEET_MAX.",
    "insufficient_credits": "Grant credits to the account: `required` and `available` tell how many.",
    "too_many_active_jobs": "Wait until jobs of the account have ended, or raise its cap.",
    "invalid_lifecycle": "Correct the declaration that `detail` names; it is refused when the app is loaded.",
    "handler_failed": "Look at the job's error and its log.",
    "transient": "The job is tried again by itself.",
    "permanent": "Look at the job's error; another try would end the same way.",
    "blocked": "The content is not allowed; change the input.",
    "canceled": "Nothing is to be done: somebody wanted it so.",
    "time_limit": "Let the kind run longer, or give it less to do.",
    "stalled": "Let the code say how far it is (`job.progress`, `job.log`, `job.checkpoint`), or allow more silence.",
    "interrupted": "Nothing is to be done: the job goes to another worker by itself.",
    "store": "The database cannot be used now. Try again after a moment.",
    "embedded_postgres": "Look at the server's log for why its PostgreSQL does not start.",
    "migration": "Run `millpond db migrate`, and look at what it says.",
    "overdue": "Ask for less: a shorter time, one tenant, one kind. What must be whole is asked with the command line,"
    " which may take its time. An operator may raise `MILLPOND_UI_TIMEOUT`.",
    "busy": "Send it again in a moment. Somebody holds a transaction open in which this account's jobs are submitted.",
    "bad_signature": "Use the URL as it was given, with its method and headers, or ask for a new one.",
    "url_refused": "Name a URL that the whole world can reach: `http` or `https`, no name or password, and no address"
    " inside a network. For development, an operator opens addresses with `MILLPOND_OUTBOUND_ALLOW`.",
    "outbound_failed": "`reason` says how far the call came. Look whether the URL answers from where the server runs;"
    " it may be tried again.",
    "webhook_invalid": "Check it with the secret of this very endpoint, over the bytes of the body as they came, and by"
    " a clock that is right. If it still fails, it is not from Millpond: do not act on it.",
    "content_blocked": "`verdicts` says which rule and where. Change the input, or have an operator change the rules.",
    "provider_missing": "Set `REPLICATE_API_TOKEN`, or start a renderer and set `MILLPOND_RENDERER_URL`."
    " Nothing was charged.",
    "gate_missing": "Declare the gate that the kind names, in every process: `app.gate(name, gate)`."
    " Nothing was charged.",
    "vault_unavailable": "Set `MILLPOND_ENCRYPTION_KEY` to the key that this database knows, on every process.",
    "url_expired": "Ask for a new URL: the artifact is read with one (`GET /v1/artifacts/{id}`).",
    "storage_unavailable": "Try again after a moment; if it stays, look at the storage settings and the server's log.",
    "unavailable": "Try again after `Retry-After`; a submit with an idempotency key is done once at most.",
}
