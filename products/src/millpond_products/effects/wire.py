"""The types of the effects contract."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from uuid import UUID  # noqa: TC003 - msgspec reads it

from msgspec import UNSET, Meta, UnsetType, field

from millpond.wire import Answer, Key, Name, Priority, Problem, Request, Signed, Time

Provider = Literal["self_hosted", "cloud"]
VideoStatus = Literal["pending", "queued", "processing", "completed", "failed", "canceled", "expired"]
JobStatus = Literal["queued", "processing", "completed", "failed", "canceled", "expired"]
DispatchStatus = Literal["queued", "leased", "completed", "failed"]
InputType = Literal["image", "video", "any"]
TransactionType = Literal["JOB_RESERVE", "JOB_CONSUME", "JOB_REFUND", "PAYMENT_CREDIT", "ADJUSTMENT"]

Slug = Annotated[str, Meta(pattern="^[a-z0-9]+(-[a-z0-9]+)*$", min_length=1, max_length=60, examples=["face-swap"])]
Word = Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$", min_length=1, max_length=40)]
_STORABLE: Final = r"^[^\x00]*$"  # NUL is the only character that cannot be stored
Title = Annotated[str, Meta(min_length=1, max_length=200, pattern=_STORABLE)]
Text = Annotated[str, Meta(max_length=2_000, pattern=_STORABLE)]
FileName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$", examples=["in.png"])]
_SUBTYPE: Final = r"/[A-Za-z0-9_!#$&^.+-]+(; ?[A-Za-z0-9_.+-]+=([A-Za-z0-9_.+-]+|\"[A-Za-z0-9_ .+-]*\"))*$"
IMAGE_OR_VIDEO: Final = rf"^([Ii][Mm][Aa][Gg][Ee]|[Vv][Ii][Dd][Ee][Oo]){_SUBTYPE}"
MediaType = Annotated[
    str,
    Meta(min_length=3, max_length=200, pattern=rf"^[A-Za-z0-9_!#$&^.+-]+{_SUBTYPE}", examples=["image/png"]),
]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", examples=["5e" * 32])]
Extension = Annotated[str, Meta(pattern="^[a-z0-9]{1,8}$", examples=["png"])]
Cost = Annotated[int, Meta(ge=0, le=10**9, description="Tokens.")]
Size = Annotated[int, Meta(ge=1, description="Bytes.")]
SLUGS_MAX: Final = 50
_GRAPH: Final = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "{{input}}"}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0]}},
}


def _self_hosted() -> list[Provider]:
    return ["self_hosted"]


class ErrorBody(Problem):
    """A problem; `message` repeats `detail`."""

    message: str
    required_tokens: (
        Annotated[int, Meta(description="If the balance is too low: the price of the job.")] | UnsetType
    ) = UNSET


# Files and videos


class MakeUpload(Request):
    """A file to be uploaded."""

    filename: FileName
    mime_type: Annotated[
        str,  # the pattern is only documentation: the handler checks the value, with a readable error
        Meta(
            description="The media type of an image or video.",
            examples=["image/png"],
            max_length=200,
            extra_json_schema={"pattern": IMAGE_OR_VIDEO},
        ),
    ]
    size: Size
    sha256: Sha256 | None = None


class File(Answer):
    """A file in storage."""

    id: str
    filename: str
    mime_type: str
    size: int
    path: Annotated[str, Meta(description="The path in storage.")]
    sha256: str | None
    is_stored: Annotated[bool, Meta(description="Whether the file was found in storage.")]
    url: Annotated[str | None, Meta(description="A temporary download URL, once the file is stored.")]
    created_at: Time
    metadata: Annotated[
        dict[str, Any] | None, Meta(description="Of an output: what its worker reported about it, if anything.")
    ] = None


class Uploading(Answer):
    """The upload request of a file: send the bytes with this method, URL and headers."""

    file: File
    upload: Signed
    upload_url: str
    upload_headers: dict[str, str]


class MakeVideo(Request):
    """A video of an uploaded file."""

    original_file_id: Annotated[str, Meta(max_length=100)]
    title: Title | None = None


class Video(Answer):
    """A video and its result."""

    id: str
    title: str | None
    status: VideoStatus
    original_file_id: str
    processed_file_id: str | None
    processed_file_url: Annotated[str | None, Meta(description="A temporary download URL of the result.")]
    processed_mime_type: str | None
    error: Annotated[str | None, Meta(description="The reason of the failure.")]
    progress: Annotated[float, Meta(ge=0, le=1)]
    estimated_seconds: Annotated[
        float | None, Meta(description="The duration of the effect's last use; null if it was never used.")
    ]
    effect_id: str | None
    ai_job_id: str | None
    created_at: Time
    started_at: Time | None
    completed_at: Time | None


class Videos(Answer):
    """A page of videos, newest first."""

    data: list[Video]
    next_cursor: str | None


# Effects, as users and as operators see them


class Property(Request, omit_defaults=False):
    """A parameter of a workflow; the graph contains it as {{name}}."""

    name: Word
    type: Literal["text", "number", "choice", "image", "video"]
    label: Title | None = None
    description: Text | None = None
    required: bool = False
    default: Annotated[Any, Meta(description="For image and video: the name of an asset of the workflow.")] = None
    min: Annotated[float | None, Meta(description="For type number.")] = None
    max: Annotated[float | None, Meta(description="For type number.")] = None
    integer: Annotated[bool, Meta(description="For type number: whole numbers only.")] = False
    max_length: Annotated[int, Meta(ge=1, le=20_000)] | None = None
    choices: Annotated[list[Title], Meta(min_length=1, max_length=200)] | None = None
    user_configurable: Annotated[bool, Meta(description="Whether users may set it.")] = True


class EffectSummary(Answer):
    """An effect."""

    id: str
    slug: str
    name: str
    description: str | None
    credits_cost: int
    input_type: Annotated[InputType, Meta(description="The type of input.")]
    properties: Annotated[
        list[Property],
        Meta(description="The properties that the `input` of a job may set, with the defaults of the effect."),
    ]
    estimated_seconds: float | None
    last_processing_time_seconds: float | None


class EffectSummaries(Answer):
    """All available effects."""

    data: list[EffectSummary]


class Effect(EffectSummary):
    """An effect with the fields for operators."""

    workflow_id: str
    workflow: str
    provider: Provider
    priority: int
    property_overrides: dict[str, Any]
    is_active: bool
    created_at: Time
    updated_at: Time


class Effects(Answer):
    """All effects."""

    data: list[Effect]


class MakeEffect(Request):
    """An effect to create."""

    slug: Slug
    name: Title
    workflow_id: Annotated[str, Meta(max_length=100, description="The id of a workflow, or its slug.")]
    credits_cost: Cost
    description: Text | None = None
    provider: Provider = "self_hosted"
    priority: Priority = 0
    property_overrides: dict[str, Any] = field(default_factory=dict[str, Any])
    is_active: bool = True


class UpdateEffect(Request):
    """Changes of an effect; omitted fields are not changed."""

    name: Title | UnsetType = UNSET
    workflow_id: Annotated[str, Meta(max_length=100)] | UnsetType = UNSET
    credits_cost: Cost | UnsetType = UNSET
    description: Text | UnsetType | None = UNSET
    provider: Provider | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    property_overrides: dict[str, Any] | UnsetType = UNSET


class Asset(Answer):
    """A file shared by all jobs of a workflow; the graph contains it as {{name}}."""

    name: str
    filename: str
    mime_type: str
    size: int
    content_hash: str
    s3_path: str


class Workflow(Answer):
    """A workflow."""

    id: str
    slug: str
    name: str
    description: str | None
    is_active: bool
    input_type: InputType
    properties: list[Property]
    assets: list[Asset]
    output_node_id: str | None
    output_extension: str
    comfyui_workflow_path: str | None
    content_hash: Annotated[str | None, Meta(description="The SHA-256 of its graph.")]
    routes: Annotated[list[str], Meta(description="The queues of its jobs, for scaling.")]
    created_at: Time
    updated_at: Time


class Workflows(Answer):
    """All workflows."""

    data: list[Workflow]


class MakeWorkflow(Request):
    """A workflow to create. It is inactive until its graph and assets are uploaded and it is activated."""

    slug: Slug
    name: Title
    description: Text | None = None
    input_type: InputType = "any"
    properties: Annotated[list[Property], Meta(max_length=100)] = field(default_factory=list["Property"])
    output_extension: Extension = "mp4"


class UpdateWorkflow(Request):
    """Changes of a workflow; omitted fields are not changed."""

    name: Title | UnsetType = UNSET
    description: Text | UnsetType | None = UNSET
    input_type: InputType | UnsetType = UNSET
    properties: Annotated[list[Property], Meta(max_length=100)] | UnsetType = UNSET
    output_extension: Extension | UnsetType = UNSET


class UploadGraph(Request):
    """A graph in ComfyUI's API format, and the node whose output is the result."""

    workflow: Annotated[dict[str, Any], Meta(examples=[_GRAPH])]
    output_node_id: Annotated[str, Meta(min_length=1, max_length=100, examples=["2"])]


class MakeAsset(Request):
    """An asset to announce."""

    name: Word
    filename: FileName
    mime_type: MediaType
    size: Size
    content_hash: Sha256


class NewAsset(Answer):
    """An asset and its upload request."""

    asset: Asset
    upload: Signed
    upload_url: str
    upload_headers: dict[str, str]


# Jobs


class MakeJob(Request):
    """An effect to apply to a video."""

    effect_id: Annotated[str, Meta(max_length=100, description="The id of an effect, or its slug.")]
    video_id: Annotated[str, Meta(max_length=100)]
    idempotency_key: Key
    input: Annotated[dict[str, Any], Meta(description="The values of the effect's properties.")] = field(
        default_factory=dict[str, Any]
    )


class Job(Answer):
    """A job that applies an effect to a video."""

    id: str
    status: JobStatus
    effect_id: str
    effect: str
    video_id: str
    provider: Provider
    input: dict[str, Any]
    input_file_id: str
    output_file_id: str | None
    output_url: str | None
    error_message: str | None
    progress: Annotated[float, Meta(ge=0, le=1)]
    reserved_tokens: int
    consumed_tokens: int | None
    attempts: int
    cancel_requested: bool
    provider_job_id: str | None
    estimated_seconds: float | None
    created_at: Time
    started_at: Time | None
    completed_at: Time | None


class Jobs(Answer):
    """A page of jobs, newest first."""

    data: list[Job]
    next_cursor: str | None


class AdminJob(Job):
    """A job and its owner."""

    tenant_id: str
    user_id: str


class AdminJobs(Answer):
    """A page of jobs of all users, newest first."""

    data: list[AdminJob]
    next_cursor: str | None


# Tokens


class Wallet(Answer):
    """The balance of a user: the sum of all transactions."""

    tenant_id: str
    user_id: str
    balance: int
    reserved: Annotated[int, Meta(description="Tokens reserved for unfinished jobs.")]
    active_jobs: int
    active_jobs_max: int | None


class Transaction(Answer):
    """A transaction of a wallet. JOB_CONSUME records that the reserved tokens were consumed; its amount is 0."""

    id: str
    type: TransactionType
    amount: int
    balance_after: int
    job_id: str | None
    provider_transaction_id: str | None
    description: str | None
    created_at: Time


class Transactions(Answer):
    """A page of transactions, newest first."""

    data: list[Transaction]
    next_cursor: str | None


class GrantTokens(Request):
    """A grant of tokens to a user. Each transaction id of a provider is granted once."""

    user_id: Name
    amount: Annotated[int, Meta(ge=1, le=10**12)]
    tenant_id: Name | None = None
    provider_transaction_id: Annotated[str, Meta(min_length=1, max_length=255, pattern=_STORABLE)] | None = None
    description: Annotated[str, Meta(max_length=255, pattern=_STORABLE)] | None = None


# The fleet


class Identity(Request):
    """The proof of identity of an EC2 instance."""

    document: Annotated[str, Meta(max_length=16_384)]
    signature: Annotated[str, Meta(max_length=16_384)]


class Register(Request):
    """The registration of a worker."""

    worker_id: Annotated[Name, Meta(description="Typically the id of its EC2 instance.")]
    workflow_slugs: Annotated[list[Slug], Meta(min_length=1, max_length=SLUGS_MAX)]
    max_concurrency: Annotated[int, Meta(ge=1, le=1_000)] = 1
    capabilities: dict[str, Any] | None = None
    providers: Annotated[list[Provider], Meta(min_length=1, max_length=2)] = field(default_factory=_self_hosted)
    identity: Identity | None = None


class Registered(Answer):
    """A registered worker. Its token is returned only once and is not stored."""

    worker_id: str
    token: str
    workflows_assigned: list[str]
    providers: list[Provider]
    is_approved: bool
    lease_seconds: float
    heartbeat_seconds: float


class Poll(Request):
    """A poll of a worker."""

    wait: Annotated[float, Meta(ge=0, le=30, description="Seconds to wait for a job.")] = 0


class PayloadAsset(Answer):
    """A file that replaces its placeholder in the graph."""

    placeholder: str
    name: str
    filename: str
    content_hash: str | None
    is_primary_input: bool
    url: str


class InputPayload(Answer):
    """The task for ComfyUI."""

    workflow: dict[str, Any]
    output_node_id: str
    assets: list[PayloadAsset]
    extension: str | None


class Dispatched(Answer):
    """A leased job."""

    dispatch_id: str
    lease_token: str
    lease_expires_at: Time
    job_id: str
    tenant_id: str
    workflow: str
    provider: Provider
    attempts: int
    input_url: str
    output_url: str
    output_headers: dict[str, str]
    output_path: str
    input_payload: InputPayload


class Polled(Answer):
    """A leased job, or null."""

    job: Dispatched | None
    drain: Annotated[bool, Meta(description="The worker is draining: it must finish its job and then leave.")]


class OfDispatch(Request):
    """The job and its lease."""

    dispatch_id: Annotated[str, Meta(max_length=100)]
    lease_token: UUID


class Beat(OfDispatch):
    """A heartbeat of a worker for a job."""

    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    renew: Annotated[bool, Meta(description="Whether new signed URLs are requested.")] = False


class Beaten(Answer):
    """The status of the job."""

    lease_expires_at: Time
    cancel_requested: bool
    drain: bool
    input_url: str | None = None
    output_url: str | None = None
    output_headers: dict[str, str] | None = None
    asset_urls: dict[str, str] | None = None


class Output(Request):
    """The uploaded output."""

    size: Size
    mime_type: MediaType | None = None
    metadata: dict[str, Any] | None = None


class Complete(OfDispatch):
    """A completed job."""

    output: Output
    provider_job_id: Annotated[str, Meta(max_length=255)] | None = None


class Fail(OfDispatch):
    """A failed job. Long texts are truncated; JSON is parsed."""

    error: Any = ""


class Requeue(OfDispatch):
    """A job that the worker returns to the queue."""

    reason: Annotated[str, Meta(min_length=1)]


class Reported(Answer):
    """The state of the dispatch."""

    dispatch_id: str
    status: DispatchStatus
    job_status: JobStatus


# Operators


class Worker(Answer):
    """A fleet worker."""

    id: str
    worker_id: str
    registration_source: Literal["fleet"]
    status: str
    is_approved: bool
    is_draining: bool
    is_revoked: bool
    workflows: list[str]
    providers: list[Provider]
    max_concurrency: int
    active_dispatches: int
    capabilities: dict[str, Any] | None
    last_seen_at: Time | None
    created_at: Time


class Workers(Answer):
    """The fleet workers that serve workflows."""

    data: list[Worker]


class NewToken(Worker):
    """A worker with its new token, which is returned only once and is not stored."""

    token: str


class AssignWorkflows(Request):
    """The new workflows of a worker."""

    workflow_slugs: Annotated[list[Slug], Meta(min_length=1, max_length=SLUGS_MAX)]
    providers: Annotated[list[Provider], Meta(min_length=1, max_length=2)] | None = None


class Dispatch(Answer):
    """A dispatch."""

    id: str
    tenant_id: str
    tenant_job_id: str
    workflow_id: str
    workflow: str
    provider: Provider
    status: DispatchStatus
    lease_token: str | None
    lease_expires_at: Time | None
    worker_id: str | None
    attempts: int
    max_attempts: int
    priority: int
    duration_seconds: float | None
    last_error: str | None
    created_at: Time


class Dispatches(Answer):
    """A page of dispatches, newest first."""

    data: list[Dispatch]
    next_cursor: str | None


class AuditEntry(Answer):
    """An action of a worker or operator."""

    id: str
    at: Time
    actor: str
    worker_id: Annotated[str | None, Meta(description="The name of the actor, for a worker that is still registered.")]
    event: Annotated[
        str, Meta(description="register, poll, complete, fail, requeue, deregister, or an operator action.")
    ]
    tenant_id: str | None
    subject: str | None
    data: Any


class Audit(Answer):
    """A page of the audit log, newest first."""

    data: list[AuditEntry]
    next_cursor: str | None
