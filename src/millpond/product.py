"""The public kit for products: everything that a product outside this package may use, beside the vocabulary.

A product is a value, a :class:`Product`: its kinds, its routes, and their dependencies
(docs/how-to/make-a-product.md). Names are imported lazily, so that the parts of a product that serve no HTTP do not
load the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millpond.api import principals
    from millpond.api.calls import EVENT_STREAM, JSON, REPLAYED, Call, Reply, cursor, encode, job_text, reply
    from millpond.api.credits import wallets
    from millpond.api.fleet import protocol
    from millpond.api.jobs.jobs import FIRST, STREAM, answered, event_number, own_job
    from millpond.api.jobs.streams import Form
    from millpond.api.jobs.submissions import (
        IDEMPOTENCY_HEADERS,
        JOB_HEADERS,
        accept,
        accept_many,
        accept_retry,
    )
    from millpond.api.parameters import (
        WAIT_MAX,
        After,
        AuditCursor,
        EntryCursor,
        EventNumber,
        JobCursor,
        Limit,
        OfTenant,
        Query,
        Tenant,
    )
    from millpond.api.playground import playground
    from millpond.api.principals import account, address, one_account, one_tenant, owner, tenant
    from millpond.api.product import Code, Product
    from millpond.api.routes import BULK_BODY_MAX, Route
    from millpond.api.scopes import ADMINS, ANY_KEY, ANYBODY, CLIENTS, FLEET, OPERATORS, READERS, WORKERS
    from millpond.app import Millpond
    from millpond.companions import Companion, Started
    from millpond.engine.credits.ledger import Balance, Entry
    from millpond.engine.engine import Engine
    from millpond.engine.fleet.workers import WorkerView
    from millpond.engine.jobs.artifacts import ArtifactRecord, folder
    from millpond.engine.jobs.events import JobHistory
    from millpond.engine.jobs.folders import Folders
    from millpond.engine.jobs.jobs import Submitted, report_denied
    from millpond.engine.jobs.measuring import measure
    from millpond.engine.queue.leases import LeasedJob
    from millpond.engine.reads.health import QueueFlow, QueueHealth
    from millpond.engine.reads.views import JobPage, JobView
    from millpond.engine.webhooks.endpoints import EndpointRecord
    from millpond.kinds import Kind
    from millpond.lifecycle import Lifecycle, lifecycle
    from millpond.outbound import Outbound, OutboundResponse, Target, targets
    from millpond.outbound.proxy import Proxy
    from millpond.services.service import Service
    from millpond.storage import Signed
    from millpond.store.queries import queries
    from millpond.supervisor import Supervisor, report_ready
    from millpond.worker.loops import run_async, stop_on_signals

__all__ = [
    "ADMINS",
    "ANYBODY",
    "ANY_KEY",
    "BULK_BODY_MAX",
    "CLIENTS",
    "EVENT_STREAM",
    "FIRST",
    "FLEET",
    "IDEMPOTENCY_HEADERS",
    "JOB_HEADERS",
    "JSON",
    "OPERATORS",
    "READERS",
    "REPLAYED",
    "STREAM",
    "WAIT_MAX",
    "WORKERS",
    "After",
    "ArtifactRecord",
    "AuditCursor",
    "Balance",
    "Call",
    "Code",
    "Companion",
    "EndpointRecord",
    "Engine",
    "Entry",
    "EntryCursor",
    "EventNumber",
    "Folders",
    "Form",
    "JobCursor",
    "JobHistory",
    "JobPage",
    "JobView",
    "Kind",
    "LeasedJob",
    "Lifecycle",
    "Limit",
    "Millpond",
    "OfTenant",
    "Outbound",
    "OutboundResponse",
    "Product",
    "Proxy",
    "Query",
    "QueueFlow",
    "QueueHealth",
    "Reply",
    "Route",
    "Service",
    "Signed",
    "Started",
    "Submitted",
    "Supervisor",
    "Target",
    "Tenant",
    "WorkerView",
    "accept",
    "accept_many",
    "accept_retry",
    "account",
    "address",
    "answered",
    "cursor",
    "encode",
    "event_number",
    "folder",
    "job_text",
    "lifecycle",
    "measure",
    "one_account",
    "one_tenant",
    "own_job",
    "owner",
    "playground",
    "principals",
    "protocol",
    "queries",
    "reply",
    "report_denied",
    "report_ready",
    "run_async",
    "stop_on_signals",
    "targets",
    "tenant",
    "wallets",
]

_MODULES: Final = {
    "millpond.api": ("principals",),
    "millpond.api.calls": (
        "Call",
        "EVENT_STREAM",
        "JSON",
        "REPLAYED",
        "Reply",
        "cursor",
        "encode",
        "job_text",
        "reply",
    ),
    "millpond.companions": (
        "Companion",
        "Started",
    ),
    "millpond.api.credits": ("wallets",),
    "millpond.api.fleet": ("protocol",),
    "millpond.api.jobs.jobs": (
        "FIRST",
        "STREAM",
        "answered",
        "event_number",
        "own_job",
    ),
    "millpond.api.jobs.streams": ("Form",),
    "millpond.api.jobs.submissions": (
        "JOB_HEADERS",
        "IDEMPOTENCY_HEADERS",
        "accept",
        "accept_many",
        "accept_retry",
    ),
    "millpond.api.parameters": (
        "After",
        "AuditCursor",
        "EntryCursor",
        "EventNumber",
        "JobCursor",
        "Limit",
        "OfTenant",
        "Query",
        "Tenant",
        "WAIT_MAX",
    ),
    "millpond.api.playground": ("playground",),
    "millpond.api.principals": (
        "account",
        "address",
        "one_account",
        "one_tenant",
        "owner",
        "tenant",
    ),
    "millpond.api.product": (
        "Code",
        "Product",
    ),
    "millpond.api.routes": (
        "BULK_BODY_MAX",
        "Route",
    ),
    "millpond.api.scopes": (
        "ADMINS",
        "ANYBODY",
        "ANY_KEY",
        "CLIENTS",
        "FLEET",
        "OPERATORS",
        "READERS",
        "WORKERS",
    ),
    "millpond.app": ("Millpond",),
    "millpond.engine.credits.ledger": (
        "Balance",
        "Entry",
    ),
    "millpond.engine.engine": ("Engine",),
    "millpond.engine.fleet.workers": ("WorkerView",),
    "millpond.engine.jobs.artifacts": (
        "ArtifactRecord",
        "folder",
    ),
    "millpond.engine.jobs.events": ("JobHistory",),
    "millpond.engine.jobs.folders": ("Folders",),
    "millpond.engine.jobs.jobs": (
        "Submitted",
        "report_denied",
    ),
    "millpond.engine.jobs.measuring": ("measure",),
    "millpond.engine.queue.leases": ("LeasedJob",),
    "millpond.engine.reads.health": (
        "QueueFlow",
        "QueueHealth",
    ),
    "millpond.engine.reads.views": (
        "JobPage",
        "JobView",
    ),
    "millpond.engine.webhooks.endpoints": ("EndpointRecord",),
    "millpond.kinds": ("Kind",),
    "millpond.lifecycle": (
        "Lifecycle",
        "lifecycle",
    ),
    "millpond.outbound": (
        "OutboundResponse",
        "Outbound",
        "Target",
        "targets",
    ),
    "millpond.outbound.proxy": ("Proxy",),
    "millpond.services.service": ("Service",),
    "millpond.storage": ("Signed",),
    "millpond.store.queries": ("queries",),
    "millpond.supervisor": ("Supervisor", "report_ready"),
    "millpond.worker.loops": (
        "run_async",
        "stop_on_signals",
    ),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULE_OF[name]
    found = getattr(import_module(module), name, None)
    return import_module(f"{module}.{name}") if found is None else found
