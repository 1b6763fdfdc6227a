// Made from src/millpond/wire.py by docs/generate.py; `make reference` makes it anew.

/** The answer to a submit: what was true when the job was born. A replay is the same, byte for byte. */
export interface Accepted {
  id: string;
  kind: string;
  state: string;
  /** A whole number of credits. */
  price: number;
  /** What the account has left; a free job does not tell. */
  available: number | null;
  created_at: string;
  expires_at: string | null;
  links: Links;
  /** What its webhook is signed with, where that was made here. */
  webhook_secret?: string;
}

/** A correction of what an account has, up or down, with the reason why. */
export interface Adjust {
  tenant: string;
  account: string;
  amount: number;
  reason: string;
  reference?: string | null;
}

/** Something that somebody should look at, in words. */
export interface Alarm {
  level: "bad" | "warn";
  text: string;
  subject: Subject;
}

/** One arrow of a lifecycle: what a moment does to a state. */
export interface Arrow {
  from_state: string | null;
  moment: string;
  to_state: string;
}

/** A file in storage. */
export interface Artifact {
  id: string;
  tenant: string;
  account: string;
  /** The job that it was made by, or given to. */
  job_id: string | null;
  name: string;
  content_type: string;
  size: number;
  sha256: string | null;
  created_at: string;
  /** Until when it was to be uploaded. */
  expires_at: string;
  /** When it was seen in storage, whole. */
  stored_at: string | null;
  /** Where to get it, once it is stored. */
  download: Signed | null;
}

/** The files of a job: what it was given, and what its last attempt has made. */
export interface Artifacts {
  data: Artifact[];
}

/** A job that might be submitted. */
export interface AskPrice {
  kind: string;
  input?: Record<string, unknown>;
  account?: string | null;
}

/** The routes of a worker from now on. */
export interface AssignRoutes {
  routes: string[];
}

/** A job in a worker's hands. */
export interface Assignment {
  job_id: string;
  lease_token: string;
  lease_seconds: number;
  kind: string;
  route: string;
  tenant: string;
  account: string;
  state: string;
  /** How often it was handed out: unique to this lease. */
  epoch: number;
  attempts: number;
  run: number;
  /** A whole number of credits. */
  price: number;
  progress: number;
  stage: string | null;
  stages: string[];
  time_limit_seconds: number | null;
  input: unknown;
  memo: unknown;
  answer: unknown;
  created_at: string;
  expires_at: string | null;
  /** What it may read, by the name that stands in the input. */
  downloads: Record<string, Signed>;
}

/** The jobs that a poll was given; none where there was nothing. */
export interface Assignments {
  jobs: Assignment[];
  /** No more jobs until it is resumed; what it has, it finishes. */
  is_draining: boolean;
}

/** A worker's go at a job, and what ended it. */
export interface Attempt {
  /** The how manieth it is, over all runs. */
  number: number;
  run: number;
  from: string;
  to: string | null;
  /** Who made it, as far as anybody knows. */
  worker: string | null;
  /** worker_…, for one of the fleet. */
  worker_id: string | null;
  /** How the job ended, or requeued, parked, delivering; null while it lasts. */
  outcome: string | null;
  /** Why it was requeued: attempt, interruption or lapse. */
  cause: string | null;
  error_code: string | null;
}

/** A page of what operators did, the newest first. It may be short, or empty, and have a next one. */
export interface Audit {
  data: AuditEntry[];
  next_cursor: string | null;
  /** Set where the page ended because it had looked at enough. */
  searched_to?: string | null;
}

/** Something an operator did. */
export interface AuditEntry {
  id: string;
  at: string;
  actor: string;
  action: string;
  tenant: string | null;
  subject: string | null;
  data: unknown;
}

/** How a job of a heartbeat stands. */
export interface Beat {
  job_id: string;
  lease_token: string;
  /** False: drop it. */
  is_held: boolean;
  cancel_requested: boolean;
  lease_seconds: number;
  downloads: Record<string, Signed>;
  uploads: Record<string, Signed>;
}

/** The answer to a heartbeat, in its order. */
export interface Beats {
  jobs: Beat[];
  is_draining: boolean;
}

/** A product with a page to try it on. */
export interface BlueprintPage {
  name: string;
  title: string;
  path: string;
}

/** Where everything stands. For one tenant: its own numbers, without queues and workers, which are everybody's. */
export interface Board {
  at: string;
  /** Seconds between two looks; 0: by hand. */
  refresh: number;
  ready: number;
  waiting: number;
  leased: number;
  parked: number;
  delivering: number;
  /** How many jobs the workers of the fleet can do at once. */
  slots: number | null;
  oldest_wait_seconds: number | null;
  succeeded_1h: number;
  /** Failed, blocked or expired. */
  failed_1h: number;
  ended_1h: number;
  captured_1h: number;
  /** Credits. */
  held: number;
  webhooks_pending: number;
  webhooks_failing: number;
  queues: QueueInfo[];
  workers: BoardWorkers;
  /** The most frequent of the last hour. */
  failures: Failure[];
  /** Those of which most was captured in the last hour. */
  tenants: Spender[];
  alarms: Alarm[];
}

/** The fleet, by how it is; a deaf worker is heard from and leaves jobs waiting. */
export interface BoardWorkers {
  ok: number;
  draining: number;
  deaf: number;
  unapproved: number;
}

/** What a provider's call was worth. */
export interface CallbackHeard {
  verdict: string;
}

/** Whether a cancel was accepted, and where the job stands. */
export interface Canceled {
  id: string;
  /** False where the job had ended before. */
  is_accepted: boolean;
  state: string;
  stage: string | null;
}

/** What is to be different about an endpoint; what is left out stays as it is. */
export interface ChangeEndpoint {
  url?: string;
  events?: ("job.submitted" | "job.queued" | "job.started" | "job.requeued" | "job.parked" | "job.answered" | "job.delivering" | "job.succeeded" | "job.failed" | "job.canceled" | "job.expired" | "job.blocked" | "job.retried" | "endpoint.disabled" | "*")[];
  kinds?: string[];
  description?: string;
  limit?: number | null;
}

/** One thing that the doctor looks at. */
export interface CheckInfo {
  check: string;
  verdict: "ill" | "ok";
  detail: string;
}

/** A job that is done. */
export interface CompleteJob {
  job_id: string;
  lease_token: string;
  output?: unknown;
  artifacts?: SavedFile[];
  captured?: number | null;
}

/** Where the job stands. */
export interface Completed {
  job_id: string;
  state: string;
}

/** The central database. */
export interface DatabaseInfo {
  version: string;
  /** Bytes. */
  size: number;
  started_at: string;
  connections: number;
  connections_max: number;
  oldest_transaction_seconds: number | null;
  /** The share of blocks that were in memory when asked for. */
  cache_hit: number | null;
  commits: number;
  rollbacks: number;
  deadlocks: number;
  temporary_bytes: number;
}

/** A page of deliveries, the newest first. */
export interface Deliveries {
  data: Delivery[];
  next_cursor: string | null;
}

/** One thing that is told to one receiver. */
export interface Delivery {
  /** The webhook-id of every request for it. */
  id: string;
  tenant: string;
  /** Null: the job's own webhook. */
  endpoint_id: string | null;
  job_id: string | null;
  event: string;
  state: "delivered" | "failed" | "pending" | "withdrawn";
  tries: number;
  created_at: string;
  /** When it is tried next. */
  due_at: string | null;
  settled_at: string | null;
}

/** A delivery with all its tries, the first one first. */
export interface DeliveryLog {
  /** The webhook-id of every request for it. */
  id: string;
  tenant: string;
  /** Null: the job's own webhook. */
  endpoint_id: string | null;
  job_id: string | null;
  event: string;
  state: "delivered" | "failed" | "pending" | "withdrawn";
  tries: number;
  created_at: string;
  /** When it is tried next. */
  due_at: string | null;
  settled_at: string | null;
  /** Where it goes now; null where it is pulled. */
  url: string | null;
  /** What every request for it says; null where this server does not know the words of its kind. */
  body: string | null;
  log: DeliveryTry[];
}

/** One request, and what came of it. */
export interface DeliveryTry {
  number: number;
  at: string;
  /** Where it went. */
  url: string | null;
  seconds: number;
  status: number | null;
  /** What kept it from being answered. */
  error: string | null;
  request_headers: Record<string, string>;
  response_headers: Record<string, string>;
  /** How it began. */
  response_body: string;
}

/** Why nothing is to be sent. */
export interface DisableEndpoint {
  reason?: string;
}

/** A job with all that belongs to it. */
export interface Dossier {
  job: Job;
  /** Who holds it now. */
  worker: string | null;
  /** worker_…, for one of the fleet. */
  worker_id: string | null;
  attempts: Attempt[];
  spans: Span[];
  /** How many events in the middle of a very long life the timeline was made without. */
  events_left_out: number;
  /** Its money: holds, what became of them, refunds. */
  entries: Entry[];
  /** The newest 100. */
  deliveries: Delivery[];
  files: Artifact[];
  submissions: SubmissionInfo[];
  /** Its idempotency key; null where no index leads to it. */
  key: string | null;
  /** Jobs that were made from it, among the next 2,000 of its account. */
  retries: string[];
  /** Null for a kind that this server does not know. */
  lifecycle: LifecycleInfo | null;
}

/** How long jobs of a kind have run lately, in seconds. */
export interface Durations {
  p50: number;
  p90: number;
  /** How many jobs this was learned from. */
  jobs: number;
}

/** An endpoint without its secret. */
export interface EndpointInfo {
  id: string;
  tenant: string;
  /** Whose jobs it is told of; null: those of the whole tenant. */
  account: string | null;
  /** Null: what is due is pulled. */
  url: string | null;
  events: string[];
  /** None: of all kinds. */
  kinds: string[];
  /** Whether it is told as said here; if not, in the words of each job's kind. */
  is_native: boolean;
  description: string;
  /** How many requests at once; null for the server's own limit. */
  limit: number | null;
  created_at: string;
  /** From then on nothing is sent. */
  disabled_at: string | null;
  disabled_reason: string | null;
  /** Since when it has taken nothing. */
  failing_since: string | null;
  /** Until when the secret before this one signs too. */
  rotated_until: string | null;
  /** When something was last pulled from it. */
  pulled_at: string | null;
}

/** How an endpoint fared since a time. */
export interface EndpointStats {
  endpoint_id: string;
  since: string;
  pending: number;
  delivered: number;
  failed: number;
  withdrawn: number;
  tries: number;
  /** How long it took to answer, in half of all tries. */
  seconds_p50: number | null;
  seconds_p90: number | null;
}

/** A page of the endpoints of a tenant, the oldest first. */
export interface Endpoints {
  data: EndpointInfo[];
  next_cursor: string | null;
}

/** A page of ledger entries, the newest first. */
export interface Entries {
  data: Entry[];
  next_cursor: string | null;
}

/** One balanced entry of the ledger. */
export interface Entry {
  seq: number;
  at: string;
  type: "adjust" | "capture" | "grant" | "hold" | "release";
  available: number;
  held: number;
  outside: number;
  available_after: number;
  held_after: number;
  job_id: string | null;
  run: number | null;
  reference: string | null;
  reason: string | null;
}

/** Something that is done to many jobs, and how far it has come. */
export interface Errand {
  id: string;
  action: "cancel" | "export" | "priority" | "refund" | "retry" | "verify";
  filter: JobFilter;
  arguments: Record<string, unknown>;
  state: "aborted" | "done" | "failed" | "running" | "waiting";
  /** Whether it was told to stop. */
  is_aborting: boolean;
  looked: number;
  matched: number;
  done: number;
  refused: number;
  refusals: Refusal[];
  /** About how many jobs fit, where that is known. */
  estimate: number | null;
  result: ErrandResult | null;
  /** Why it failed. */
  error: Record<string, unknown> | null;
  actor: string;
  tenant: string | null;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
}

/** How many jobs fit a filter, and some of them. */
export interface ErrandPreview {
  /** Counted no further than 10,000. */
  matched: number;
  /** Whether there are more. */
  is_capped: boolean;
  /** How far back was looked; none: at everything. */
  searched_to: string | null;
  sample: JobLine[];
}

/** What an errand has made: a file, or a verdict. */
export interface ErrandResult {
  name?: string | null;
  size?: number | null;
  rows?: number | null;
  /** Where the file is, for an hour; ask again for another. */
  url?: string | null;
  /** When the file is removed. */
  expires_at?: string | null;
  ok?: boolean | null;
  violations?: Violation[] | null;
}

/** A page of errands, the newest first. */
export interface Errands {
  data: Errand[];
  next_cursor: string | null;
}

/** When a job is likely to have ended: half of all such jobs by the first time, nine of ten by the second. */
export interface Eta {
  p50: string;
  p90: string;
}

/** One thing that happened to a job; ``seq`` counts from 1 without a gap. */
export interface Event {
  seq: number;
  at: string;
  type: string;
  state: string;
  data: unknown;
}

/** A page of events, the oldest first. ``next`` is the ``after`` of the next page, null on the last one. */
export interface Events {
  data: Event[];
  next: number | null;
}

/** A job that did not succeed. */
export interface FailJob {
  job_id: string;
  lease_token: string;
  /** A code and a message; what is long is shortened. */
  error: Record<string, unknown>;
  outcome?: "blocked" | "canceled" | "failed";
  /** Whether another attempt may help. */
  retry?: boolean;
  retry_after?: number | null;
}

/** Failures of one fingerprint since a time. */
export interface Failure {
  /** The same for failures that differ only in numbers, names and the like. Where too many were new in a day it begins with `others`: the rest of a kind and a code, whose jobs are found by these. */
  fingerprint: string;
  kind: string;
  code: string;
  /** Of one of the last; at most 500 characters. */
  message: string;
  count: number;
  /** When it was first seen, to the minute, at whatever time. */
  first_at: string;
  last_at: string;
  /** How many tenants it happened to. */
  tenants: number;
  /** The credits that were given back for it. */
  released: number;
  /** The id of one of the jobs. */
  sample: string;
  /** How often it happened in each step, the oldest first. */
  counts: number[];
}

/** The most frequent failures since a time, at most 100. */
export interface Failures {
  step_seconds: number;
  since: string;
  data: Failure[];
}

/** What became of a job that did not succeed: requeued, or the way it ended. */
export interface Fate {
  job_id: string;
  fate: string;
}

/** Who works, at what, and whether that is enough. */
export interface FleetBoard {
  at: string;
  /** How many workers all routes together should have. */
  desired: number;
  /** How many take jobs, idle or busy. */
  ready: number;
  /** How many of the desired ones are not there yet. */
  starting: number;
  routes: FleetRoute[];
  workers: FleetWorker[];
}

/** A job in a worker's hands. */
export interface FleetJob {
  id: string;
  tenant: string;
  kind: string;
  stage: string | null;
  progress: number;
  since: string;
}

/** A route, and how many workers it should have. */
export interface FleetRoute {
  route: string;
  ready: number;
  leased: number;
  oldest_wait_seconds: number | null;
  idle: number;
  busy: number;
  draining: number;
  desired: number;
  slots: number;
  paused_at: string | null;
}

/** A worker with what it is at. */
export interface FleetWorker {
  /** worker_…; null for a worker that works on the database itself. */
  id: string | null;
  worker: string;
  is_fleet: boolean;
  routes: string[];
  /** How many jobs it may hold at once. */
  slots: number | null;
  status: "busy" | "draining" | "idle" | "revoked" | "silent" | "unapproved";
  leases: number;
  /** How many jobs it holds. */
  held: number;
  /** The first 50; for a key of one tenant, that one's alone. */
  jobs: FleetJob[];
  /** What it said of itself. */
  capabilities: unknown;
  /** The beginning and the end of its token. */
  hint: string | null;
  /** The key it registered with. */
  fleet: string | null;
  /** From where it was last heard. */
  address: string | null;
  registered_at: string | null;
  heard_at: string | null;
  /** When it last asked for jobs. */
  polled_at: string | null;
  /** When it was last given a job that it still has. */
  granted_at: string | null;
  /** When the first of its leases runs out. */
  expires_at: string | null;
  /** Since it was last heard from. */
  heartbeat_age_seconds: number | null;
  /** Since it last asked for jobs, or was given one. */
  claim_age_seconds: number | null;
  /** It is heard from and has room, jobs of its routes wait, and it does not ask for them. */
  is_deaf: boolean;
}

/** What was found, the nearest first; at most 20. */
export interface Found {
  data: FoundItem[];
}

/** Something that was found. */
export interface FoundItem {
  type: "account" | "artifact" | "audit" | "delivery" | "endpoint" | "errand" | "job" | "key" | "kind" | "queue" | "tenant" | "worker";
  id: string;
  tenant: string | null;
  title: string;
  /** By what of it it was found. */
  by: "id" | "idempotency_key" | "name" | "prediction_id";
}

/** What a parked job waits for. */
export interface GiveAnswer {
  answer: unknown;
}

/** Whether this process can serve. */
export interface Health {
  status: "ok" | "unavailable";
  version: string;
  checks: Record<string, string>;
}

/** All that a worker is at; nothing, if it only wants to be known to live. */
export interface Heartbeat {
  jobs?: HeldJob[];
}

/** A job that a worker is at, and the names whose signed requests it wants anew. */
export interface HeldJob {
  job_id: string;
  lease_token: string;
  renew?: string[];
}

/** Credits that are held for a job. */
export interface Hold {
  job_id: string;
  tenant: string;
  account: string;
  kind: string;
  state: string;
  phase: "delivering" | "ended" | "leased" | "parked" | "ready" | "waiting";
  /** A whole number of credits. */
  price: number;
  held_at: string;
}

/** How many holds are so old, and older than the age before. */
export interface HoldAge {
  /** Up to so many seconds; null: more than all others. */
  seconds: number | null;
  jobs: number;
  credits: number;
}

/** Holds, the oldest first. A page may be short, or empty, and have a next one. */
export interface Holds {
  data: Hold[];
  next_cursor: string | null;
  /** By age, of the oldest 10,000 jobs that have not ended. On the first page; empty after it. */
  ages: HoldAge[];
  /** Whether there are more of them than that. */
  is_capped: boolean;
}

/** Another database, in which tenants live. */
export interface HomeInfo {
  tenants: string[];
  is_up: boolean;
}

/** What an EC2 instance proves itself with: its identity document and the signature of that. */
export interface Identity {
  document: string;
  signature: string;
}

/** A job as it stands. */
export interface Job {
  id: string;
  tenant: string;
  account: string;
  kind: string;
  lifecycle: string;
  queue: string;
  state: string;
  phase: "delivering" | "ended" | "leased" | "parked" | "ready" | "waiting";
  outcome: "blocked" | "canceled" | "expired" | "failed" | "succeeded" | null;
  progress: number;
  stage: string | null;
  /** Its place in line, from 1 on; 1000 means a thousand or more. Only while ready. */
  position: number | null;
  /** Only while it has not ended, once there is something to go by. */
  eta: Eta | null;
  priority: number;
  run: number;
  attempts: number;
  /** The number of its last event. */
  events: number;
  /** A whole number of credits. */
  price: number;
  /** What it cost in the end. */
  captured: number | null;
  created_at: string;
  run_at: string | null;
  expires_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  cancel_requested_at: string | null;
  retry_of: string | null;
  input: unknown;
  output: unknown;
  error: Record<string, unknown> | null;
  links: Links;
}

/** Why a job did not succeed. */
export interface JobError {
  code: string;
  message: string;
  field?: string;
  hint?: string;
}

/** Which jobs are meant: those that fit all that is given. */
export interface JobFilter {
  tenant?: string | null;
  account?: string | null;
  kind?: string | null;
  state?: string | null;
  phase?: "delivering" | "ended" | "leased" | "parked" | "ready" | "waiting" | null;
  outcome?: "blocked" | "canceled" | "expired" | "failed" | "succeeded" | null;
  error?: string | null;
  fingerprint?: string | null;
  stage?: string | null;
  since?: string | null;
  until?: string | null;
  ids?: string[] | null;
}

/** A job as a list shows it, without what it was given and what it made. */
export interface JobLine {
  id: string;
  tenant: string;
  account: string;
  kind: string;
  state: string;
  phase: "delivering" | "ended" | "leased" | "parked" | "ready" | "waiting";
  outcome: "blocked" | "canceled" | "expired" | "failed" | "succeeded" | null;
  stage: string | null;
  progress: number;
  attempts: number;
  priority: number;
  /** A whole number of credits. */
  price: number;
  captured: number | null;
  created_at: string;
  run_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  /** What it has in common with other failures. */
  fingerprint: string | null;
  error_code: string | null;
  /** Its first 200 characters. */
  error_message: string | null;
  /** Who holds it. */
  worker: string | null;
  is_canceling: boolean;
}

/** A page of jobs, the newest first. It may be short, or empty, and still have a next one. */
export interface JobLines {
  data: JobLine[];
  next_cursor: string | null;
  /** Set where the page ended because it had looked at enough jobs, not because it was full. */
  searched_to: string | null;
}

/** Where one job is told of, beside the endpoints of its tenant. */
export interface JobWebhook {
  url: string;
  secret?: string | null;
  events?: ("job.submitted" | "job.queued" | "job.started" | "job.requeued" | "job.parked" | "job.answered" | "job.delivering" | "job.succeeded" | "job.failed" | "job.canceled" | "job.expired" | "job.blocked" | "job.retried")[] | null;
}

/** A page of jobs, the newest first. */
export interface Jobs {
  data: Job[];
  next_cursor: string | null;
}

/** A key without its secret. */
export interface KeyInfo {
  id: string;
  /** Its beginning and its end, to recognise it by. */
  hint: string;
  scope: "admin" | "client" | "operator" | "viewer" | "worker";
  tenant: string | null;
  account: string | null;
  name: string | null;
  rate_limit: number | null;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  last_used_at: string | null;
}

/** A page of keys, the newest first. */
export interface Keys {
  data: KeyInfo[];
  next_cursor: string | null;
}

/** How many jobs of a kind are in each state; of ended ones, how many have come there since this is counted. */
export interface KindCount {
  kind: string;
  states: Record<string, number>;
  /** The credits held for them. */
  held: number;
}

/** All kinds of which there are jobs. */
export interface KindCounts {
  data: KindCount[];
}

/** A kind of job: what it takes, what it costs, how it lives. */
export interface KindInfo {
  name: string;
  summary: string;
  /** Whether it is submitted here; else only at its product's own routes. */
  is_open: boolean;
  /** Credits, or 'by input'. */
  price: number | string;
  queue: string;
  priority: number;
  stages: string[];
  /** The stages in which a cancel is refused. */
  firm_stages: string[];
  expires_in_seconds: number | null;
  time_limit_seconds: number | null;
  input_schema: Record<string, unknown>;
  lifecycle: LifecycleInfo;
  durations: Durations | null;
}

/** All kinds of jobs. */
export interface Kinds {
  data: KindInfo[];
}

/** A lifecycle as data, and as a diagram. */
export interface LifecycleInfo {
  name: string;
  states: Record<string, "delivering" | "ended" | "leased" | "parked" | "ready" | "waiting">;
  /** The ended states, each with its outcome. */
  ends: Record<string, "blocked" | "canceled" | "expired" | "failed" | "succeeded">;
  moves: Arrow[];
  mermaid: string;
}

/** Where a job can be read, watched and stopped. */
export interface Links {
  self: string;
  events: string;
  stream: string;
  cancel: string;
}

/** One line of a job's log. */
export interface LogLine {
  seq: number;
  at: string;
  text: string;
  level: string | null;
}

/** A page of log lines, the oldest first. */
export interface Logs {
  data: LogLine[];
  next: number | null;
}

/** A wallet inside a tenant. */
export interface MakeAccount {
  account: string;
  active_max?: number | null;
}

/** A file to be uploaded. */
export interface MakeArtifact {
  /** As people see it. */
  name: string;
  content_type: string;
  /** Bytes; exactly so many are taken. */
  size: number;
  sha256?: string | null;
  /** Whose it is; a client key has its own. */
  account?: string | null;
}

/** A file that a worker wants to read. */
export interface MakeDownload {
  job_id: string;
  lease_token: string;
  artifact_id: string;
}

/** A URL that is told of a tenant's jobs. */
export interface MakeEndpoint {
  /** Without one nothing is sent: what is due waits to be pulled. */
  url?: string | null;
  events?: ("job.submitted" | "job.queued" | "job.started" | "job.requeued" | "job.parked" | "job.answered" | "job.delivering" | "job.succeeded" | "job.failed" | "job.canceled" | "job.expired" | "job.blocked" | "job.retried" | "endpoint.disabled" | "*")[] | null;
  /** Only jobs of these kinds; none: of all. */
  kinds?: string[];
  description?: string;
  secret?: string | null;
  limit?: number | null;
}

/** Something to be done to many jobs, in the background. */
export interface MakeErrand {
  action: "cancel" | "export" | "priority" | "refund" | "retry" | "verify";
  filter?: JobFilter;
  /** That an empty filter, which means every job, is meant. */
  all?: boolean;
  priority?: number | null;
  format?: "csv" | "ndjson" | null;
  reason?: string | null;
}

/** A key: for a client's account, for a worker, or for an operator. Tenant and account are made if missing. */
export interface MakeKey {
  scope: "admin" | "client" | "operator" | "viewer" | "worker";
  tenant?: string | null;
  account?: string | null;
  name?: string | null;
  expires_in?: string | number | null;
  rate_limit?: number | null;
}

/** Credits that a job has cost, to be given back. */
export interface MakeRefund {
  /** Why; it stands in the ledger and the audit. */
  reason: string;
  amount?: number | null;
}

/** A customer. */
export interface MakeTenant {
  tenant: string;
}

/** What a browser may do with one job, and for how long. */
export interface MakeToken {
  scopes?: ("cancel" | "read")[];
  /** Seconds, or text like 90s, 15m, 1h; from 1s to 24h. */
  expires_in?: string | number;
}

/** A file that a worker wants to save. */
export interface MakeUpload {
  job_id: string;
  lease_token: string;
  name: string;
  content_type: string;
  size: number;
  sha256?: string | null;
}

/** A change of the schema that was made. */
export interface MigrationInfo {
  number: number;
  name: string;
  applied_at: string;
}

/** An operator's move along an arrow of the lifecycle. */
export interface Move {
  state: string;
}

/** A file that was announced, and where to put it. */
export interface NewArtifact {
  id: string;
  tenant: string;
  account: string;
  /** The job that it was made by, or given to. */
  job_id: string | null;
  name: string;
  content_type: string;
  size: number;
  sha256: string | null;
  created_at: string;
  /** Until when it was to be uploaded. */
  expires_at: string;
  /** When it was seen in storage, whole. */
  stored_at: string | null;
  /** Where to get it, once it is stored. */
  download: Signed | null;
  upload: Signed;
}

/** An endpoint with its secret, which is told this once. */
export interface NewEndpoint {
  id: string;
  tenant: string;
  /** Whose jobs it is told of; null: those of the whole tenant. */
  account: string | null;
  /** Null: what is due is pulled. */
  url: string | null;
  events: string[];
  /** None: of all kinds. */
  kinds: string[];
  /** Whether it is told as said here; if not, in the words of each job's kind. */
  is_native: boolean;
  description: string;
  /** How many requests at once; null for the server's own limit. */
  limit: number | null;
  created_at: string;
  /** From then on nothing is sent. */
  disabled_at: string | null;
  disabled_reason: string | null;
  /** Since when it has taken nothing. */
  failing_since: string | null;
  /** Until when the secret before this one signs too. */
  rotated_until: string | null;
  /** When something was last pulled from it. */
  pulled_at: string | null;
  secret: string;
}

/** A key just made. Its secret is told this once and is not kept. */
export interface NewKey {
  id: string;
  /** Its beginning and its end, to recognise it by. */
  hint: string;
  scope: "admin" | "client" | "operator" | "viewer" | "worker";
  tenant: string | null;
  account: string | null;
  name: string | null;
  rate_limit: number | null;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  last_used_at: string | null;
  key: string;
}

/** A worker with its new token, which is told this once and is not kept. */
export interface NewWorkerToken {
  /** worker_…; null for a worker that works on the database itself. */
  id: string | null;
  worker: string;
  is_fleet: boolean;
  routes: string[];
  /** How many jobs it may hold at once. */
  slots: number | null;
  status: "busy" | "draining" | "idle" | "revoked" | "silent" | "unapproved";
  leases: number;
  /** How many it holds. */
  jobs: number;
  /** What it said of itself. */
  capabilities: unknown;
  /** The beginning and the end of its token. */
  hint: string | null;
  /** The key it registered with. */
  fleet: string | null;
  /** From where it was last heard. */
  address: string | null;
  registered_at: string | null;
  heard_at: string | null;
  /** When it was last given a job that it still has. */
  granted_at: string | null;
  /** When the first of its leases runs out. */
  expires_at: string | null;
  token: string;
}

/** Whether the job must stop. */
export interface Noted {
  cancel_requested: boolean;
}

/** Which job is meant, and by what right. */
export interface OfLease {
  job_id: string;
  lease_token: string;
}

/** A request that whoever pulled it is to make: these headers and this body, byte for byte. */
export interface Parcel {
  id: string;
  headers: Record<string, string>;
  body: string;
}

/** What is due; whatever is not reported within a minute is given out again. */
export interface Parcels {
  data: Parcel[];
}

/** A job that waits for an answer. */
export interface ParkJob {
  job_id: string;
  lease_token: string;
  memo?: unknown;
}

/** How many jobs a worker has room for, and how many seconds it waits for the first. */
export interface Poll {
  want?: number;
  wait?: number;
  held?: string[] | null;
}

/** Connections of this process. */
export interface PoolInfo {
  name: string;
  size: number;
  idle: number;
  most: number;
}

/** Credits for an account. */
export interface Post {
  tenant: string;
  account: string;
  amount: number;
  reference?: string | null;
  reason?: string | null;
}

/** Which jobs an errand would be about. */
export interface PreviewErrand {
  filter?: JobFilter;
}

/** RFC 9457: what went wrong, where, and what to do about it. More members may stand beside these. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  /** Stable; the same in Python, on the job and in the logs. */
  code: string;
  detail: string;
  instance?: string | null;
  field?: string | null;
  hint?: string | null;
  retryable?: boolean;
  request_id?: string | null;
}

/** How many of those that are due are wanted. */
export interface PullDeliveries {
  most?: number;
}

/** A queue and how it is doing. */
export interface QueueInfo {
  queue: string;
  /** paused; unserved: jobs wait and nobody claims; stuck: claimed, but nothing ends; busy; ok. */
  verdict: "busy" | "ok" | "paused" | "stuck" | "unserved";
  reason: string;
  ready: number;
  waiting: number;
  leased: number;
  parked: number;
  oldest_wait_seconds: number | null;
  workers: number;
  paused_at: string | null;
}

/** All queues. */
export interface Queues {
  data: QueueInfo[];
}

/** What a job would cost, and whether the account could pay. */
export interface Quote {
  kind: string;
  /** A whole number of credits. */
  price: number;
  available: number;
  can_pay: boolean;
}

/** What was given back. */
export interface Refund {
  job_id: string;
  /** A whole number of credits. */
  amount: number;
  /** What the account has now. */
  available: number;
}

/** Why jobs were refused, how many, and one of them. */
export interface Refusal {
  code: string;
  message: string;
  count: number;
  /** The id of one of them. */
  sample: string;
}

/** A worker that comes: its name, the routes it serves, how many jobs it runs at once. */
export interface RegisterWorker {
  worker: string;
  routes: string[];
  slots?: number;
  capabilities?: Record<string, unknown> | null;
  identity?: Identity | null;
}

/** A worker that is in. Its token is told this once and is not kept. */
export interface Registered {
  id: string;
  worker: string;
  token: string;
  routes: string[];
  /** False: an operator must approve it first. */
  is_approved: boolean;
  lease_seconds: number;
  heartbeat_seconds: number;
  poll_seconds_max: number;
}

/** What came of a request that was pulled. */
export interface ReportDelivery {
  status?: number | null;
  error?: string | null;
  seconds?: number;
  headers?: Record<string, string>;
  /** How the answer began; what is long is shortened. */
  body?: string;
}

/** A job that its worker cannot go on with. */
export interface RequeueJob {
  job_id: string;
  lease_token: string;
  reason?: string;
}

/** What is to be sent once more: what failed since then, or everything. */
export interface ResendSince {
  since: string;
  only_failed?: boolean;
}

/** How many are sent once more. */
export interface Resent {
  count: number;
}

/** The outcome of one job of a bulk submit: accepted, or a problem. */
export interface Result {
  status: number;
  job?: Accepted | null;
  problem?: Problem | null;
}

/** The outcomes of a bulk submit, in the order of its jobs. */
export interface Results {
  accepted: number;
  refused: number;
  results: Result[];
}

/** How long what is sent is signed with the old secret too. */
export interface RotateEndpoint {
  /** Seconds, or text like 15m, 24h, 7d; at most 30d. */
  overlap?: string | number;
}

/** How long the old key stays good beside the new one. */
export interface RotateKey {
  /** Seconds, or text like 90s, 15m, 1h, 7d. */
  overlap?: string | number;
}

/** How long the old token stays good beside the new one; not at all, unless a time is given. */
export interface RotateWorker {
  overlap?: string | number | null;
}

/** A route: a queue whose jobs go to the fleet. */
export interface RouteInfo {
  route: string;
  /** Jobs that wait for a worker; 10000 means as many or more. */
  ready: number;
  leased: number;
  oldest_wait_seconds: number | null;
  workers: RouteWorkers;
  /** Of the workers that take jobs. */
  slots: number;
  paused_at: string | null;
}

/** How many workers of a route are heard from, by what they are at. */
export interface RouteWorkers {
  idle: number;
  busy: number;
  draining: number;
}

/** All routes. */
export interface Routes {
  data: RouteInfo[];
}

/** A statement that has been running for more than a second. */
export interface RunningQuery {
  pid: number;
  seconds: number;
  state: string;
  query: string;
}

/** A file that was uploaded. */
export interface SavedFile {
  id: string;
  size: number;
  sha256?: string | null;
}

/** How many workers a route should have now, and what that was decided by. */
export interface Scaling {
  route: string;
  desired_workers: number;
  ready: number;
  leased: number;
  oldest_wait_seconds: number | null;
  workers: RouteWorkers;
  /** How long a job runs on average; null if unknown. */
  expected_seconds: number | null;
}

/** How many workers each route should have now. */
export interface Scalings {
  data: Scaling[];
}

/** What went through, point by point; the last is not over yet. */
export interface Series {
  span: "1h" | "24h" | "30d" | "6h" | "7d";
  step_seconds: number;
  /** Where each point begins, in seconds since 1970. */
  at: number[];
  submitted: number[];
  succeeded: number[];
  /** Those that were blocked as well. */
  failed: number[];
  canceled: number[];
  expired: number[];
  /** How often a job went back to be run once more. */
  retried: number[];
  captured: number[];
  /** Seconds from when it might start until it did. */
  wait_p50: (number | null)[];
  wait_p90: (number | null)[];
  /** Seconds from the first start until the end. */
  run_p50: (number | null)[];
  run_p90: (number | null)[];
}

/** Who has signed in to the dashboard, and what its page needs to know. */
export interface Session {
  scope: "admin" | "client" | "operator" | "viewer" | "worker";
  /** Null: every tenant. */
  tenant: string | null;
  /** As which they stand in the audit. */
  actor: string;
  /** What the key is called. */
  name: string | null;
  expires_at: string;
  /** To be sent as Millpond-Csrf with whatever acts. */
  csrf: string;
  is_development: boolean;
  version: string;
  /** Seconds between two looks; 0: by hand. */
  refresh: number;
  blueprints: BlueprintPage[];
}

/** How many jobs of an account may be active at once; null for no limit. */
export interface SetCap {
  active_max: number | null;
}

/** Another place in the line. */
export interface SetPriority {
  /** The highest goes first. */
  priority: number;
}

/** A setting; of a secret one only whether it is set. */
export interface SettingInfo {
  name: string;
  value: string | number | boolean | null;
  /** given: by whoever started the process. */
  source: "default" | "environment" | "given";
  is_secret: boolean;
}

/** A key of scope viewer, operator or admin, for which the dashboard opens. */
export interface SignIn {
  key: string;
}

/** A request to storage that needs no key: the method, where to, and the headers that must stand in it. */
export interface Signed {
  method: string;
  url: string;
  headers: Record<string, string>;
  expires_at: string;
}

/** A statement that took much time, all its runs together. */
export interface SlowQuery {
  query: string;
  calls: number;
  mean_ms: number;
  total_ms: number;
}

/** A stretch of a job's life; `to` is null for the one that lasts. */
export interface Span {
  phase: "delivering" | "ended" | "leased" | "parked" | "ready" | "waiting";
  stage: string | null;
  /** The attempt that it belongs to, or comes after; 0 before the first. */
  attempt: number;
  from: string;
  to: string | null;
}

/** A tenant, what was captured of it in the last hour, and for how many jobs. */
export interface Spender {
  tenant: string;
  captured: number;
  jobs: number;
}

/** Where a job stands after a move or an answer. */
export interface State {
  id: string;
  state: string;
}

/** What an alarm is about. */
export interface Subject {
  type: "endpoint" | "failure" | "hold" | "queue" | "worker";
  id: string;
  /** Whose it is, where it is one tenant's. */
  tenant: string | null;
}

/** What a provider was asked to do for a job. */
export interface SubmissionInfo {
  id: string;
  provider: string;
  /** What the provider calls it. */
  prediction_id: string | null;
  status: string;
  /** Which part of the job it is for; empty where it is all of it. */
  part: string;
  run: number;
  created_at: string;
  over_at: string | null;
}

/** A job to be. */
export interface Submit {
  kind: string;
  input?: Record<string, unknown>;
  /** Whose wallet pays; a client key has its own. */
  account?: string | null;
  /** The same as the Idempotency-Key header; one of the two is enough. */
  idempotency_key?: string | null;
  priority?: number | null;
  run_at?: string | null;
  expires_in?: string | number | null;
  webhook?: JobWebhook | null;
}

/** Up to a thousand jobs; each is accepted or refused by itself. */
export interface SubmitMany {
  jobs: Submit[];
}

/** A process, its database, and how both are. */
export interface System {
  version: string;
  python: string;
  started_at: string;
  now: string;
  host: string;
  pid: number;
  is_development: boolean;
  database: DatabaseInfo;
  homes: HomeInfo[];
  pools: PoolInfo[];
  /** The largest 20. */
  tables: TableInfo[];
  migrations: MigrationInfo[];
  slow: SlowQuery[];
  /** Why no slow statements are known, and what to do. */
  slow_reason: string | null;
  running: RunningQuery[];
  configuration: SettingInfo[];
  checks: CheckInfo[];
}

/** A table with its indexes; one in parts as a whole. */
export interface TableInfo {
  table: string;
  bytes: number;
  /** As the planner estimates. */
  rows: number;
  dead: number;
  vacuumed_at: string | null;
}

/** A customer. */
export interface TenantInfo {
  tenant: string;
  created_at: string;
}

/** A page of tenants, by name. */
export interface Tenants {
  data: TenantInfo[];
  next_cursor: string | null;
}

/** A token for a browser; it is good for one job only. */
export interface Token {
  token: string;
  job_id: string;
  scopes: ("cancel" | "read")[];
  expires_at: string;
}

/** What the test pretends to tell of. */
export interface TriggerEvent {
  event?: "job.submitted" | "job.queued" | "job.started" | "job.requeued" | "job.parked" | "job.answered" | "job.delivering" | "job.succeeded" | "job.failed" | "job.canceled" | "job.expired" | "job.blocked" | "job.retried" | "endpoint.disabled";
}

/** Where a file goes. */
export interface Upload {
  artifact_id: string;
  upload: Signed;
}

/** Whether every invariant holds. */
export interface Verification {
  ok: boolean;
  violations: Violation[];
}

/** A row that breaks an invariant. */
export interface Violation {
  invariant: string;
  subject: string;
  job_id: string | null;
  detail: string;
}

/** What an account has, and how many of its jobs have not ended. */
export interface Wallet {
  tenant: string;
  account: string;
  available: number;
  held: number;
  active: number;
  active_max: number | null;
}

/** A page of a tenant's accounts, by name. */
export interface Wallets {
  data: Wallet[];
  next_cursor: string | null;
}

/** A worker: one of the fleet, or one beside the database that holds leases now. */
export interface WorkerInfo {
  /** worker_…; null for a worker that works on the database itself. */
  id: string | null;
  worker: string;
  is_fleet: boolean;
  routes: string[];
  /** How many jobs it may hold at once. */
  slots: number | null;
  status: "busy" | "draining" | "idle" | "revoked" | "silent" | "unapproved";
  leases: number;
  /** How many it holds. */
  jobs: number;
  /** What it said of itself. */
  capabilities: unknown;
  /** The beginning and the end of its token. */
  hint: string | null;
  /** The key it registered with. */
  fleet: string | null;
  /** From where it was last heard. */
  address: string | null;
  registered_at: string | null;
  heard_at: string | null;
  /** When it was last given a job that it still has. */
  granted_at: string | null;
  /** When the first of its leases runs out. */
  expires_at: string | null;
}

/** Something to say about a job. Numbers grow; one that comes twice is written once. */
export interface WorkerNote {
  number: number;
  type: "log" | "progress" | "stage";
  value?: number | null;
  /** For stage. */
  stage?: string | null;
  /** For log; shortened if it is long. */
  level?: string | null;
  /** For log; shortened if it is long. */
  text?: string | null;
}

/** The fleet, and the other workers that hold leases now. */
export interface Workers {
  data: WorkerInfo[];
}

/** What a worker says about a job, in order. */
export interface WriteNotes {
  job_id: string;
  lease_token: string;
  notes: WorkerNote[];
}
