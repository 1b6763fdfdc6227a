// Generated from src/millpond/wire by docs/generate.py; to update it, run `make reference`.

/** The response to a submit: the job at the time of its creation. A replay is identical byte for byte. */
export interface Accepted {
  id: string;
  kind: string;
  state: string;
  /** A whole number of credits. */
  price: number;
  /** The available credits of the account; omitted for free jobs. */
  available: number | null;
  created_at: string;
  expires_at: string | null;
  links: Links;
  /** The secret that signs the job's webhook, if it was generated. */
  webhook_secret?: string;
}

/** Jobs to add to a batch: all of them or none. */
export interface AddJobs {
  /** The position of the first one: how many jobs the batch has before. */
  first: number;
  jobs: BatchJob[];
}

/** An adjustment of an account's credits up or down, with a reason. */
export interface Adjust {
  tenant: string;
  account: string;
  amount: number;
  reason: string;
  reference?: string | null;
}

/** A problem that requires attention. */
export interface Alarm {
  level: "bad" | "warn";
  text: string;
  subject: Subject;
}

/** A transition of a lifecycle: an event and the states before and after it. */
export interface Arrow {
  from_state: string | null;
  event: string;
  to_state: string;
}

/** A file in storage. */
export interface Artifact {
  id: string;
  tenant: string;
  account: string;
  /** The job that created the file or uses it. */
  job_id: string | null;
  name: string;
  content_type: string;
  size: number;
  sha256: string | null;
  created_at: string;
  /** The time by which the file must be uploaded. */
  expires_at: string;
  /** The time at which the complete file was found in storage. */
  stored_at: string | null;
  /** The download URL, once the file is stored. */
  download: Signed | null;
}

/** The files of a job: its input files and the files of the last attempt. */
export interface Artifacts {
  data: Artifact[];
}

/** A job whose price is requested. */
export interface AskPrice {
  kind: string;
  input?: Record<string, unknown>;
  account?: string | null;
}

/** The new routes of a worker. */
export interface AssignRoutes {
  routes: string[];
}

/** A leased job. */
export interface Assignment {
  job_id: string;
  lease_token: string;
  lease_seconds: number;
  kind: string;
  route: string;
  tenant: string;
  account: string;
  state: string;
  /** The number of times the job was leased; unique per lease. */
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
  /** The readable files by their names in the input. */
  downloads: Record<string, Signed>;
  /** Whether an earlier attempt may have recorded steps. */
  has_steps?: boolean;
}

/** The jobs leased by a poll; empty if there were none. */
export interface Assignments {
  jobs: Assignment[];
  /** Whether the worker is draining: it receives no new jobs and finishes its jobs. */
  is_draining: boolean;
}

/** An attempt of a worker at a job, and its result. */
export interface Attempt {
  /** The number of the attempt, counted over all runs. */
  number: number;
  run: number;
  from: string;
  to: string | null;
  /** The worker that made the attempt, if known. */
  worker: string | null;
  /** worker_…, for a fleet worker. */
  worker_id: string | null;
  /** The outcome of the job, or requeued, parked, delivering; null while the attempt is running. */
  outcome: string | null;
  /** Why the job was requeued: attempt, interruption or lapse. */
  cause: string | null;
  error_code: string | null;
  /** Where the job's code raised the error, without what looks like a secret. */
  traceback?: string | null;
}

/** A page of operator actions, newest first. A page can be short or empty and still have a next page. */
export interface Audit {
  data: AuditEntry[];
  next_cursor: string | null;
  /** Set if the page ended because the search limit was reached. */
  searched_to?: string | null;
}

/** An operator action. */
export interface AuditEntry {
  id: string;
  at: string;
  actor: string;
  action: string;
  tenant: string | null;
  subject: string | null;
  data: unknown;
}

/** The period whose due times are fired. */
export interface BackfillSchedule {
  /** The beginning of the period: 24h ago, or a time. */
  since: string;
  until?: string | null;
}

/** The due times of a period, and how many of them a backfill fires: those without a job. */
export interface Backfilled {
  due_times: number;
  fires: number;
}

/** A batch: how many jobs it has, how many of them have ended, and how. */
export interface Batch {
  id: string;
  tenant: string;
  account: string;
  name: string | null;
  /** open: not all jobs are added; running: not all have ended; canceling: it was canceled, and not all have ended; completed or canceled: all have ended. */
  state: "canceled" | "canceling" | "completed" | "open" | "running";
  /** How many jobs it is to have. A cancel reduces it to those that were added. */
  total: number;
  /** How many jobs were added. */
  submitted: number;
  ended: number;
  succeeded: number;
  /** How many jobs failed, expired or were blocked. */
  failed: number;
  canceled: number;
  /** The share of its jobs that have ended. */
  progress: number;
  /** What its jobs may cost. Null: they are the children of a job. */
  price: number | null;
  /** What its ended jobs have cost. Null as for `price`. */
  captured: number | null;
  tags: Record<string, string>;
  /** The job whose children they are. */
  parent_id: string | null;
  created_at: string;
  canceled_at: string | null;
  ended_at: string | null;
}

/** A job of a batch. The batch has the account, and tags that all its jobs inherit. */
export interface BatchJob {
  kind: string;
  input?: Record<string, unknown>;
  priority?: number | null;
  run_at?: string | null;
  expires_in?: string | number | null;
  tags?: Record<string, string> | null;
}

/** A page of the jobs of a batch, in the order of their positions. */
export interface BatchJobs {
  data: Job[];
  next_cursor: string | null;
}

/** A webhook for the end of one batch, in addition to the endpoints of its tenant. */
export interface BatchWebhook {
  url: string;
  secret?: string | null;
}

/** A page of batches, newest first. */
export interface Batches {
  data: Batch[];
  next_cursor: string | null;
}

/** The current state of the system. For one tenant: its own numbers, without queues and workers, which all tenants share. */
export interface Board {
  at: string;
  /** Seconds between two refreshes; 0 for manual refresh. */
  refresh: number;
  ready: number;
  waiting: number;
  leased: number;
  parked: number;
  delivering: number;
  /** The slots of the live workers; of draining ones, those in use. */
  slots: number | null;
  /** How many of these slots hold a job. */
  slots_used: number | null;
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
  /** The most frequent failures of the last hour. */
  failures: Failure[];
  /** The tenants with the most captured credits in the last hour. */
  tenants: Spender[];
  alarms: Alarm[];
}

/** Workers by status. A `deaf` worker sends heartbeats but does not poll although jobs wait; an `unready` one reports that it takes no jobs. */
export interface BoardWorkers {
  ok: number;
  draining: number;
  deaf: number;
  unready: number;
  unapproved: number;
  lost: number;
}

/** What the descendants of a job may cost, have cost, and may still cost if they have not ended. */
export interface Budget {
  /** A whole number of credits. */
  amount: number;
  /** A whole number of credits. */
  spent: number;
  /** A whole number of credits. */
  reserved: number;
}

/** A bulk operation and its progress. */
export interface BulkOperation {
  id: string;
  action: "cancel" | "export" | "priority" | "refund" | "retry" | "verify";
  filter: JobFilter;
  arguments: Record<string, unknown>;
  state: "aborted" | "done" | "failed" | "running" | "waiting";
  /** Whether an abort was requested. */
  is_aborting: boolean;
  examined: number;
  matched: number;
  done: number;
  refused: number;
  refusals: Refusal[];
  /** The estimated number of matching jobs, if known. */
  estimate: number | null;
  result: BulkOperationResult | null;
  /** The reason of the failure. */
  error: Record<string, unknown> | null;
  actor: string;
  tenant: string | null;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
}

/** The number of jobs that match a filter, and some of them. */
export interface BulkOperationPreview {
  /** Counted up to 10,000. */
  matched: number;
  /** Whether more jobs match. */
  is_capped: boolean;
  /** How far back the jobs were searched; null if all were searched. */
  searched_to: string | null;
  sample: JobSummary[];
}

/** The result of a bulk operation: a file or a verification result. */
export interface BulkOperationResult {
  name?: string | null;
  size?: number | null;
  rows?: number | null;
  /** The URL of the file, valid for one hour. Read the operation again for a new URL. */
  url?: string | null;
  /** The time at which the file is deleted. */
  expires_at?: string | null;
  ok?: boolean | null;
  violations?: Violation[] | null;
}

/** A page of bulk operations, newest first. */
export interface BulkOperations {
  data: BulkOperation[];
  next_cursor: string | null;
}

/** The result of a provider callback. */
export interface CallbackResult {
  verdict: string;
}

/** Whether the cancellation was accepted, and the state of the job. */
export interface Canceled {
  id: string;
  /** False if the job had already ended. */
  is_accepted: boolean;
  state: string;
  stage: string | null;
}

/** Whether the cancellation was accepted, and the batch. */
export interface CanceledBatch {
  /** False if the batch had already ended. */
  is_accepted: boolean;
  batch: Batch;
}

/** Changes of a webhook endpoint; omitted fields are not changed. */
export interface ChangeEndpoint {
  url?: string;
  events?: ("job.submitted" | "job.queued" | "job.started" | "job.requeued" | "job.parked" | "job.answered" | "job.resumed" | "job.delivering" | "job.succeeded" | "job.failed" | "job.canceled" | "job.expired" | "job.blocked" | "job.retried" | "batch.completed" | "endpoint.disabled" | "*")[];
  kinds?: string[];
  description?: string;
  limit?: number | null;
}

/** The numbers that apply from now on, in place of those that the app declares. What is left out has no limit. */
export interface ChangeLimit {
  at_once?: number | null;
  starts?: number | null;
  per?: string | number | null;
}

/** A check of the doctor. */
export interface CheckInfo {
  check: string;
  verdict: "failed" | "ok";
  detail: string;
}

/** How many children a job has, how many of them have ended, and how. */
export interface ChildCounts {
  submitted: number;
  ended: number;
  succeeded: number;
  failed: number;
  canceled: number;
}

/** A child; its outcome is null if it has not ended. */
export interface ChildOutcome {
  id: string;
  kind: string;
  outcome: "blocked" | "canceled" | "expired" | "failed" | "succeeded" | null;
  output: unknown;
  error: Record<string, unknown> | null;
}

/** Some children in order; none while the job must wait for them. */
export interface ChildOutcomes {
  is_over: boolean;
  total: number;
  children: ChildOutcome[];
}

/** A page of the children of a job, oldest first. */
export interface Children {
  data: Job[];
  /** The jobs of this page that have children themselves. */
  parents: string[];
  counts: ChildCounts;
  budget: Budget | null;
  next_cursor: string | null;
}

/** A piece of the text that a running job emits. The chunk with number 1 restarts the text. */
export interface Chunk {
  /** The number of the last event before it. */
  seq: number;
  /** Counts the chunks of an attempt from 1 without gaps. */
  number: number;
  at: string;
  text: string;
}

/** A key to close, and for how long. */
export interface CloseLimit {
  /** Seconds, or text such as 90s, 15m, 1h or 7d. */
  duration: string | number;
  /** The value of the key. For a key from the input, it is a digest. Empty if the limit has no key, or the job no value. */
  value?: string;
}

/** A completed job. */
export interface CompleteJob {
  job_id: string;
  lease_token: string;
  output?: unknown;
  artifacts?: SavedFile[];
  captured?: number | null;
}

/** The state of the job. */
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
  /** The share of blocks that were read from memory. */
  cache_hit: number | null;
  commits: number;
  rollbacks: number;
  deadlocks: number;
  temporary_bytes: number;
}

/** A page of deliveries, newest first. */
export interface Deliveries {
  data: Delivery[];
  next_cursor: string | null;
}

/** A delivery: one event for one receiver. */
export interface Delivery {
  /** The webhook-id of all its requests. */
  id: string;
  tenant: string;
  /** Null for the own webhook of a job or batch. */
  endpoint_id: string | null;
  job_id: string | null;
  event: string;
  state: "delivered" | "failed" | "pending" | "withdrawn";
  tries: number;
  created_at: string;
  /** The time of the next attempt. */
  due_at: string | null;
  settled_at: string | null;
  /** The batch whose end it reports. */
  batch_id?: string | null;
}

/** A delivery with its attempts, oldest first. */
export interface DeliveryLog {
  /** The webhook-id of all its requests. */
  id: string;
  tenant: string;
  /** Null for the own webhook of a job or batch. */
  endpoint_id: string | null;
  job_id: string | null;
  event: string;
  state: "delivered" | "failed" | "pending" | "withdrawn";
  tries: number;
  created_at: string;
  /** The time of the next attempt. */
  due_at: string | null;
  settled_at: string | null;
  /** The batch whose end it reports. */
  batch_id?: string | null;
  /** The current URL; null if the delivery is pulled. */
  url: string | null;
  /** The body of all its requests; null if this server does not know the kind of the job. */
  body: string | null;
  log: DeliveryTry[];
}

/** An attempt: a request and its result. */
export interface DeliveryTry {
  number: number;
  at: string;
  /** The URL of the request. */
  url: string | null;
  seconds: number;
  status: number | null;
  /** The reason why no response was received. */
  error: string | null;
  request_headers: Record<string, string>;
  response_headers: Record<string, string>;
  /** The beginning of the response body. */
  response_body: string;
}

/** The reason for disabling the endpoint. */
export interface DisableEndpoint {
  reason?: string;
}

/** Recent run times of a kind, in seconds. */
export interface Durations {
  p50: number;
  p90: number;
  /** The number of jobs in the sample. */
  jobs: number;
}

/** Text that jobs of the worker have emitted. */
export interface EmitText {
  jobs: EmittedText[];
}

/** The results, in the order of the jobs. */
export interface Emitted {
  jobs: EmittedResult[];
}

/** A piece of the text of a job. */
export interface EmittedChunk {
  /** Counts the chunks of the lease from 1, without gaps. */
  number: number;
  /** Up to 64 KiB. */
  text: string;
}

/** Whether the chunks of a job were written. Chunks that were written before are not written again. */
export interface EmittedResult {
  job_id: string;
  lease_token: string;
  /** False if the lease is lost: discard the job. */
  is_held: boolean;
  cancel_requested: boolean;
  /** Why no chunk of the job was written; null if they are written. */
  error: Record<string, unknown> | null;
}

/** Text that a job has emitted: its next chunks, in order. */
export interface EmittedText {
  job_id: string;
  lease_token: string;
  chunks: EmittedChunk[];
}

/** A webhook endpoint without its secret. */
export interface EndpointInfo {
  id: string;
  tenant: string;
  /** The account whose job events are sent; null for all accounts of the tenant. */
  account: string | null;
  /** Null if deliveries are pulled. */
  url: string | null;
  events: string[];
  /** Empty for all kinds. */
  kinds: string[];
  /** Whether events have the format described here; otherwise each kind defines the format. */
  is_native: boolean;
  description: string;
  /** The limit of concurrent requests; null for the server's limit. */
  limit: number | null;
  created_at: string;
  /** Nothing is sent since this time. */
  disabled_at: string | null;
  disabled_reason: string | null;
  /** No delivery has succeeded since this time. */
  failing_since: string | null;
  /** The time until which requests are also signed with the previous secret. */
  rotated_until: string | null;
  /** The last pull from the endpoint. */
  pulled_at: string | null;
}

/** Delivery statistics of an endpoint since a time. */
export interface EndpointStats {
  endpoint_id: string;
  since: string;
  pending: number;
  delivered: number;
  failed: number;
  withdrawn: number;
  tries: number;
  /** The median response time. */
  seconds_p50: number | null;
  seconds_p90: number | null;
}

/** A page of webhook endpoints, oldest first. */
export interface Endpoints {
  data: EndpointInfo[];
  next_cursor: string | null;
}

/** A page of ledger entries, newest first. */
export interface Entries {
  data: Entry[];
  next_cursor: string | null;
}

/** An entry of the ledger. */
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

/** The estimated end of a job: median (p50) and 90th percentile (p90). */
export interface Eta {
  p50: string;
  p90: string;
}

/** An event of a job; ``seq`` counts from 1 without gaps. */
export interface Event {
  seq: number;
  at: string;
  type: string;
  state: string;
  data: unknown;
}

/** A page of events, oldest first. ``next`` is the ``after`` of the next page, or null on the last one. */
export interface Events {
  data: Event[];
  next: number | null;
}

/** A failed job. */
export interface FailJob {
  job_id: string;
  lease_token: string;
  /** A code and a message; truncated if long. */
  error: Record<string, unknown>;
  outcome?: "blocked" | "canceled" | "failed";
  /** Whether the job may be retried. */
  retry?: boolean;
  retry_after?: number | null;
}

/** Failures of one fingerprint since a time. */
export interface Failure {
  /** Identical for failures that differ only in numbers, names and similar parts. If there were too many new ones in a day, it begins with `others` and covers the remaining failures of a kind and code. */
  fingerprint: string;
  kind: string;
  code: string;
  /** The message of a recent failure; at most 500 characters. */
  message: string;
  count: number;
  /** The first occurrence of all time, to the minute. */
  first_at: string;
  last_at: string;
  /** The number of affected tenants. */
  tenants: number;
  /** The released credits. */
  released: number;
  /** The id of one of the jobs. */
  sample: string;
  /** The number of failures per time step, oldest first. */
  counts: number[];
}

/** The most frequent failures since a time, at most 100. */
export interface Failures {
  step_seconds: number;
  since: string;
  data: Failure[];
}

/** The result of a failure: requeued, or the outcome of the job. */
export interface Fate {
  job_id: string;
  fate: string;
}

/** What a schedule did at a due time, or from one due time until another. */
export interface Fire {
  id: string;
  schedule_id: string;
  due_at: string;
  /** The last one of several due times that were skipped together. */
  until: string | null;
  /** The number of due times, counted up to 1,000. */
  times: number;
  /** Why: the schedule was due, or an operator ran or backfilled it. */
  cause: "backfill" | "manual" | "schedule";
  outcome: "failed" | "pending" | "skipped" | "submitted";
  /** Why no job was submitted: `overlap`, `catch_up`, or the code of a problem. */
  reason: string | null;
  message: string | null;
  /** When this was decided. */
  at: string;
  /** Who ran or backfilled it. */
  actor: string | null;
  job_id: string | null;
  /** Null if there is no job, or if it has been deleted. */
  job_state: string | null;
  job_phase: "delivering" | "ended" | "leased" | "parked" | "ready" | "waiting" | null;
  job_outcome: "blocked" | "canceled" | "expired" | "failed" | "succeeded" | null;
  job_started_at: string | null;
  job_finished_at: string | null;
}

/** A page of fires, the last one first. */
export interface Fires {
  data: Fire[];
  next_cursor: string | null;
}

/** The workers, their jobs and the capacity of the fleet. */
export interface FleetBoard {
  at: string;
  /** The desired number of workers of all routes. */
  desired: number;
  /** The number of idle and busy workers. */
  ready: number;
  /** The number of desired workers that have not registered yet. */
  starting: number;
  routes: FleetRoute[];
  workers: FleetWorker[];
}

/** A job held by a worker. */
export interface FleetJob {
  id: string;
  tenant: string;
  kind: string;
  stage: string | null;
  progress: number;
  since: string;
}

/** A route and its desired number of workers. */
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

/** A worker with its current jobs. */
export interface FleetWorker {
  /** worker_…; null for a worker that holds leases and is not registered. */
  id: string | null;
  worker: string;
  /** Whether it connects over HTTP; a direct worker uses the database. */
  is_fleet: boolean;
  /** The version of Millpond that it runs, if it has reported it. */
  version: string | null;
  /** The routes of a fleet worker. */
  routes: string[];
  /** The queues from which it takes jobs. */
  queues: string[];
  /** The number of jobs that the worker can hold at the same time. */
  slots: number | null;
  status: "busy" | "draining" | "idle" | "lost" | "revoked" | "unapproved" | "unready";
  leases: number;
  /** The number of jobs that the worker holds. */
  held: number;
  /** The first 50 jobs; for a key of one tenant, only its own. */
  jobs: FleetJob[];
  /** The capabilities reported by the worker. */
  capabilities: unknown;
  /** The first and last characters of its token. */
  hint: string | null;
  /** The key used for the registration. */
  fleet: string | null;
  /** The address of the last heartbeat. */
  address: string | null;
  registered_at: string | null;
  heard_at: string | null;
  /** The last poll. */
  polled_at: string | null;
  /** When the worker last received a job that it still holds. */
  granted_at: string | null;
  /** When the first of its leases expires. */
  expires_at: string | null;
  /** Since when the worker reports that it takes no jobs. */
  unready_at: string | null;
  /** Why the worker takes no jobs, as it reports. */
  unready_reason: string | null;
  /** Seconds since the last heartbeat. */
  heartbeat_age_seconds: number | null;
  /** Seconds since the last poll or lease. */
  claim_age_seconds: number | null;
  /** The worker sends heartbeats and has free slots, but does not poll although jobs of its routes wait. */
  is_deaf: boolean;
}

/** The answer for a parked job, or to one of its questions. */
export interface GiveAnswer {
  answer: unknown;
  question?: string | null;
}

/** The readiness of the process. */
export interface Health {
  status: "ok" | "unavailable";
  version: string;
  checks: Record<string, string>;
}

/** All jobs held by the worker; may be empty. */
export interface Heartbeat {
  jobs?: HeldJob[];
}

/** The response to a heartbeat, in the order of its jobs. */
export interface HeartbeatResult {
  jobs: JobHeartbeat[];
  is_draining: boolean;
}

/** A job held by the worker, and the names whose signed requests must be renewed. */
export interface HeldJob {
  job_id: string;
  lease_token: string;
  renew?: string[];
}

/** A credit hold of a job. */
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

/** The holds of an age group. */
export interface HoldAge {
  /** The upper bound of the age in seconds; null for the oldest group. */
  seconds: number | null;
  jobs: number;
  credits: number;
}

/** Credit holds, oldest first. A page can be short or empty and still have a next page. */
export interface Holds {
  data: Hold[];
  next_cursor: string | null;
  /** Holds by age, of the 10,000 oldest unfinished jobs. Only on the first page; empty on others. */
  ages: HoldAge[];
  /** Whether there are more unfinished jobs. */
  is_capped: boolean;
}

/** The proof of identity of an EC2 instance: its identity document and signature. */
export interface Identity {
  document: string;
  signature: string;
}

/** The current state of a job. */
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
  /** The position in the queue, starting at 1; 1000 means a thousand or more. Set only while the job is ready. */
  position: number | null;
  /** Set only until the job has ended, if enough data is available. */
  eta: Eta | null;
  priority: number;
  run: number;
  attempts: number;
  /** The number of the last event. */
  events: number;
  /** A whole number of credits. */
  price: number;
  /** The captured credits. */
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
  tags?: Record<string, string>;
  /** The job that submitted it as a child. */
  parent_id?: string | null;
  batch_id?: string | null;
  /** What a parked job waits for; null if it waits for an answer to itself. */
  waits_for?: "children" | "question" | "time" | null;
  /** The limit that does not let a ready job start; it has no position then. */
  limit_wait?: LimitWait | null;
  /** The parts that a list leaves out, as null, because each is larger than 64 KiB. They are at `links.self`. Always empty for a single job. */
  omitted?: ("input" | "output")[];
}

/** What a job consists of beside its own code. */
export interface JobComposition {
  counts: ChildCounts;
  budget: Budget | null;
  /** Of the current run, oldest first. */
  questions: Question[];
  /** The end of the next sleep of its code. */
  wakes_at: string | null;
}

/** A job with its related objects. */
export interface JobDetail {
  job: Job;
  /** The worker that holds the job. */
  worker: string | null;
  /** worker_…, for a fleet worker. */
  worker_id: string | null;
  attempts: Attempt[];
  spans: Span[];
  /** The number of events that were omitted from the middle of the timeline. */
  events_left_out: number;
  /** The ledger entries of the job: hold, capture or release, refunds. */
  entries: Entry[];
  /** The newest 100 deliveries. */
  deliveries: Delivery[];
  files: Artifact[];
  predictions: PredictionInfo[];
  /** The idempotency key; null if it is not indexed. */
  key: string | null;
  /** Retries of the job, among the next 2,000 jobs of its account. */
  retries: string[];
  /** Null for a kind that this server does not know. */
  lifecycle: LifecycleInfo | null;
  /** Null if the job has no steps, children or budget. */
  composition: JobComposition | null;
}

/** The error of a job. */
export interface JobError {
  code: string;
  message: string;
  field?: string;
  hint?: string;
}

/** A job filter: jobs match if they meet all given conditions. */
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
  tag?: string[] | null;
  since?: string | null;
  until?: string | null;
  ids?: string[] | null;
}

/** The status of a job in a heartbeat. */
export interface JobHeartbeat {
  job_id: string;
  lease_token: string;
  /** False if the lease is lost: discard the job. */
  is_held: boolean;
  cancel_requested: boolean;
  lease_seconds: number;
  downloads: Record<string, Signed>;
  uploads: Record<string, Signed>;
}

/** A page of jobs, newest first. A page can be short or empty and still have a next page. */
export interface JobSummaries {
  data: JobSummary[];
  next_cursor: string | null;
  /** Set if the page ended because the search limit was reached, not because it was full. */
  searched_to: string | null;
}

/** A job in a list, without input and output. */
export interface JobSummary {
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
  /** The fingerprint of the failure. */
  fingerprint: string | null;
  error_code: string | null;
  /** The first 200 characters. */
  error_message: string | null;
  /** The worker that holds the job. */
  worker: string | null;
  is_canceling: boolean;
  tags?: Record<string, string>;
}

/** The text that a running job has emitted so far. */
export interface JobText {
  text: string;
  /** The number of its last chunk; 0 if there is none. */
  number: number;
  /** When its last chunk was written. */
  at: string | null;
  /** Identifies the attempt that emitted it: with another epoch, it was restarted. */
  epoch: number | null;
  /** Where the stream of the job continues it: the Last-Event-ID. */
  last_event_id: string;
}

/** A webhook for one job, in addition to the endpoints of its tenant. */
export interface JobWebhook {
  url: string;
  secret?: string | null;
  events?: ("job.submitted" | "job.queued" | "job.started" | "job.requeued" | "job.parked" | "job.answered" | "job.resumed" | "job.delivering" | "job.succeeded" | "job.failed" | "job.canceled" | "job.expired" | "job.blocked" | "job.retried")[] | null;
}

/** A page of jobs, newest first. A page of 4 MiB ends before its limit; its cursor continues it. */
export interface Jobs {
  data: Job[];
  next_cursor: string | null;
}

/** The traceback of an attempt that has failed. */
export interface KeepTraceback {
  job_id: string;
  lease_token: string;
  /** Truncated if long; what looks like a secret is removed. */
  text: string;
}

/** A key without its secret. */
export interface KeyInfo {
  id: string;
  /** The first and last characters of the key. */
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

/** A page of keys, newest first. */
export interface Keys {
  data: KeyInfo[];
  next_cursor: string | null;
}

/** The number of jobs of a kind per state; for terminal states, the number of jobs since counting began. */
export interface KindCount {
  kind: string;
  states: Record<string, number>;
  /** The credits held for the jobs. */
  held: number;
}

/** All kinds that have jobs. */
export interface KindCounts {
  data: KindCount[];
}

/** A kind of job: its input schema, price and lifecycle. */
export interface KindInfo {
  name: string;
  summary: string;
  /** Whether jobs can be submitted through this API; otherwise only through the routes of its product. */
  is_open: boolean;
  /** Credits, or 'by input'. */
  price: number | string;
  /** What the children of a job may cost; held with its price. */
  budget: number | null;
  queue: string;
  priority: number;
  stages: string[];
  /** The stages in which a job cannot be canceled. */
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

/** A lifecycle as data and as a diagram. */
export interface LifecycleInfo {
  name: string;
  states: Record<string, "delivering" | "ended" | "leased" | "parked" | "ready" | "waiting">;
  /** The terminal states with their outcomes. */
  ends: Record<string, "blocked" | "canceled" | "expired" | "failed" | "succeeded">;
  transitions: Arrow[];
  mermaid: string;
}

/** A limit, with the jobs under all its keys. */
export interface LimitInfo {
  name: string;
  /** How many jobs may run at once. */
  at_once: number | null;
  /** How many jobs may start in a period. */
  starts: number | null;
  /** The length of the period. */
  per_seconds: number | null;
  /** What the limit counts apart: tenant, account, tags.NAME, input.FIELD. */
  key: string[];
  /** The kinds of the jobs. */
  kinds: string[];
  /** 10000 means that many or more. */
  running: number;
  /** 10000 means that many or more. */
  waiting: number;
  /** Whether an operator has changed the numbers that the app declares. */
  is_changed: boolean;
  changed_at: string | null;
  changed_by: string | null;
}

/** A key of a limit: a value that it counts apart. */
export interface LimitKey {
  /** The value of the key. For a key from the input, it is a digest. Empty if the limit has no key, or the job no value. */
  value: string;
  running: number;
  waiting: number;
  /** How many jobs have started in the last period. */
  started: number | null;
  closed_until: string | null;
  /** When more jobs may start, if that depends on time alone. */
  more_at: string | null;
}

/** A page of the keys of a limit that were used lately, by value. */
export interface LimitKeys {
  data: LimitKey[];
  next_cursor: string | null;
}

/** The limit that a job waits for. */
export interface LimitWait {
  limit: string;
  /** Enough jobs are running, enough have started in the period, or the key is closed. */
  reason: "at_once" | "closed" | "starts";
  since: string;
  /** When more jobs may start, if that depends on time alone. */
  more_at: string | null;
}

/** All limits, by name. */
export interface Limits {
  data: LimitInfo[];
}

/** The URLs for reading, watching and canceling a job. */
export interface Links {
  self: string;
  events: string;
  stream: string;
  cancel: string;
}

/** A line of a job's log. */
export interface LogLine {
  seq: number;
  at: string;
  text: string;
  level: string | null;
}

/** A page of log lines, oldest first. */
export interface Logs {
  data: LogLine[];
  next: number | null;
}

/** An account of a tenant, which has a wallet. */
export interface MakeAccount {
  account: string;
  active_max?: number | null;
}

/** A file to be uploaded. */
export interface MakeArtifact {
  /** The file name shown to people. */
  name: string;
  content_type: string;
  /** The exact size in bytes. */
  size: number;
  sha256?: string | null;
  /** The account that owns the file; client keys have their own. */
  account?: string | null;
}

/** A batch to create, with its first jobs. */
export interface MakeBatch {
  /** The first jobs; others are added with further requests. */
  jobs?: BatchJob[];
  total?: number | null;
  name?: string | null;
  /** The account that pays; client keys have their own. */
  account?: string | null;
  /** Alternative to the Idempotency-Key header. */
  idempotency_key?: string | null;
  tags?: Record<string, string> | null;
  webhook?: BatchWebhook | null;
}

/** A bulk operation to create. */
export interface MakeBulkOperation {
  action: "cancel" | "export" | "priority" | "refund" | "retry" | "verify";
  filter?: JobFilter;
  /** Confirms that an empty filter, which matches every job, is intended. */
  all?: boolean;
  priority?: number | null;
  even_if_succeeded?: boolean | null;
  format?: "csv" | "ndjson" | null;
  reason?: string | null;
}

/** A file that the worker wants to download. */
export interface MakeDownload {
  job_id: string;
  lease_token: string;
  artifact_id: string;
}

/** A URL that receives events of a tenant's jobs. */
export interface MakeEndpoint {
  /** If omitted, nothing is sent and deliveries are pulled. */
  url?: string | null;
  events?: ("job.submitted" | "job.queued" | "job.started" | "job.requeued" | "job.parked" | "job.answered" | "job.resumed" | "job.delivering" | "job.succeeded" | "job.failed" | "job.canceled" | "job.expired" | "job.blocked" | "job.retried" | "batch.completed" | "endpoint.disabled" | "*")[] | null;
  /** Only events of jobs of these kinds; if empty, of all kinds. */
  kinds?: string[];
  description?: string;
  secret?: string | null;
  limit?: number | null;
}

/** A key for a client account, a worker or an operator. Tenant and account are created if they do not exist. */
export interface MakeKey {
  scope: "admin" | "client" | "operator" | "viewer" | "worker";
  tenant?: string | null;
  account?: string | null;
  name?: string | null;
  expires_in?: string | number | null;
  rate_limit?: number | null;
}

/** A refund of the charge of a job. */
export interface MakeRefund {
  /** The reason, which is recorded in the ledger and the audit log. */
  reason: string;
  amount?: number | null;
}

/** A schedule to create. */
export interface MakeSchedule {
  /** The name, unique within the tenant. */
  name: string;
  kind: string;
  /** The account that pays for the jobs. */
  account?: string | null;
  input?: Record<string, unknown>;
  due_field?: string | null;
  cron?: string | null;
  every?: string | number | null;
  at?: string | null;
  zone?: string | null;
  jitter?: string | number | null;
  /** What happens at a due time if the job of the previous one has not ended. */
  overlap?: "cancel_previous" | "queue" | "skip";
  /** Which due times are made up for that were missed by more than a minute. */
  catch_up?: "all" | "last" | "none";
  /** How many of the missed due times `all` makes up for: the last ones. */
  catch_up_max?: number;
  priority?: number | null;
  expires_in?: string | number | null;
  tags?: Record<string, string> | null;
}

/** A customer. */
export interface MakeTenant {
  tenant: string;
}

/** The permissions and lifetime of a browser token. */
export interface MakeToken {
  scopes?: ("cancel" | "read")[];
  /** Seconds, or text such as 90s, 15m or 1h; from 1s to 24h. */
  expires_in?: string | number;
}

/** A transition requested by an operator. */
export interface MakeTransition {
  state: string;
}

/** A file that the worker wants to upload. */
export interface MakeUpload {
  job_id: string;
  lease_token: string;
  name: string;
  content_type: string;
  size: number;
  sha256?: string | null;
}

/** An applied migration. */
export interface MigrationInfo {
  number: number;
  name: string;
  applied_at: string;
}

/** An announced file and its upload request. */
export interface NewArtifact {
  id: string;
  tenant: string;
  account: string;
  /** The job that created the file or uses it. */
  job_id: string | null;
  name: string;
  content_type: string;
  size: number;
  sha256: string | null;
  created_at: string;
  /** The time by which the file must be uploaded. */
  expires_at: string;
  /** The time at which the complete file was found in storage. */
  stored_at: string | null;
  /** The download URL, once the file is stored. */
  download: Signed | null;
  upload: Signed;
}

/** A batch that was just created. */
export interface NewBatch {
  id: string;
  tenant: string;
  account: string;
  name: string | null;
  /** open: not all jobs are added; running: not all have ended; canceling: it was canceled, and not all have ended; completed or canceled: all have ended. */
  state: "canceled" | "canceling" | "completed" | "open" | "running";
  /** How many jobs it is to have. A cancel reduces it to those that were added. */
  total: number;
  /** How many jobs were added. */
  submitted: number;
  ended: number;
  succeeded: number;
  /** How many jobs failed, expired or were blocked. */
  failed: number;
  canceled: number;
  /** The share of its jobs that have ended. */
  progress: number;
  /** What its jobs may cost. Null: they are the children of a job. */
  price: number | null;
  /** What its ended jobs have cost. Null as for `price`. */
  captured: number | null;
  tags: Record<string, string>;
  /** The job whose children they are. */
  parent_id: string | null;
  created_at: string;
  canceled_at: string | null;
  ended_at: string | null;
  /** The secret that signs the batch's webhook, if it was generated. */
  webhook_secret?: string;
}

/** A child to submit. */
export interface NewChild {
  kind: string;
  input?: unknown;
  tags?: Record<string, string> | null;
  priority?: number | null;
  run_at?: string | null;
  expires_in?: number | null;
  route?: string | null;
}

/** A webhook endpoint with its secret, which is returned only once. */
export interface NewEndpoint {
  id: string;
  tenant: string;
  /** The account whose job events are sent; null for all accounts of the tenant. */
  account: string | null;
  /** Null if deliveries are pulled. */
  url: string | null;
  events: string[];
  /** Empty for all kinds. */
  kinds: string[];
  /** Whether events have the format described here; otherwise each kind defines the format. */
  is_native: boolean;
  description: string;
  /** The limit of concurrent requests; null for the server's limit. */
  limit: number | null;
  created_at: string;
  /** Nothing is sent since this time. */
  disabled_at: string | null;
  disabled_reason: string | null;
  /** No delivery has succeeded since this time. */
  failing_since: string | null;
  /** The time until which requests are also signed with the previous secret. */
  rotated_until: string | null;
  /** The last pull from the endpoint. */
  pulled_at: string | null;
  secret: string;
}

/** A new key. The secret is returned only once and is not stored. */
export interface NewKey {
  id: string;
  /** The first and last characters of the key. */
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

/** What is asked, the JSON Schema of the answer, and who may answer: client, operator or the id of a key. */
export interface NewQuestion {
  question: string;
  schema?: Record<string, unknown> | null;
  who?: string;
}

/** A worker with its new token, which is returned only once and is not stored. */
export interface NewWorkerToken {
  /** worker_…; null for a worker that holds leases and is not registered. */
  id: string | null;
  worker: string;
  /** Whether it connects over HTTP; a direct worker uses the database. */
  is_fleet: boolean;
  /** The version of Millpond that it runs, if it has reported it. */
  version: string | null;
  /** The routes of a fleet worker. */
  routes: string[];
  /** The queues from which it takes jobs. */
  queues: string[];
  /** The number of jobs that the worker can hold at the same time. */
  slots: number | null;
  status: "busy" | "draining" | "idle" | "lost" | "revoked" | "unapproved" | "unready";
  leases: number;
  /** The number of jobs that the worker holds. */
  jobs: number;
  /** The capabilities reported by the worker. */
  capabilities: unknown;
  /** The first and last characters of its token. */
  hint: string | null;
  /** The key used for the registration. */
  fleet: string | null;
  /** The address of the last heartbeat. */
  address: string | null;
  registered_at: string | null;
  heard_at: string | null;
  /** When the worker last received a job that it still holds. */
  granted_at: string | null;
  /** When the first of its leases expires. */
  expires_at: string | null;
  /** Since when the worker reports that it takes no jobs. */
  unready_at: string | null;
  /** Why the worker takes no jobs, as it reports. */
  unready_reason: string | null;
  token: string;
}

/** Whether the job must stop. */
export interface Noted {
  cancel_requested: boolean;
}

/** The job and its lease. */
export interface OfLease {
  job_id: string;
  lease_token: string;
}

/** A closed key to open. */
export interface OpenLimit {
  /** The value of the key. For a key from the input, it is a digest. Empty if the limit has no key, or the job no value. */
  value?: string;
}

/** A job to park until it is answered. */
export interface ParkJob {
  job_id: string;
  lease_token: string;
  memo?: unknown;
}

/** The number of free slots, and the number of seconds to wait for a job. */
export interface Poll {
  want?: number;
  wait?: number;
  held?: string[] | null;
}

/** A connection pool of this process. */
export interface PoolInfo {
  name: string;
  size: number;
  idle: number;
  limit: number;
}

/** A grant of credits to an account. */
export interface Post {
  tenant: string;
  account: string;
  amount: number;
  reference?: string | null;
  reason?: string | null;
}

/** A provider prediction for a job. */
export interface PredictionInfo {
  id: string;
  provider: string;
  /** The id of the prediction at the provider. */
  external_id: string | null;
  status: string;
  /** The part of the job that the prediction is for; empty for the whole job. */
  part: string;
  run: number;
  created_at: string;
  over_at: string | null;
}

/** The jobs that a bulk operation would change. */
export interface PreviewBulkOperation {
  filter?: JobFilter;
}

/** When a schedule would be due. */
export interface PreviewSchedule {
  cron?: string | null;
  every?: string | number | null;
  at?: string | null;
  zone?: string | null;
  jitter?: string | number | null;
  /** How many due times to return. */
  count?: number;
}

/** An RFC 9457 problem: what went wrong, where, and what to do. Further members are possible. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  /** A stable code, also used in Python, on jobs and in logs. */
  code: string;
  detail: string;
  instance?: string | null;
  field?: string | null;
  hint?: string | null;
  retryable?: boolean;
  request_id?: string | null;
}

/** A product with a playground page. */
export interface ProductPage {
  name: string;
  title: string;
  path: string;
  /** The scope of the key that the page needs. */
  scope: "admin" | "client" | "operator" | "viewer" | "worker";
}

/** The number of deliveries to pull. */
export interface PullDeliveries {
  limit?: number;
}

/** A question that a job asks. */
export interface Question {
  name: string;
  question: string;
  /** The JSON Schema of the answer. */
  schema: Record<string, unknown> | null;
  /** Who may answer: client, operator, or the id of a key. */
  who: string;
  asked_at: string;
  due_at: string | null;
  answered_at: string | null;
  answered_by: string | null;
  answer: unknown;
}

/** The questions of the current run of a job, oldest first. */
export interface Questions {
  data: Question[];
}

/** A queue and its status. */
export interface QueueInfo {
  queue: string;
  /** paused; unserved: jobs wait and no worker polls; stuck: jobs are leased, but none ends; busy; ok. */
  verdict: "busy" | "ok" | "paused" | "stuck" | "unserved";
  reason: string;
  ready: number;
  waiting: number;
  leased: number;
  parked: number;
  oldest_wait_seconds: number | null;
  /** The live workers that serve it, and others that hold its jobs. */
  workers: number;
  paused_at: string | null;
}

/** All queues. */
export interface Queues {
  data: QueueInfo[];
}

/** The price of a job, and whether the account has enough credits. */
export interface Quote {
  kind: string;
  /** A whole number of credits. */
  price: number;
  available: number;
  can_pay: boolean;
}

/** Asks for the results of the children of a step, in order, after a job. */
export interface ReadResults {
  job_id: string;
  lease_token: string;
  batch_id: string;
  after?: string | null;
}

/** Asks for the recorded steps, by name, after a name. */
export interface RecallSteps {
  job_id: string;
  lease_token: string;
  after?: string;
}

/** Recorded steps, ordered by name; none after the last. */
export interface RecalledSteps {
  steps: RecordedStep[];
}

/** A step to record, once: a question, a sleep of some seconds, or the result of a call. */
export interface RecordStep {
  job_id: string;
  lease_token: string;
  name: string;
  position?: number | null;
  /** Of a call: what the function returned. */
  result?: unknown;
  seconds?: number | null;
  question?: NewQuestion | null;
}

/** A step as it is recorded. */
export interface RecordedStep {
  name: string;
  position: number | null;
  type: "call" | "children" | "question" | "sleep";
  batch_id: string | null;
  due_at: string | null;
  is_done: boolean;
  /** Whether the end of a sleep, or the deadline of a question, has passed. */
  is_due: boolean;
  result: unknown;
  /** How many of the children are submitted. */
  submitted: number;
}

/** The refunded amount. */
export interface Refund {
  job_id: string;
  /** A whole number of credits. */
  amount: number;
  /** The available credits of the account after the refund. */
  available: number;
}

/** Refused jobs by reason, with an example. */
export interface Refusal {
  code: string;
  message: string;
  count: number;
  /** The id of one of the jobs. */
  sample: string;
}

/** The registration of a worker: its name, routes and number of slots. */
export interface RegisterWorker {
  worker: string;
  routes: string[];
  slots?: number;
  capabilities?: Record<string, unknown> | null;
  identity?: Identity | null;
}

/** A registered worker. Its token is returned only once and is not stored. */
export interface Registered {
  id: string;
  worker: string;
  token: string;
  routes: string[];
  /** False if an operator must approve the worker first. */
  is_approved: boolean;
  lease_seconds: number;
  heartbeat_seconds: number;
  poll_seconds_max: number;
}

/** The result of a pulled delivery. */
export interface ReportDelivery {
  status?: number | null;
  error?: string | null;
  seconds?: number;
  headers?: Record<string, string>;
  /** The beginning of the response body; long bodies are truncated. */
  body?: string;
}

/** Whether the worker takes jobs at present, and which resources it has loaded. */
export interface ReportReadiness {
  unready_reason: string | null;
  resources?: string[] | null;
}

/** A job that the worker returns to the queue. */
export interface RequeueJob {
  job_id: string;
  lease_token: string;
  reason?: string;
}

/** Which deliveries to resend: those that failed since a time, or all. */
export interface ResendSince {
  since: string;
  only_failed?: boolean;
}

/** The number of resent deliveries. */
export interface Resent {
  count: number;
}

/** The result of one job of a bulk submit: accepted, or a problem. */
export interface Result {
  status: number;
  job?: Accepted | null;
  problem?: Problem | null;
}

/** The results of a bulk submit, in the order of its jobs. */
export interface Results {
  accepted: number;
  refused: number;
  results: Result[];
}

/** How to retry a job. */
export interface RetryJob {
  /** Retry the job even if it succeeded; otherwise that is an error. */
  even_if_succeeded?: boolean;
}

/** How long requests are also signed with the old secret. */
export interface RotateEndpoint {
  /** Seconds, or text such as 15m, 24h or 7d; at most 30d. */
  overlap?: string | number;
}

/** How long the old key stays valid after the rotation. */
export interface RotateKey {
  /** Seconds, or text such as 90s, 15m, 1h or 7d. */
  overlap?: string | number;
}

/** How long the old token stays valid; without a duration, it is rejected immediately. */
export interface RotateWorker {
  overlap?: string | number | null;
}

/** A route: a queue whose jobs are run by the fleet. */
export interface RouteInfo {
  route: string;
  /** Jobs that wait for a worker; 10000 means as many or more. */
  ready: number;
  leased: number;
  oldest_wait_seconds: number | null;
  workers: RouteWorkers;
  /** The slots of the workers that take jobs. */
  slots: number;
  paused_at: string | null;
}

/** The number of live workers of a route by status. */
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

/** An uploaded file. */
export interface SavedFile {
  id: string;
  size: number;
  sha256?: string | null;
}

/** The desired number of workers of a route, and the inputs of the calculation. */
export interface Scaling {
  route: string;
  desired_workers: number;
  ready: number;
  leased: number;
  oldest_wait_seconds: number | null;
  workers: RouteWorkers;
  /** The average run time of a job; null if unknown. */
  expected_seconds: number | null;
}

/** The desired number of workers of every route. */
export interface Scalings {
  data: Scaling[];
}

/** A schedule with its input, its next due times and its last fires. */
export interface ScheduleDetail {
  id: string;
  name: string;
  tenant: string;
  account: string;
  kind: string;
  cron: string | null;
  every_seconds: number | null;
  at: string | null;
  zone: string;
  jitter_seconds: number;
  due_field: string | null;
  overlap: "cancel_previous" | "queue" | "skip";
  catch_up: "all" | "last" | "none";
  catch_up_max: number;
  /** Null for the priority of the kind. */
  priority: number | null;
  /** Null for the deadline of the kind. */
  expires_in_seconds: number | null;
  tags: Record<string, string>;
  /** Where it is declared: in the code of an app, or by the API. */
  source: "api" | "code";
  /** An orphaned schedule is no longer declared by its app; an ended one is never due again. */
  state: "active" | "ended" | "orphaned" | "paused";
  /** The next due time; null unless the schedule is active. */
  due_at: string | null;
  /** When it fires: the next due time with its jitter. */
  next_at: string | null;
  /** Whether it should have fired more than a minute ago: no process that has its kind runs. */
  is_overdue: boolean;
  paused_at: string | null;
  orphaned_at: string | null;
  created_at: string;
  updated_at: string;
  last_fire: Fire | null;
  input: unknown;
  /** The next ten due times from now on, even if it is paused. */
  upcoming: string[];
  /** The last twenty, the last one first. */
  fires: Fire[];
}

/** A schedule without its input. */
export interface ScheduleInfo {
  id: string;
  name: string;
  tenant: string;
  account: string;
  kind: string;
  cron: string | null;
  every_seconds: number | null;
  at: string | null;
  zone: string;
  jitter_seconds: number;
  due_field: string | null;
  overlap: "cancel_previous" | "queue" | "skip";
  catch_up: "all" | "last" | "none";
  catch_up_max: number;
  /** Null for the priority of the kind. */
  priority: number | null;
  /** Null for the deadline of the kind. */
  expires_in_seconds: number | null;
  tags: Record<string, string>;
  /** Where it is declared: in the code of an app, or by the API. */
  source: "api" | "code";
  /** An orphaned schedule is no longer declared by its app; an ended one is never due again. */
  state: "active" | "ended" | "orphaned" | "paused";
  /** The next due time; null unless the schedule is active. */
  due_at: string | null;
  /** When it fires: the next due time with its jitter. */
  next_at: string | null;
  /** Whether it should have fired more than a minute ago: no process that has its kind runs. */
  is_overdue: boolean;
  paused_at: string | null;
  orphaned_at: string | null;
  created_at: string;
  updated_at: string;
  last_fire: Fire | null;
}

/** The next due times. */
export interface SchedulePreview {
  upcoming: string[];
}

/** A page of schedules, oldest first. */
export interface Schedules {
  data: ScheduleInfo[];
  next_cursor: string | null;
}

/** A search result. */
export interface SearchResult {
  type: "account" | "artifact" | "audit" | "batch" | "bulk_operation" | "delivery" | "endpoint" | "job" | "key" | "kind" | "queue" | "schedule" | "tenant" | "worker";
  id: string;
  tenant: string | null;
  title: string;
  /** The property that matched. */
  by: "external_id" | "id" | "idempotency_key" | "name";
}

/** Search results, best match first; at most 20. */
export interface SearchResults {
  data: SearchResult[];
}

/** The throughput over time; the last point is incomplete. */
export interface Series {
  span: "1h" | "24h" | "30d" | "6h" | "7d";
  step_seconds: number;
  /** The start of each point, in seconds since 1970. */
  at: number[];
  submitted: number[];
  succeeded: number[];
  /** Includes blocked jobs. */
  failed: number[];
  canceled: number[];
  expired: number[];
  /** The number of retries. */
  retried: number[];
  captured: number[];
  /** Seconds from when a job was ready until it started. */
  wait_p50: (number | null)[];
  wait_p90: (number | null)[];
  /** Seconds from the first start until the end. */
  run_p50: (number | null)[];
  run_p90: (number | null)[];
}

/** The signed-in user, and what the dashboard needs to know. */
export interface Session {
  scope: "admin" | "client" | "operator" | "viewer" | "worker";
  /** Null for all tenants. */
  tenant: string | null;
  /** The actor in the audit log. */
  actor: string;
  /** The name of the key. */
  name: string | null;
  expires_at: string;
  /** Send it as Millpond-Csrf with every request that changes something. */
  csrf: string;
  is_development: boolean;
  version: string;
  /** Seconds between two refreshes; 0 for manual refresh. */
  refresh: number;
  products: ProductPage[];
}

/** The limit of active jobs of an account; null for no limit. */
export interface SetCap {
  active_max: number | null;
}

/** A new priority. */
export interface SetPriority {
  /** Jobs with a higher priority start first. */
  priority: number;
}

/** A setting; for secrets, only whether it is set. */
export interface SettingInfo {
  name: string;
  value: string | number | boolean | null;
  /** given: passed by the code that started the process. */
  source: "default" | "environment" | "given";
  is_secret: boolean;
}

/** A key of scope viewer, operator or admin that signs in to the dashboard. */
export interface SignIn {
  key: string;
}

/** A signed request to storage, which needs no key: method, URL and required headers. */
export interface Signed {
  method: string;
  url: string;
  headers: Record<string, string>;
  expires_at: string;
}

/** A request that the puller must send with exactly these headers and this body. */
export interface SignedRequest {
  id: string;
  headers: Record<string, string>;
  body: string;
}

/** The pulled deliveries. A delivery without a reported result is returned again after one minute. */
export interface SignedRequests {
  data: SignedRequest[];
}

/** A slow statement; all its executions are combined. */
export interface SlowQuery {
  query: string;
  calls: number;
  mean_ms: number;
  total_ms: number;
}

/** A span of a job's timeline; `to` is null for the current one. */
export interface Span {
  phase: "delivering" | "ended" | "leased" | "parked" | "ready" | "waiting";
  stage: string | null;
  /** The attempt that the span belongs to or follows; 0 before the first. */
  attempt: number;
  from: string;
  to: string | null;
}

/** Children of a step: those from `first` on, of `total`. */
export interface SpawnChildren {
  job_id: string;
  lease_token: string;
  name: string;
  children: NewChild[];
  total: number;
  position?: number | null;
  first?: number;
  /** Whether the children outlive the job. */
  is_detached?: boolean;
  /** Whether the job resumes as soon as a child has not succeeded. */
  fails_fast?: boolean;
}

/** A tenant with its captured credits and number of jobs in the last hour. */
export interface Spender {
  tenant: string;
  captured: number;
  jobs: number;
}

/** The state of a job after a transition or an answer. */
export interface State {
  id: string;
  state: string;
}

/** The subject of an alarm. */
export interface Subject {
  type: "endpoint" | "failure" | "hold" | "queue" | "schedule" | "worker";
  id: string;
  /** The tenant that owns the subject, if any. */
  tenant: string | null;
}

/** A job to submit. */
export interface Submit {
  kind: string;
  input?: Record<string, unknown>;
  /** The account that pays; client keys have their own. */
  account?: string | null;
  /** Alternative to the Idempotency-Key header. */
  idempotency_key?: string | null;
  priority?: number | null;
  run_at?: string | null;
  expires_in?: string | number | null;
  webhook?: JobWebhook | null;
  tags?: Record<string, string> | null;
}

/** Up to a thousand jobs, each of which is accepted or rejected separately. */
export interface SubmitMany {
  jobs: Submit[];
}

/** A job to park until what a step waits for has come. */
export interface SuspendJob {
  job_id: string;
  lease_token: string;
  name: string;
}

/** The status of a process and its database. */
export interface System {
  version: string;
  python: string;
  started_at: string;
  now: string;
  host: string;
  pid: number;
  is_development: boolean;
  database: DatabaseInfo;
  tenant_databases: TenantDatabaseInfo[];
  pools: PoolInfo[];
  /** The 20 largest tables. */
  tables: TableInfo[];
  migrations: MigrationInfo[];
  slow: SlowQuery[];
  /** Why no slow statements are available, and what to do. */
  slow_reason: string | null;
  running: RunningQuery[];
  configuration: SettingInfo[];
  checks: CheckInfo[];
}

/** A table with its indexes; partitions are combined. */
export interface TableInfo {
  table: string;
  bytes: number;
  /** The row estimate of the planner. */
  rows: number;
  dead: number;
  vacuumed_at: string | null;
}

/** A tenant database. */
export interface TenantDatabaseInfo {
  tenants: string[];
  is_up: boolean;
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

/** A browser token, valid for one job. */
export interface Token {
  token: string;
  job_id: string;
  scopes: ("cancel" | "read")[];
  expires_at: string;
}

/** The event of the test. */
export interface TriggerEvent {
  event?: "job.submitted" | "job.queued" | "job.started" | "job.requeued" | "job.parked" | "job.answered" | "job.resumed" | "job.delivering" | "job.succeeded" | "job.failed" | "job.canceled" | "job.expired" | "job.blocked" | "job.retried" | "batch.completed" | "endpoint.disabled";
}

/** Changes of a schedule; omitted fields are not changed. Of cron, every and at, a new one replaces the old one. */
export interface UpdateSchedule {
  kind?: string;
  account?: string;
  input?: Record<string, unknown>;
  due_field?: string | null;
  /** A cron expression: minute, hour, day of month, month, day of week. */
  cron?: string;
  /** Seconds, or text such as 90s, 15m, 1h or 7d. */
  every?: string | number;
  /** The only due time. */
  at?: string;
  /** The time zone of the cron expression; UTC if omitted. */
  zone?: string;
  jitter?: string | number | null;
  /** What happens at a due time if the job of the previous one has not ended. */
  overlap?: "cancel_previous" | "queue" | "skip";
  /** Which due times are made up for that were missed by more than a minute. */
  catch_up?: "all" | "last" | "none";
  /** How many of the missed due times `all` makes up for: the last ones. */
  catch_up_max?: number;
  priority?: number | null;
  expires_in?: string | number | null;
  /** Up to 16 keys of letters, digits and . _ / - with a line of text each, by which jobs are found. */
  tags?: Record<string, string>;
}

/** The upload request of a file. */
export interface Upload {
  artifact_id: string;
  upload: Signed;
}

/** The result of checking every invariant. */
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

/** The balances of an account and its number of active jobs. */
export interface Wallet {
  tenant: string;
  account: string;
  available: number;
  held: number;
  active: number;
  active_max: number | null;
}

/** A page of accounts, by name. */
export interface Wallets {
  data: Wallet[];
  next_cursor: string | null;
}

/** A worker: of the fleet, which connects over HTTP, or direct, which connects to the database. */
export interface WorkerInfo {
  /** worker_…; null for a worker that holds leases and is not registered. */
  id: string | null;
  worker: string;
  /** Whether it connects over HTTP; a direct worker uses the database. */
  is_fleet: boolean;
  /** The version of Millpond that it runs, if it has reported it. */
  version: string | null;
  /** The routes of a fleet worker. */
  routes: string[];
  /** The queues from which it takes jobs. */
  queues: string[];
  /** The number of jobs that the worker can hold at the same time. */
  slots: number | null;
  status: "busy" | "draining" | "idle" | "lost" | "revoked" | "unapproved" | "unready";
  leases: number;
  /** The number of jobs that the worker holds. */
  jobs: number;
  /** The capabilities reported by the worker. */
  capabilities: unknown;
  /** The first and last characters of its token. */
  hint: string | null;
  /** The key used for the registration. */
  fleet: string | null;
  /** The address of the last heartbeat. */
  address: string | null;
  registered_at: string | null;
  heard_at: string | null;
  /** When the worker last received a job that it still holds. */
  granted_at: string | null;
  /** When the first of its leases expires. */
  expires_at: string | null;
  /** Since when the worker reports that it takes no jobs. */
  unready_at: string | null;
  /** Why the worker takes no jobs, as it reports. */
  unready_reason: string | null;
}

/** A report about a job. Numbers increase; a repeated number is written once. */
export interface WorkerNote {
  number: number;
  type: "log" | "progress" | "stage";
  value?: number | null;
  /** For type stage. */
  stage?: string | null;
  /** For type log; truncated if long. */
  level?: string | null;
  /** For type log; truncated if long. */
  text?: string | null;
}

/** All workers, followed by those that hold leases and are not registered, such as ones of an older version. */
export interface Workers {
  data: WorkerInfo[];
}

/** The reports of a worker about a job, in order. */
export interface WriteNotes {
  job_id: string;
  lease_token: string;
  notes: WorkerNote[];
}
