"""Advice: what to do about each problem, by its code. The pages about problems are made from it."""

from __future__ import annotations

from typing import Final

ADVICE: Final[dict[str, str]] = {
    "error": "The server failed; the request is not at fault. Try again. If the error persists, report the request id.",
    "invalid": "Correct the field named in `field`; `detail` states what is expected.",
    "unknown_kind": "List the kinds of this server with `GET /v1/kinds`.",
    "unknown_route": "List the existing routes with `GET /v1/routes`. Every kind that runs on the fleet "
    "has its own route.",
    "invalid_input": "Compare the field named in `field` with the `input_schema` of the kind (`GET /v1/kinds/{kind}`).",
    "invalid_amount": "Send a whole number of credits within the limits stated in `detail`.",
    "invalid_idempotency_key": "Use 1 to 255 printable ASCII characters without spaces, for example a UUID.",
    "tree_too_large": "Submit fewer children, or fewer levels of them: `detail` states the limit. Jobs that do not "
    "belong together can be submitted as separate jobs.",
    "child_cycle": "Change the kind or the input of the child, so that the tree ends.",
    "artifact_missing": "PUT the file to its signed URL, then try again. If the URL has expired, request a new one.",
    "artifact_mismatch": "Compare `expected` with `found`. Upload the announced file, or announce the "
    "file again with its real size and checksum.",
    "artifact_stored": "No action is needed if an earlier try has uploaded this file. To store another one, "
    "announce it: stored files do not change.",
    "invalid_settings": "Correct the environment variables named in `detail` and restart the server.",
    "range_not_satisfiable": "Request a byte range within the `size` of the file, or the whole file.",
    "bad_request": "Correct the request as described in `detail`.",
    "malformed": "Send HTTP/1.1 with a body that is one JSON object in UTF-8, and a percent-encoded query.",
    "method_not_allowed": "Use one of the methods in the `Allow` header.",
    "not_acceptable": "Omit the `Accept` header, or accept one of the media types listed in `detail`.",
    "too_large": "Send at most 1 MiB per request, or 16 MiB for bulk submits. Store larger data "
    "elsewhere and pass its URL.",
    "head_too_large": "Send shorter headers and a shorter URL; the limit is 32 KiB in total.",
    "too_slow": "Send the headers within 10 seconds and the body within one minute.",
    "unsupported_media_type": "Set `Content-Type: application/json` and send the body uncompressed.",
    "unauthorized": "Send a key as `Authorization: Bearer KEY`. If you did, the key is mistyped, revoked or expired.",
    "session_missing": "Sign in with `POST /ui/session` and a key of scope viewer, operator or admin. "
    "Paths under `/ui` do not accept a key in a header.",
    "session_expired": "Sign in again. The session reached its maximum age, was idle for too long, or "
    "its key was revoked.",
    "csrf": "Send the request from the dashboard, with the `csrf` value of `GET /ui/session` in the "
    "`Millpond-Csrf` header. Behind a proxy, forward the `Host` header or set "
    "`MILLPOND_PUBLIC_URL`.",
    "forbidden": "Use a key with the scope named in `needed`, or a key for this tenant and account.",
    "worker_revoked": "An operator revoked this worker. It cannot register again until an operator approves it.",
    "worker_unapproved": "Wait until an operator approves the worker (`millpond workers approve`), then try again.",
    "rate_limited": "Wait for the time in `Retry-After`. The `RateLimit` header states how many requests remain. "
    "Open streams and requests with an invalid key are limited too.",
    "not_found": "Check the id and the path. Objects of other tenants are reported as not found.",
    "conflict": "Read the current state of the object, then decide whether to repeat the request.",
    "batch_closed": "Create another batch for the jobs: this one has all its jobs, or was canceled.",
    "idempotency_conflict": "Use a new key for a new request. To repeat a request, send exactly the same body.",
    "transition_denied": "Check the lifecycle of the kind for the allowed transitions.",
    "cancel_unavailable": "The job is in a stage that cannot be interrupted, or its kind does not "
    "support cancellation.",
    "retry_unavailable": "Wait until the job has ended. Some outcomes cannot be retried.",
    "answer_unavailable": "Answer only jobs in phase `parked`. Each question accepts one answer.",
    "refund_unavailable": "Refund only jobs that have ended and were charged. The total refund cannot "
    "exceed the charge.",
    "priority_unavailable": "Change the priority only of jobs in phase `waiting` or `ready`.",
    "worker_alive": "Give each worker a unique name. If the other worker has crashed, try again after `Retry-After`.",
    "lease_lost": "Discard the result: the job was given to another worker, or has ended.",
    "fleet_full": "Wait until a worker has left the fleet, or have the operator raise `MILLPOND_FLEET_MAX`.",
    "insufficient_credits": "Grant credits to the account; `required` and `available` state the amounts.",
    "too_many_active_jobs": "Wait until jobs of the account have ended, or raise the limit of the account.",
    "invalid_lifecycle": "Correct the declaration named in `detail`. It is checked when the app is loaded.",
    "handler_failed": "Check the job's error and log.",
    "transient": "No action is needed: the job is retried automatically.",
    "permanent": "Check the job's error. A retry would fail in the same way.",
    "blocked": "Change the input; its content is not allowed.",
    "child_failed": "Check the error of the child named in `child_id`. In the handler, catch the error, or gather with "
    "`return_exceptions=True`.",
    "unanswered": "Give the question a default, or more time.",
    "step_order": "Deploy code that makes the same steps in the same order as the code with which the job began, or "
    "give changed steps new kinds of jobs.",
    "canceled": "No action is needed: the job was canceled on request.",
    "time_limit": "Raise the time limit of the kind, or reduce the work of the job.",
    "process_crashed": "The job is tried again. If it always crashes, look at its traceback and at the memory of the "
    "worker's machine: the process ended by itself, or was killed, for example because memory was used up.",
    "resource_failed": "The job is tried again, and so is the creation of the resource. Look at the traceback, and "
    "check what the resource needs, such as a file, a server or a GPU.",
    "stalled": "Report progress from the job's code (`job.progress`, `job.log`, `job.checkpoint`), or "
    "raise the stall limit of the kind.",
    "interrupted": "No action is needed: the job is given to another worker automatically.",
    "store": "The database cannot be used at the moment. Try again later.",
    "embedded_postgres": "Check the server's log for the reason why the embedded PostgreSQL does not start.",
    "migration": "Run `millpond db migrate` and check its output.",
    "overdue": "Request less: a shorter period, one tenant or one kind. For complete results use the "
    "command line, which has no time limit. An operator can raise `MILLPOND_UI_TIMEOUT`.",
    "busy": "Try again later. Another transaction that submits jobs of this account is still open.",
    "bad_signature": "Use the URL unchanged, with the given method and headers, or request a new one.",
    "url_refused": "Use a public `http` or `https` URL without user name and password; private addresses "
    "are rejected. For development, an operator can allow addresses with "
    "`MILLPOND_OUTBOUND_ALLOW`.",
    "outbound_failed": "`reason` states which step failed. Check that the URL can be reached from the "
    "server, then try again.",
    "webhook_invalid": "Verify the signature with the secret of this endpoint, over the unmodified bytes "
    "of the body, and with a correct clock. If verification still fails, the request "
    "was not sent by Millpond: ignore it.",
    "content_blocked": "`verdicts` lists the rules that matched and their positions. Change the input, "
    "or have an operator change the rules.",
    "provider_missing": "Set `REPLICATE_API_TOKEN`, or set `MILLPOND_REPLICATE_URL` to a server with the same API. "
    "Nothing was charged.",
    "gate_missing": "Declare the gate named by the kind in every process: `app.gate(name, gate)`. Nothing was charged.",
    "vault_unavailable": "Set `MILLPOND_ENCRYPTION_KEY` in every process to the key that this database "
    "was initialized with.",
    "url_expired": "Request a new URL: `GET /v1/artifacts/{id}` returns the artifact with one.",
    "storage_unavailable": "Try again later. If the error persists, check the storage settings and the server's log.",
    "unavailable": "Try again after `Retry-After`. A submit with an idempotency key creates at most one job.",
}
