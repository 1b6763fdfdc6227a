table millpond.accounts
    -- database: tenant. The wallet of each account: available and held credits, the number of active jobs and its limit, and the number of the last entry.
    with (fillfactor=50)
    tenant text collate "C" not null
    account text collate "C" not null
    available bigint not null default 0
    held bigint not null default 0
    active integer not null default 0
    active_max integer
    entries bigint not null default 0
    created_at timestamp with time zone not null default clock_timestamp()
    constraint accounts_check CHECK (((available >= 0) AND (held >= 0) AND (active >= 0) AND (active_max >= 0)))
    constraint accounts_pkey PRIMARY KEY (tenant, account)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.artifacts
    -- database: tenant. Files in storage, uploaded by clients or made by attempts of jobs. A row is written before its file and deleted after it.
    id uuid not null
    tenant text collate "C" not null
    account text collate "C" not null
    job_id uuid
    epoch integer -- The epoch of the attempt that makes the file. Null: the file is an input of a job, or belongs to no job yet.
    name text not null
    content_type text collate "C" not null
    size bigint not null -- The announced size until the file is stored, then the actual size.
    sha256 text collate "C"
    path text collate "C" not null
    created_at timestamp with time zone not null
    expires_at timestamp with time zone not null -- By when the upload must be complete.
    stored_at timestamp with time zone -- When the complete file was found in storage.
    kept_at timestamp with time zone -- When the file was found to be part of the result of its job.
    deleted_at timestamp with time zone -- From when the file is no longer shown. The file is deleted next, then this row.
    CREATE INDEX artifacts_deleted ON millpond.artifacts USING btree (id) WHERE (deleted_at IS NOT NULL)
    CREATE INDEX artifacts_job ON millpond.artifacts USING btree (job_id, id) WHERE (job_id IS NOT NULL)
    CREATE INDEX artifacts_undecided ON millpond.artifacts USING btree (id) WHERE ((epoch IS NOT NULL) AND (kept_at IS NULL))
    CREATE INDEX artifacts_unstored ON millpond.artifacts USING btree (id) WHERE ((stored_at IS NULL) AND (epoch IS NULL))
    constraint artifacts_check CHECK (((size >= 0) AND ((epoch IS NULL) OR (job_id IS NOT NULL)) AND ((kept_at IS NULL) OR (stored_at IS NOT NULL))))
    constraint artifacts_path_key UNIQUE (path)
    constraint artifacts_pkey PRIMARY KEY (id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.audit
    -- database: central. What operators and workers did. Append-only.
    id uuid not null
    at timestamp with time zone not null
    actor text collate "C" not null
    action text collate "C" not null
    tenant text collate "C"
    subject text collate "C" -- What the action was applied to: a key, an account, a queue, a job.
    data jsonb
    CREATE INDEX audit_actor ON millpond.audit USING btree (actor, id)
    CREATE INDEX audit_tenant ON millpond.audit USING btree (tenant, id)
    CREATE TRIGGER audit_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON millpond.audit FOR EACH STATEMENT EXECUTE FUNCTION millpond.guard_append_only()
    constraint audit_pkey PRIMARY KEY (id)

table millpond.batch_cancels
    -- database: tenant. Canceled batches with jobs that have not ended: a service cancels these.
    batch_id uuid not null
    tenant text collate "C" not null
    at timestamp with time zone not null -- When the service looks at it next.
    after uuid not null default '00000000-0000-0000-0000-000000000000'::uuid -- The last job that the service has looked at.
    CREATE INDEX batch_cancels_at ON millpond.batch_cancels USING btree (at)
    constraint batch_cancels_pkey PRIMARY KEY (batch_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.batch_hooks
    -- database: tenant. The webhook URL that a batch was created with. It receives the end of the batch.
    batch_id uuid not null
    tenant text collate "C" not null
    url text collate "C" not null
    receiver text collate "C" not null
    secret bytea not null
    constraint batch_hooks_pkey PRIMARY KEY (batch_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.batch_keys
    -- database: tenant. The idempotency keys of the requests that created batches.
    tenant text collate "C" not null
    account text collate "C" not null
    key text collate "C" not null
    batch_id uuid not null
    digest bytea not null -- The digest of the request: another request with the same key is refused.
    CREATE INDEX batch_keys_batch ON millpond.batch_keys USING btree (batch_id)
    constraint batch_keys_pkey PRIMARY KEY (tenant, account, key)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.batch_pages
    -- database: tenant. The requests that added jobs to batches. A repeated request is recognized by its position and digest.
    batch_id uuid not null
    first integer not null -- The position of its first job in the batch, from 0.
    tenant text collate "C" not null
    jobs integer not null
    digest bytea not null
    constraint batch_pages_check CHECK (((first >= 0) AND (jobs > 0)))
    constraint batch_pages_pkey PRIMARY KEY (batch_id, first)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.batches
    -- database: tenant. Jobs that are awaited together: the children of one step of a job, or jobs that a client submitted as a batch.
    with (fillfactor=50)
    id uuid not null
    tenant text collate "C" not null
    account text collate "C" not null
    name text not null
    parent_id uuid
    run smallint -- The run of the parent that submitted it.
    root_id uuid -- The first ancestor of its jobs.
    before integer not null default 0 -- How many children the run of the parent submitted before this batch.
    is_detached boolean not null default false -- Whether its jobs outlive their parent.
    fails_fast boolean not null default false -- Whether the parent resumes as soon as a job of the batch has not succeeded.
    is_awaited boolean not null default false -- Whether the parent is parked until the batch has ended.
    total integer not null -- How many jobs it is to have; they are submitted in parts. A cancel reduces it to those that were submitted.
    submitted integer not null
    ended integer not null default 0
    succeeded integer not null default 0
    failed integer not null default 0 -- How many of its jobs failed, expired or were blocked.
    canceled integer not null default 0
    created_at timestamp with time zone not null
    ended_at timestamp with time zone
    tags jsonb -- The tags that its jobs inherit.
    price bigint -- What its jobs may cost: the sum of their prices and budgets. Null: they are children.
    captured bigint -- What its ended jobs have cost, with what was spent of their budgets. Null: they are children.
    canceled_at timestamp with time zone -- When it was canceled: from then on it accepts no more jobs.
    CREATE INDEX batches_account ON millpond.batches USING btree (tenant, account, id) WHERE (parent_id IS NULL)
    CREATE INDEX batches_client ON millpond.batches USING btree (id) WHERE (parent_id IS NULL)
    CREATE INDEX batches_parent ON millpond.batches USING btree (parent_id, id) WHERE (parent_id IS NOT NULL)
    CREATE INDEX batches_tenant ON millpond.batches USING btree (tenant, id) WHERE (parent_id IS NULL)
    constraint batches_check CHECK ((((total > 0) OR (canceled_at IS NOT NULL)) AND ((submitted >= 0) AND (submitted <= total)) AND ((ended >= 0) AND (ended <= submitted)) AND (((succeeded + failed) + canceled) = ended) AND ((ended_at IS NOT NULL) = (ended = total)) AND ((parent_id IS NOT NULL) = ((run IS NOT NULL) AND (root_id IS NOT NULL))) AND ((parent_id IS NULL) = ((price IS NOT NULL) AND (captured IS NOT NULL))) AND ((canceled_at IS NULL) OR ((parent_id IS NULL) AND (total = submitted))))) NOT VALID
    constraint batches_pkey PRIMARY KEY (id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.budgets
    -- database: tenant. What the descendants of a run of a job may cost. The hold of the job covers it, or the budget of an ancestor.
    with (fillfactor=50)
    job_id uuid not null
    run smallint not null
    tenant text collate "C" not null
    amount integer not null
    spent bigint not null default 0 -- What its descendants have cost.
    moved bigint not null default 0 -- What they had cost when the job got a hold of its own, because the budget of its ancestor was closed.
    reserved bigint not null default 0 -- What its descendants that have not ended may still cost.
    closed_at timestamp with time zone
    CREATE INDEX budgets_open ON millpond.budgets USING btree (tenant, job_id) WHERE (closed_at IS NULL)
    constraint budgets_check CHECK (((amount > 0) AND ((moved >= 0) AND (moved <= spent)) AND (reserved >= 0) AND ((spent + reserved) <= amount)))
    constraint budgets_pkey PRIMARY KEY (job_id, run)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.bulk_operations
    -- database: central. Bulk operations, with their progress and result.
    with (fillfactor=50)
    id uuid not null
    tenant text collate "C" -- The tenant whose jobs are selected. Null: all tenants.
    actor text collate "C" not null
    key text collate "C" -- The idempotency key of the request. A repeated request with the same key starts no other operation.
    digest bytea not null -- The digest of the request. A repeated key must come with the same request.
    action text collate "C" not null
    filter jsonb not null
    arguments jsonb not null
    status text collate "C" not null default 'waiting'::text
    place uuid -- The job that the walk has reached; it continues with lower ids. The zero id: the walk is complete.
    in_hand uuid[] -- The jobs of the current batch. A process that takes over acts on those that still match, so nothing is done twice.
    ends integer[] -- For each job of in_hand, the number of the run whose end was seen; 0 if the job had not ended.
    looked bigint not null default 0
    matched bigint not null default 0
    done bigint not null default 0
    refused bigint not null default 0
    refusals jsonb not null default '[]'::jsonb -- Why jobs were refused: each reason once, with the number of jobs and one of them.
    estimate bigint
    has_file boolean not null default false -- Whether storage may contain a file of this operation. Set before the file is written.
    result jsonb
    error jsonb
    lease_token uuid -- The claim of the process that runs it. After lease_until any process may claim it.
    touched_at timestamp with time zone not null -- When it was last claimed: waiting operations take turns.
    lease_until timestamp with time zone
    abort_asked_at timestamp with time zone
    created_at timestamp with time zone not null
    started_at timestamp with time zone
    finished_at timestamp with time zone
    CREATE INDEX bulk_operations_file ON millpond.bulk_operations USING btree (finished_at) WHERE has_file
    CREATE INDEX bulk_operations_open ON millpond.bulk_operations USING btree (touched_at) WHERE (finished_at IS NULL)
    CREATE INDEX bulk_operations_tenant ON millpond.bulk_operations USING btree (tenant, id)
    CREATE UNIQUE INDEX bulk_operations_key ON millpond.bulk_operations USING btree (actor, key) WHERE (key IS NOT NULL)
    constraint bulk_operations_action_check CHECK ((action = ANY (ARRAY['retry'::text, 'cancel'::text, 'refund'::text, 'priority'::text, 'export'::text, 'verify'::text])))
    constraint bulk_operations_check CHECK (((finished_at IS NOT NULL) = (status = ANY (ARRAY['done'::text, 'aborted'::text, 'failed'::text]))))
    constraint bulk_operations_pkey PRIMARY KEY (id)
    constraint bulk_operations_status_check CHECK ((status = ANY (ARRAY['waiting'::text, 'running'::text, 'done'::text, 'aborted'::text, 'failed'::text])))

table millpond.callbacks
    -- database: tenant. The callbacks of providers, each message once. Only callbacks with a valid signature and a recent time are stored; others are logged.
    provider text collate "C" not null
    message_id text collate "C" not null -- The id that the provider gave the message. It is the same when the message is sent again.
    tenant text collate "C" not null
    prediction_id uuid not null
    external_id text collate "C" not null
    status text collate "C" not null
    verdict text collate "C" not null -- accepted, late (the job had ended), superseded (another prediction has replaced this one) or unknown.
    times integer not null default 1 -- How often the message was received.
    received_at timestamp with time zone not null
    CREATE INDEX callbacks_age ON millpond.callbacks USING btree (received_at)
    constraint callbacks_pkey PRIMARY KEY (provider, message_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.chunks
    -- database: tenant. The text that running jobs have emitted, in pieces. Rows are never updated. They are deleted when a later attempt emits text, or soon after the job has ended.
    with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0)
    job_id uuid not null
    after integer not null -- The number of the job's last event when the chunk was written: its place between the events.
    number integer not null -- Counts the chunks of an attempt from 1 without gaps.
    epoch integer not null -- The epoch of the attempt.
    tenant text collate "C" not null
    at timestamp with time zone not null
    total integer not null -- The bytes of text of the attempt up to and including this chunk.
    text text not null
    constraint chunks_pkey PRIMARY KEY (job_id, after, number)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.counter_changes
    -- database: tenant. What a statement changed in the numbers of jobs: written by that statement, merged into the tables of counters, then deleted. Without an index: statements only append to it.
    with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_insert_threshold=-1, autovacuum_vacuum_cost_delay=0)
    at timestamp with time zone not null -- The minute of the change.
    tenant text collate "C" not null
    kind text collate "C" not null
    event text collate "C" not null
    from_state text collate "C" -- Null: the jobs were created.
    from_phase text collate "C"
    to_state text collate "C" -- Null: the row says how jobs failed; another row counts that they failed.
    to_phase text collate "C"
    outcome text collate "C"
    n integer not null
    price bigint not null -- The sum of the prices of the jobs.
    captured bigint
    bucket smallint -- How long the jobs waited for their first start, or ran until their end, on a logarithmic scale (millpond.bucket).
    fingerprint text collate "C"
    code text collate "C"
    message text
    sample uuid -- One of the jobs, if they failed.
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.counts
    -- database: tenant. How many jobs are in each state. For the states of ended jobs: how many have reached it since counting began; retention does not reduce these counts.
    with (fillfactor=50)
    tenant text collate "C" not null
    kind text collate "C" not null
    state text collate "C" not null
    phase text collate "C" not null
    n bigint not null
    held bigint not null -- The credits that are held for these jobs.
    constraint counts_pkey PRIMARY KEY (tenant, kind, state, phase)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.deliveries
    -- database: tenant. One lifecycle event to be sent to one URL, written in the transaction of the event. The id is the webhook-id of each try.
    with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0)
    id uuid not null
    tenant text collate "C" not null
    endpoint_id uuid -- Null: it is sent to the URL that the job was submitted with.
    job_id uuid
    seq integer -- The number of the job's event. Deliveries of one job to one URL are sent in this order.
    event text collate "C" not null
    receiver text collate "C" -- Deliveries with the same receiver share its limits and its failures. Null: a listener pulls it.
    at timestamp with time zone not null
    data jsonb not null -- The job as it was at the event. The body is made from it and is the same in each try.
    decides boolean not null -- Whether its outcome will decide how the job ends.
    fate text collate "C" not null default 'pending'::text -- pending, delivered, failed (given up) or withdrawn (the job has ended otherwise, or the endpoint was deleted).
    tries smallint not null default 0
    tries_before smallint not null default 0 -- The number of tries before it was last sent again on request. These do not count towards the limit.
    is_out boolean not null default false -- Whether it is claimed: due_at is then the time at which the claim expires.
    due_at timestamp with time zone -- When it is to be sent. Infinity while it is set aside because its endpoint is disabled.
    settled_at timestamp with time zone
    batch_id uuid -- The batch whose end it reports. Null: it reports something else.
    CREATE INDEX deliveries_due ON millpond.deliveries USING btree (receiver, due_at) WHERE ((due_at IS NOT NULL) AND (receiver IS NOT NULL))
    CREATE INDEX deliveries_endpoint ON millpond.deliveries USING btree (endpoint_id, id) WHERE (endpoint_id IS NOT NULL)
    CREATE INDEX deliveries_endpoint_at ON millpond.deliveries USING btree (endpoint_id, at) WHERE (endpoint_id IS NOT NULL)
    CREATE INDEX deliveries_pending ON millpond.deliveries USING btree (due_at) WHERE (due_at IS NOT NULL)
    CREATE INDEX deliveries_pulled ON millpond.deliveries USING btree (endpoint_id, due_at) WHERE ((due_at IS NOT NULL) AND (endpoint_id IS NOT NULL))
    CREATE INDEX deliveries_settled ON millpond.deliveries USING btree (settled_at) WHERE (settled_at IS NOT NULL)
    CREATE INDEX deliveries_tenant ON millpond.deliveries USING btree (tenant, id)
    CREATE INDEX deliveries_undecided ON millpond.deliveries USING btree (id) WHERE (decides AND (due_at IS NULL))
    CREATE INDEX deliveries_undelivered ON millpond.deliveries USING btree (tenant, fate, id) WHERE (fate <> 'delivered'::text)
    CREATE UNIQUE INDEX deliveries_job ON millpond.deliveries USING btree (job_id, seq, endpoint_id) NULLS NOT DISTINCT WHERE (job_id IS NOT NULL)
    constraint deliveries_check CHECK (((fate = ANY (ARRAY['pending'::text, 'delivered'::text, 'failed'::text, 'withdrawn'::text])) AND ((fate = 'pending'::text) = (due_at IS NOT NULL)) AND ((fate = 'pending'::text) = (settled_at IS NULL)) AND ((job_id IS NULL) = (seq IS NULL)) AND (NOT (is_out AND (due_at IS NULL)))))
    constraint deliveries_pkey PRIMARY KEY (id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.delivery_tries
    -- database: tenant. What was sent and received in each try: the headers, and the beginning of the response body.
    delivery_id uuid not null
    number smallint not null
    tenant text collate "C" not null
    at timestamp with time zone not null
    seconds real not null
    status smallint
    error text
    url text collate "C"
    request_headers jsonb not null
    response_headers jsonb not null
    response_body text not null
    constraint delivery_tries_pkey PRIMARY KEY (delivery_id, number)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.dispatches
    -- database: central. One row for each job that has not ended. Every verb locks it first.
    with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0)
    job_id uuid not null
    tenant text collate "C" not null
    account text collate "C" not null
    kind text collate "C" not null
    queue text collate "C" not null
    phase text collate "C" not null
    rank smallint not null -- The negated priority: the lowest rank is claimed first.
    turn bigint not null default 0 -- The order of tenants in a fair queue; 0 in other queues.
    epoch integer not null default 0
    attempts smallint not null default 0
    interruptions smallint not null default 0
    lapses smallint not null default 0
    lease_token uuid
    run_at timestamp with time zone
    expires_at timestamp with time zone
    cancel_at timestamp with time zone -- When a requested cancel is enforced: the lease is revoked and the job ends.
    wakes_at timestamp with time zone -- When a service must process the row: at the start time, the deadline, or the end of the grace of a cancel. The expiry of a lease is not included.
    is_remote boolean not null default false -- Whether the job is in another database: its verbs are then two transactions.
    limits text[] collate "C" -- The keys of its limits, each the name of a limit, a colon and a value. Null: none, or it was not claimed yet.
    CREATE INDEX dispatches_remote ON millpond.dispatches USING btree (tenant, job_id) WHERE is_remote
    CREATE INDEX dispatches_wakes ON millpond.dispatches USING btree (wakes_at) WHERE (wakes_at IS NOT NULL)
    CREATE TRIGGER dispatches_limits AFTER DELETE OR UPDATE OF phase ON millpond.dispatches FOR EACH ROW WHEN ((old.limits IS NOT NULL)) EXECUTE FUNCTION millpond.leave_limits()
    constraint dispatches_check CHECK (((phase = ANY (ARRAY['waiting'::text, 'ready'::text, 'leased'::text, 'parked'::text, 'delivering'::text])) AND ((phase = 'leased'::text) = (lease_token IS NOT NULL)))) NOT VALID
    constraint dispatches_pkey PRIMARY KEY (job_id)

table millpond.durations
    -- database: tenant. How long some recent jobs that succeeded ran. The number of rows for a kind is fixed: a new one replaces another.
    with (fillfactor=50)
    kind text collate "C" not null
    slot smallint not null
    seconds real not null
    ended_at timestamp with time zone not null
    constraint durations_pkey PRIMARY KEY (kind, slot)

table millpond.endpoints
    -- database: tenant. The URLs that receive the events of a tenant's jobs. Secrets are encrypted with a key that is not in the database.
    id uuid not null
    tenant text collate "C" not null
    url text collate "C" -- Null: a listener pulls the deliveries.
    events text[] not null
    kinds text[] not null
    description text not null
    in_flight_max integer -- How many requests may be in flight to it at once.
    secret bytea not null
    old_secret bytea -- The previous secret. Requests are signed with both until old_until, so the receiver can switch at any time before.
    old_until timestamp with time zone
    created_at timestamp with time zone not null
    pulled_at timestamp with time zone -- When its listener last pulled.
    failing_since timestamp with time zone -- The time of the first failure after its last success.
    enabled_at timestamp with time zone -- When it was last enabled again. Null: it was never disabled.
    disabled_at timestamp with time zone
    disabled_reason text
    account text collate "C" -- The account whose jobs it covers. Null: all accounts of the tenant.
    is_native boolean not null default true -- Whether it receives the format of the native API. Otherwise, the product of each kind defines the format.
    CREATE INDEX endpoints_account ON millpond.endpoints USING btree (tenant, account, id)
    CREATE INDEX endpoints_pulled ON millpond.endpoints USING btree (pulled_at) WHERE (url IS NULL)
    CREATE INDEX endpoints_tenant ON millpond.endpoints USING btree (tenant, id)
    constraint endpoints_check CHECK ((((disabled_at IS NULL) = (disabled_reason IS NULL)) AND ((old_secret IS NULL) = (old_until IS NULL)) AND (in_flight_max > 0)))
    constraint endpoints_pkey PRIMARY KEY (id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.entries
    -- database: tenant. The ledger, append-only. Each row is one change of three balances: available, held, and outside (where grants come from and captures go). The three amounts add up to zero.
    tenant text collate "C" not null
    account text collate "C" not null
    seq bigint not null
    at timestamp with time zone not null
    type text collate "C" not null
    available bigint not null
    held bigint not null
    outside bigint not null
    available_after bigint not null
    held_after bigint not null
    job_id uuid
    run smallint
    reference text collate "C"
    reason text
    CREATE TRIGGER entries_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON millpond.entries FOR EACH STATEMENT EXECUTE FUNCTION millpond.guard_append_only()
    CREATE UNIQUE INDEX entries_hold ON millpond.entries USING btree (job_id, run) WHERE (type = 'hold'::text)
    CREATE UNIQUE INDEX entries_reference ON millpond.entries USING btree (tenant, account, reference) WHERE (reference IS NOT NULL)
    CREATE UNIQUE INDEX entries_settlement ON millpond.entries USING btree (job_id, run) WHERE (type = ANY (ARRAY['capture'::text, 'release'::text]))
    constraint entries_check CHECK (((((available + held) + outside) = 0) AND (available_after >= 0) AND (held_after >= 0) AND (type = ANY (ARRAY['grant'::text, 'adjust'::text, 'hold'::text, 'capture'::text, 'release'::text])) AND ((type = ANY (ARRAY['hold'::text, 'capture'::text, 'release'::text])) = ((job_id IS NOT NULL) AND (run IS NOT NULL)))))
    constraint entries_pkey PRIMARY KEY (tenant, account, seq)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.events partition by RANGE (job_id)
    -- database: tenant. The events of each job, numbered in order. Append-only.
    job_id uuid not null
    seq integer not null
    at timestamp with time zone not null
    type text collate "C" not null
    state text collate "C" not null
    tenant text collate "C" not null
    data jsonb
    CREATE TRIGGER events_append_only BEFORE DELETE OR UPDATE ON millpond.events FOR EACH ROW EXECUTE FUNCTION millpond.guard_append_only()
    constraint events_pkey PRIMARY KEY (job_id, seq)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.events_default partition of millpond.events DEFAULT
    -- database: tenant. Holds events whose partition did not exist when they were written. Should stay empty.

table millpond.failure_flows
    -- database: tenant. How often each failure happened in each minute, and in each hour. An empty tenant means all tenants.
    with (fillfactor=70)
    step interval not null
    tenant text collate "C" not null
    fingerprint text collate "C" not null
    at timestamp with time zone not null
    n bigint not null
    released bigint not null -- The credits that were released.
    CREATE INDEX failure_flows_age ON millpond.failure_flows USING btree (step, at)
    constraint failure_flows_pkey PRIMARY KEY (step, tenant, at, fingerprint)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.failures
    -- database: tenant. The different failures of jobs: those with the same fingerprint differ only in numbers, names and the like. The message and the sample are from one of the latest. If there are too many new fingerprints in a day, further failures of the same kind and code share one.
    with (fillfactor=70)
    fingerprint text collate "C" not null
    tenant text collate "C" not null
    kind text collate "C" not null
    code text collate "C" not null
    message text not null
    first_at timestamp with time zone not null
    last_at timestamp with time zone not null
    sample uuid not null
    CREATE INDEX failures_age ON millpond.failures USING btree (last_at)
    CREATE INDEX failures_new ON millpond.failures USING btree (tenant, kind, code, first_at)
    constraint failures_pkey PRIMARY KEY (fingerprint, tenant)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.fires
    -- database: central. What schedules did at their due times.
    with (fillfactor=70)
    id uuid not null
    schedule_id uuid not null
    tenant text collate "C" not null
    due_at timestamp with time zone not null
    cause text collate "C" not null -- Why it was due: by its schedule, because an operator ran it, or because an operator made up for a period.
    outcome text collate "C" not null -- Pending: the job is being submitted, by the process that decided to or by the next one after try_at.
    job_id uuid -- The job. Its id is made before it is submitted, so a job with it exists for certain only if the outcome is submitted.
    reason text collate "C" -- Why nothing was submitted: overlap, catch_up, or the code of an error.
    message text
    until timestamp with time zone -- The last one of several due times that were skipped together; due_at is the first one.
    times integer not null default 1 -- The number of due times; counted up to 1,000.
    actor text collate "C"
    key text collate "C" -- The idempotency key of the request to run the schedule.
    tries smallint -- How many processes have taken the pending fire.
    try_at timestamp with time zone
    at timestamp with time zone not null
    CREATE INDEX fires_pending ON millpond.fires USING btree (try_at) WHERE (try_at IS NOT NULL)
    CREATE INDEX fires_schedule ON millpond.fires USING btree (schedule_id, id)
    CREATE UNIQUE INDEX fires_key ON millpond.fires USING btree (schedule_id, key) WHERE ((key IS NOT NULL) AND (outcome = ANY (ARRAY['pending'::text, 'submitted'::text])))
    CREATE UNIQUE INDEX fires_once ON millpond.fires USING btree (schedule_id, due_at) WHERE (outcome = ANY (ARRAY['pending'::text, 'submitted'::text]))
    constraint fires_cause_check CHECK ((cause = ANY (ARRAY['schedule'::text, 'manual'::text, 'backfill'::text])))
    constraint fires_check CHECK ((((outcome = 'pending'::text) = (try_at IS NOT NULL)) AND ((try_at IS NULL) = (tries IS NULL))))
    constraint fires_check1 CHECK (((outcome = ANY (ARRAY['skipped'::text, 'failed'::text])) = (reason IS NOT NULL)))
    constraint fires_check2 CHECK (((outcome = ANY (ARRAY['pending'::text, 'submitted'::text])) = (job_id IS NOT NULL)))
    constraint fires_check3 CHECK (((until IS NULL) OR ((outcome = 'skipped'::text) AND (until > due_at))))
    constraint fires_outcome_check CHECK ((outcome = ANY (ARRAY['pending'::text, 'submitted'::text, 'skipped'::text, 'failed'::text])))
    constraint fires_pkey PRIMARY KEY (id)

table millpond.flows
    -- database: tenant. How many jobs were submitted and ended in each minute, and in each hour, by tenant and kind. An empty tenant or kind means all of them.
    with (fillfactor=70)
    step interval not null
    tenant text collate "C" not null
    kind text collate "C" not null
    at timestamp with time zone not null
    submitted integer not null
    succeeded integer not null
    failed integer not null -- Includes blocked jobs.
    canceled integer not null
    expired integer not null
    retried integer not null -- How often a job was requeued or retried in place.
    captured bigint not null
    waits bigint[] -- A histogram of how long jobs waited for their first start: for each bucket that is not empty, 64 times the number of jobs, plus the bucket.
    runs bigint[] -- A histogram of the time from the first start of jobs to their end, in the same format.
    CREATE INDEX flows_age ON millpond.flows USING btree (step, at)
    CREATE INDEX flows_tenants ON millpond.flows USING btree (at) WHERE ((step = '00:01:00'::interval) AND (kind = ''::text) AND (tenant <> ''::text))
    constraint flows_pkey PRIMARY KEY (step, tenant, kind, at)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.hooks
    -- database: tenant. The webhook URL that a job was submitted with. Written together with the job.
    job_id uuid not null
    tenant text collate "C" not null
    url text collate "C" not null
    receiver text collate "C" not null
    secret bytea not null
    events text[] not null
    decides boolean not null -- Whether the job succeeds only if the delivery to this URL succeeds.
    captured integer -- The credits to capture if such a job succeeds. Null: its price.
    constraint hooks_pkey PRIMARY KEY (job_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.idempotency
    -- database: tenant. Idempotency keys, each with the job that it created. The request is stored only if it differs from the input and tags of the job.
    tenant text collate "C" not null
    scope text collate "C" not null
    key text collate "C" not null
    job_id uuid not null
    request jsonb
    created_at timestamp with time zone not null
    expires_at timestamp with time zone
    CREATE INDEX idempotency_age ON millpond.idempotency USING brin (created_at)
    constraint idempotency_pkey PRIMARY KEY (key, scope, tenant)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.jobs partition by RANGE (id)
    -- database: tenant. One row for each job, partitioned by the time in its id.
    id uuid not null
    tenant text collate "C" not null
    account text collate "C" not null
    kind text collate "C" not null
    lifecycle text collate "C" not null
    queue text collate "C" not null
    state text collate "C" not null
    phase text collate "C" not null
    outcome text collate "C"
    priority smallint not null
    run smallint not null default 1 -- The number of the current run. A retry in place begins another run, with a hold of its own.
    epoch integer not null default 0 -- How often the job has been leased. It only increases.
    attempts smallint not null default 0
    events integer not null -- The number of the last event.
    noted integer not null default 0 -- The number of the last note written under the current lease. Notes up to this number are duplicates, and are not written again.
    price integer not null
    captured integer
    progress real not null default 0
    stage text
    created_at timestamp with time zone not null
    run_at timestamp with time zone
    expires_at timestamp with time zone
    started_at timestamp with time zone
    finished_at timestamp with time zone
    cancel_requested_at timestamp with time zone
    retry_of uuid
    input jsonb not null
    memo jsonb -- What the handler stored for its next call when it parked the job.
    answer jsonb -- The value with which the parked job was answered.
    output jsonb
    error jsonb
    fingerprint text collate "C" -- Identifies how the job failed: the same for failures that differ only in numbers, names and the like.
    tags jsonb -- Up to 16 keys, each with a text, set at submit and never changed. Null: no tags.
    batch_id uuid -- The batch that the job belongs to. Null: none.
    parent_id uuid -- The job that submitted it. Null: it is not a child.
    depth smallint -- How many ancestors it has. Null: it has no steps, batch or budget, so nothing has to be done for them when it ends.
    waits_for text collate "C" -- What a parked job waits for: its children, a time, or the answer to a question. Null: an answer to the job itself.
    CREATE INDEX jobs_account ON ONLY millpond.jobs USING btree (tenant, account, id)
    CREATE INDEX jobs_batch ON ONLY millpond.jobs USING btree (batch_id, id) WHERE (batch_id IS NOT NULL)
    CREATE INDEX jobs_failed ON ONLY millpond.jobs USING btree (id) WHERE (fingerprint IS NOT NULL)
    CREATE INDEX jobs_fingerprint ON ONLY millpond.jobs USING btree (fingerprint, id) WHERE (fingerprint IS NOT NULL)
    CREATE INDEX jobs_tags ON ONLY millpond.jobs USING gin (tags jsonb_path_ops) WHERE (tags IS NOT NULL)
    CREATE INDEX jobs_tenant ON ONLY millpond.jobs USING btree (tenant, id)
    CREATE INDEX jobs_tenant_failed ON ONLY millpond.jobs USING btree (tenant, id, fingerprint) WHERE (fingerprint IS NOT NULL)
    CREATE TRIGGER jobs_birth BEFORE INSERT ON millpond.jobs FOR EACH ROW EXECUTE FUNCTION millpond.guard_birth()
    CREATE TRIGGER jobs_transition BEFORE UPDATE ON millpond.jobs FOR EACH ROW EXECUTE FUNCTION millpond.guard_transition()
    constraint jobs_pkey PRIMARY KEY (id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.jobs_default partition of millpond.jobs DEFAULT
    -- database: tenant. Holds jobs whose partition did not exist when they were created. Should stay empty.
    with (fillfactor=60)

table millpond.keys
    -- database: central. API keys: whom a key authenticates, and what it may do. Only the SHA-256 of the secret is stored.
    with (fillfactor=70)
    id uuid not null
    digest bytea not null
    hint text collate "C" not null -- The beginning and the end of the secret, to recognize the key by.
    scope text collate "C" not null
    tenant text collate "C" -- Null: the key is valid for every tenant.
    account text collate "C"
    name text
    rate_limit integer
    lifetime interval -- How long the key is valid from its creation. A key that replaces it is valid for the same time.
    created_at timestamp with time zone not null
    expires_at timestamp with time zone
    revoked_at timestamp with time zone
    last_used_at timestamp with time zone -- Updated at most once a minute.
    CREATE INDEX keys_tenant ON millpond.keys USING btree (tenant, id)
    constraint keys_check CHECK (((scope = ANY (ARRAY['client'::text, 'worker'::text, 'viewer'::text, 'operator'::text, 'admin'::text])) AND (rate_limit > 0) AND ((scope <> 'client'::text) OR (account IS NOT NULL)) AND ((account IS NULL) OR (tenant IS NOT NULL))))
    constraint keys_digest_key UNIQUE (digest)
    constraint keys_pkey PRIMARY KEY (id)

table millpond.kinds
    -- database: both. What each kind declares, written when an app registers the kind.
    kind text collate "C" not null
    lifecycle text collate "C" not null
    queue text collate "C" not null
    is_fair boolean not null
    initial_state text collate "C" not null
    entry_state text collate "C" not null -- The state of a new job that may start at once.
    stages text[] not null
    firm_stages text[] not null -- The stages during which a cancel is refused.
    attempts_max smallint not null
    interruptions_max smallint not null
    lapses_max smallint not null
    declaration jsonb not null
    registered_at timestamp with time zone not null default clock_timestamp()
    limits text[] collate "C" not null default '{}'::text[] -- The limits of its jobs.
    keeps_limits boolean not null default false -- Whether its jobs count as running while they are parked, because a provider works on them.
    constraint kinds_attempts_max_check CHECK ((attempts_max > 0))
    constraint kinds_interruptions_max_check CHECK ((interruptions_max > 0))
    constraint kinds_lapses_max_check CHECK ((lapses_max > 0))
    constraint kinds_pkey PRIMARY KEY (kind)

table millpond.leases
    -- database: central. What each claim leased, and until when. A job is leased while the token of its dispatch names a lease that has not expired.
    with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    token uuid not null
    worker text collate "C" not null
    granted_at timestamp with time zone not null
    expires_at timestamp with time zone not null
    job_ids uuid[] not null
    is_remote boolean not null default false -- Whether one of its jobs is in another database.
    CREATE INDEX leases_fleet ON millpond.leases USING btree (worker) WHERE ((worker ~~ 'worker\_%'::text) AND (length(worker) = 33))
    constraint leases_pkey PRIMARY KEY (token)

table millpond.lengths
    -- database: tenant. Histograms of how long jobs of each kind waited and ran since counting began, in the format of flows, for all tenants of this database.
    with (fillfactor=50)
    kind text collate "C" not null
    waits bigint[]
    runs bigint[]
    constraint lengths_pkey PRIMARY KEY (kind)

table millpond.lifecycle_states
    -- database: both. The states of each lifecycle, copied from the Python definitions by each migration.
    lifecycle text collate "C" not null
    state text collate "C" not null
    phase text collate "C" not null
    outcome text collate "C"
    is_entry boolean not null
    constraint lifecycle_states_check CHECK (((phase = 'ended'::text) = (outcome IS NOT NULL)))
    constraint lifecycle_states_pkey PRIMARY KEY (lifecycle, state)

table millpond.lifecycle_transitions
    -- database: both. The state to which each lifecycle event leads. The guard of jobs is generated from these rows.
    lifecycle text collate "C" not null
    from_state text collate "C" not null
    event text collate "C" not null
    to_state text collate "C" not null
    CREATE INDEX lifecycle_transitions_pair ON millpond.lifecycle_transitions USING btree (lifecycle, from_state, to_state)
    constraint lifecycle_transitions_pkey PRIMARY KEY (event, lifecycle, from_state)

table millpond.limit_holders
    -- database: central. The jobs that run under a key.
    with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    key text collate "C" not null
    job_id uuid not null
    constraint limit_holders_pkey PRIMARY KEY (key, job_id)

table millpond.limit_keys
    -- database: central. One row for each key of a limit. Whoever lets jobs start under keys locks their rows first, in order.
    with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    key text collate "C" not null
    name text collate "C" not null
    starts integer[] not null default '{}'::integer[] -- How many jobs have started in the last parts of the period, the newest first. A part is a sixtieth of the period.
    part bigint not null default 0 -- The number of the newest part, counted from 1970.
    closed_until timestamp with time zone -- Until when no job may start.
    look_at timestamp with time zone -- When waiting jobs may start although no job has ended. Null: none waits for a time.
    used_at timestamp with time zone not null -- When it was last locked to start a job. Rows that were not used for long are deleted.
    CREATE INDEX limit_keys_look ON millpond.limit_keys USING btree (look_at) WHERE (look_at IS NOT NULL)
    constraint limit_keys_pkey PRIMARY KEY (key)

table millpond.limit_releases
    -- database: central. The keys under which a job has stopped to run: jobs that wait for one may be able to start.
    with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    key text collate "C" not null

table millpond.limit_waits
    -- database: central. The ready dispatches that a limit does not allow to start: they are here instead of in millpond.ready, so that a claim does not pass them.
    with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0)
    job_id uuid not null
    key text collate "C" not null -- The first of its keys that had no room.
    queue text collate "C" not null
    rank smallint not null
    turn bigint not null
    since timestamp with time zone not null
    CREATE INDEX limit_waits_key ON millpond.limit_waits USING btree (key, queue, rank, turn, job_id)
    CREATE INDEX limit_waits_queue ON millpond.limit_waits USING btree (queue)
    constraint limit_waits_pkey PRIMARY KEY (job_id)

table millpond.limits
    -- database: both. How many jobs may run at once, and how many may start per period, for each value of a key.
    name text collate "C" not null
    at_once integer
    starts integer
    per interval
    key text[] collate "C" not null -- What a job's key is made of: tenant, account, tags.NAME or input.PATH. Empty: all jobs have the same key.
    declared jsonb not null -- The numbers that the app declares; an operator may have changed those that apply.
    changed_at timestamp with time zone
    changed_by text collate "C"
    constraint limits_check CHECK (((num_nonnulls(at_once, starts) > 0) AND (at_once > 0) AND (starts > 0) AND ((starts IS NULL) = (per IS NULL))))
    constraint limits_pkey PRIMARY KEY (name)

table millpond.migrations
    -- database: both. The applied migrations; number 0 stands for the functions.
    number integer not null
    name text not null
    is_breaking boolean not null
    checksum text not null
    applied_at timestamp with time zone not null default clock_timestamp()
    constraint migrations_pkey PRIMARY KEY (number)

table millpond.orphans
    -- database: tenant. Jobs that ended before their children: a service cancels the children.
    job_id uuid not null
    tenant text collate "C" not null
    at timestamp with time zone not null
    CREATE INDEX orphans_at ON millpond.orphans USING btree (at)
    constraint orphans_pkey PRIMARY KEY (job_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.owed
    -- database: tenant. The jobs whose dispatch may not exist yet, because it is written to another database. A row is written together with its job.
    job_id uuid not null
    owed_at timestamp with time zone not null
    CREATE INDEX owed_age ON millpond.owed USING btree (owed_at)
    constraint owed_pkey PRIMARY KEY (job_id)

table millpond.predictions
    -- database: tenant. What a provider was asked to do for a job. Written before the request, so that every callback is about a known prediction.
    with (fillfactor=70)
    id uuid not null
    tenant text collate "C" not null
    job_id uuid not null
    run smallint not null -- The run of the job that it is for.
    provider text collate "C" not null
    status text collate "C" not null -- held: to be sent when the provider accepts requests again; sending: the provider may or may not have received it; running: the provider has received it; unwanted: to be canceled at the provider; over: finished.
    external_id text collate "C" -- The id that the provider gave it, once known.
    looks integer not null default 0 -- How often the reconciler has polled it.
    created_at timestamp with time zone not null
    expires_at timestamp with time zone not null -- The deadline of the job.
    due_at timestamp with time zone -- When the reconciler polls it next. Null: never.
    over_at timestamp with time zone
    part text collate "C" not null default ''::text -- The part of the job that it is for, as named by the handler. Empty: the provider runs the whole job.
    kept jsonb -- The result of a part: the provider's response, and the files that were copied into storage. The handler gets this result when it requests the part again.
    CREATE INDEX predictions_done ON millpond.predictions USING btree (created_at) WHERE (due_at IS NULL)
    CREATE INDEX predictions_due ON millpond.predictions USING btree (provider, due_at) WHERE (due_at IS NOT NULL)
    CREATE INDEX predictions_external_id ON millpond.predictions USING btree (external_id) WHERE (external_id IS NOT NULL)
    CREATE INDEX predictions_job ON millpond.predictions USING btree (job_id, id)
    CREATE UNIQUE INDEX predictions_open ON millpond.predictions USING btree (job_id, part) WHERE (status = ANY (ARRAY['held'::text, 'sending'::text, 'running'::text]))
    constraint predictions_check CHECK (((status = ANY (ARRAY['held'::text, 'sending'::text, 'running'::text, 'unwanted'::text, 'over'::text])) AND ((status <> 'running'::text) OR (external_id IS NOT NULL)) AND ((status <> ALL (ARRAY['held'::text, 'running'::text])) OR (due_at IS NOT NULL)) AND ((status = 'over'::text) = (over_at IS NOT NULL))))
    constraint predictions_pkey PRIMARY KEY (id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.queues
    -- database: central. The queues, and since when each is paused.
    queue text collate "C" not null
    paused_at timestamp with time zone
    is_route boolean not null default false -- Whether the jobs of the queue run on the fleet: workers that register may name it.
    is_limited boolean not null default false -- Whether jobs in it may have limits.
    constraint queues_pkey PRIMARY KEY (queue)

table millpond.ready
    -- database: central. The dispatches that may be claimed now, in order. Rows are inserted and deleted, never updated, and only while their dispatch is locked.
    with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0)
    queue text collate "C" not null
    rank smallint not null
    turn bigint not null
    job_id uuid not null
    constraint ready_pkey PRIMARY KEY (queue, rank, turn, job_id)

table millpond.recounts
    -- database: tenant. When to recount the jobs that have not ended. Each change of the functions writes a row, because processes of the previous version may still run statements that write no counter changes.
    due_at timestamp with time zone not null

table millpond.reservations
    -- database: tenant. The jobs that a budget pays for. A job with a hold of its own has none.
    with (fillfactor=70)
    job_id uuid not null
    tenant text collate "C" not null
    payer_id uuid not null -- The job with the budget.
    amount bigint not null -- The price of the job, with its own budget.
    captured bigint -- What the job itself has cost. Null: it has not ended.
    CREATE INDEX reservations_open ON millpond.reservations USING btree (payer_id) WHERE (captured IS NULL)
    constraint reservations_check CHECK (((amount >= 0) AND ((captured >= 0) AND (captured <= amount))))
    constraint reservations_pkey PRIMARY KEY (job_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.schedules
    -- database: central. What submits jobs at due times.
    with (fillfactor=70)
    id uuid not null
    tenant text collate "C" not null
    account text collate "C" not null
    name text collate "C" not null
    kind text collate "C" not null
    input jsonb not null
    due_field text collate "C" -- The member of the input that is set to the due time.
    cron text collate "C"
    every interval
    at timestamp with time zone
    zone text collate "C" not null
    jitter interval not null
    since timestamp with time zone not null -- From when the intervals are counted.
    overlap text collate "C" not null
    catch_up text collate "C" not null
    catch_up_max integer not null -- How many of the missed due times catch_up = all makes up for.
    priority smallint
    expires_in interval
    tags jsonb not null
    source text collate "C" not null -- Whether the code of an app declares it, or it was created through the API.
    app text collate "C" -- The name of the app that declares it. Null: the app has no name.
    app_kinds text[] collate "C" -- The kinds of the app when it declared the schedule last. They identify an app without a name.
    actor text collate "C"
    key text collate "C" -- The idempotency key of the request that created it.
    digest bytea
    due_at timestamp with time zone -- The next due time. Null: it is paused, or never due again.
    next_at timestamp with time zone -- When it fires: the next due time with its jitter.
    paused_at timestamp with time zone -- Since when an operator has paused it.
    orphaned_at timestamp with time zone -- Since when its app no longer declares it. It does not fire.
    created_at timestamp with time zone not null
    updated_at timestamp with time zone not null
    CREATE INDEX schedules_next ON millpond.schedules USING btree (next_at) WHERE (next_at IS NOT NULL)
    CREATE INDEX schedules_tenant ON millpond.schedules USING btree (tenant, id)
    CREATE UNIQUE INDEX schedules_key ON millpond.schedules USING btree (actor, key) WHERE (key IS NOT NULL)
    constraint schedules_catch_up_check CHECK ((catch_up = ANY (ARRAY['none'::text, 'last'::text, 'all'::text])))
    constraint schedules_catch_up_max_check CHECK (((catch_up_max >= 1) AND (catch_up_max <= 1000)))
    constraint schedules_check CHECK ((num_nonnulls(cron, every, at) = 1))
    constraint schedules_check1 CHECK (((source = 'code'::text) = (app_kinds IS NOT NULL)))
    constraint schedules_check2 CHECK ((((due_at IS NULL) = (next_at IS NULL)) AND (next_at >= due_at)))
    constraint schedules_check3 CHECK (((due_at IS NULL) OR ((paused_at IS NULL) AND (orphaned_at IS NULL))))
    constraint schedules_overlap_check CHECK ((overlap = ANY (ARRAY['skip'::text, 'queue'::text, 'cancel_previous'::text])))
    constraint schedules_pkey PRIMARY KEY (id)
    constraint schedules_source_check CHECK ((source = ANY (ARRAY['code'::text, 'api'::text])))
    constraint schedules_tenant_name_key UNIQUE (tenant, name)

table millpond.secrets
    -- database: central. The secret with which this installation signs browser tokens. If the row is deleted, a new secret is made, and tokens signed with the old one are no longer valid.
    name text collate "C" not null
    secret bytea not null
    constraint secrets_pkey PRIMARY KEY (name)

table millpond.sessions
    -- database: central. Sign-ins to the dashboard. Only the SHA-256 of a cookie is stored.
    with (fillfactor=70)
    digest bytea not null
    key_id uuid not null -- The key used to sign in. The session may do what the key may do at present, and nothing once the key is no longer valid.
    address text not null -- The address from which the user signed in.
    created_at timestamp with time zone not null
    last_seen_at timestamp with time zone not null -- Updated at most once a minute.
    expires_at timestamp with time zone not null -- When the session ends, even if it is in use.
    CREATE INDEX sessions_end ON millpond.sessions USING btree (expires_at)
    constraint sessions_pkey PRIMARY KEY (digest)

table millpond.shares
    -- database: central. The last turn that was given to each tenant of a fair queue.
    with (fillfactor=50)
    queue text collate "C" not null
    tenant text collate "C" not null
    turn bigint not null
    constraint shares_pkey PRIMARY KEY (queue, tenant)

table millpond.steps
    -- database: tenant. What a run of a job has done, by name: a later attempt gets the recorded results instead of doing it again.
    job_id uuid not null
    run smallint not null
    name text collate "C" not null
    tenant text collate "C" not null
    position integer -- The number of the step, in the order of the handler. Null: it was made in another task or thread.
    type text collate "C" not null -- call: a function was called; children: child jobs were submitted; sleep: the job waits until due_at; question: somebody is asked.
    at timestamp with time zone not null
    batch_id uuid
    due_at timestamp with time zone -- The end of a sleep, or the deadline of a question.
    details jsonb -- Of a question: its text, the schema of the answer, and who may answer it.
    done_at timestamp with time zone
    done_by text -- Who answered a question.
    result jsonb
    constraint steps_check CHECK (((type = ANY (ARRAY['call'::text, 'children'::text, 'sleep'::text, 'question'::text])) AND ((type = 'children'::text) = (batch_id IS NOT NULL)) AND ((type <> 'sleep'::text) OR (due_at IS NOT NULL))))
    constraint steps_pkey PRIMARY KEY (job_id, run, name)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.subscriptions
    -- database: tenant. Which endpoints receive which lifecycle event. A disabled endpoint has no rows. Written together with the endpoint, so that an event without subscribers costs one look-up.
    event text collate "C" not null
    tenant text collate "C" not null
    endpoint_id uuid not null
    kinds text[] not null -- The kinds of jobs that it covers. Empty: all kinds.
    receiver text collate "C"
    account text collate "C" -- The account whose jobs it covers. Null: all accounts of the tenant.
    CREATE INDEX subscriptions_account ON millpond.subscriptions USING btree (event, tenant, account)
    CREATE INDEX subscriptions_endpoint ON millpond.subscriptions USING btree (endpoint_id)
    constraint subscriptions_pkey PRIMARY KEY (event, tenant, endpoint_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.tenant_databases
    -- database: central. The tenants that have a database of their own. A process without the URL of that database must not change their jobs.
    tenant text collate "C" not null
    since timestamp with time zone not null
    constraint tenant_databases_pkey PRIMARY KEY (tenant)

table millpond.tenants
    -- database: central. The tenants that an operator has created.
    tenant text collate "C" not null
    created_at timestamp with time zone not null
    constraint tenants_pkey PRIMARY KEY (tenant)

table millpond.tracebacks
    -- database: tenant. Where a handler raised the error of an attempt, without secrets and with at most 16,000 characters. For operators only: the role for clients' reads cannot read it.
    job_id uuid not null
    epoch integer not null -- The epoch of the attempt.
    tenant text collate "C" not null
    at timestamp with time zone not null
    text text not null
    constraint tracebacks_pkey PRIMARY KEY (job_id, epoch)

table millpond.trees
    -- database: tenant. How many descendants a job has, for the limit.
    with (fillfactor=50)
    root_id uuid not null
    tenant text collate "C" not null
    jobs integer not null
    constraint trees_pkey PRIMARY KEY (root_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.worker_routes
    -- database: central. The queues from which each fleet worker is given jobs.
    route text collate "C" not null
    worker_id text collate "C" not null
    CREATE INDEX worker_routes_worker ON millpond.worker_routes USING btree (worker_id)
    constraint worker_routes_pkey PRIMARY KEY (route, worker_id)

table millpond.workers
    -- database: central. The registered workers: fleet workers, which connect over HTTP with a token, and direct workers, which connect to the database. A worker that has left has no row.
    with (fillfactor=50)
    id text collate "C" not null -- The name of the worker in leases. Each registration has its own, so the leases of an earlier registration can be told apart.
    worker text collate "C" not null -- The name of the worker, unique in the fleet. Several direct workers may have the same name.
    digest bytea -- The SHA-256 of the token; the token itself is not stored. Null for a direct worker.
    hint text collate "C"
    old_digest bytea -- The SHA-256 of the previous token, which is valid until old_until.
    old_until timestamp with time zone
    slots smallint not null
    capabilities jsonb
    fleet text collate "C" -- The key with which the worker registered. Null for a direct worker.
    address text collate "C" -- The address from which its last request came.
    registered_at timestamp with time zone not null
    heard_at timestamp with time zone not null -- When its last request came. Updated every few seconds at most.
    approved_at timestamp with time zone
    draining_at timestamp with time zone
    revoked_at timestamp with time zone
    polled_at timestamp with time zone -- When it last asked for jobs. Updated together with heard_at, every few seconds at most.
    unready_at timestamp with time zone -- Since when the worker has reported that it takes no jobs. Null: it is ready.
    unready_reason text -- Why it takes no jobs. Shown to operators.
    queues text[] -- The queues from which a direct worker takes jobs; those of a fleet worker are in worker_routes.
    silence interval -- How long after its last heartbeat a direct worker is lost: its leases have then expired.
    CREATE UNIQUE INDEX workers_name ON millpond.workers USING btree (worker) WHERE (fleet IS NOT NULL)
    constraint workers_are_fleet_or_direct CHECK (
CASE
    WHEN (fleet IS NULL) THEN ((digest IS NULL) AND (queues IS NOT NULL) AND (silence IS NOT NULL))
    ELSE ((digest IS NOT NULL) AND (hint IS NOT NULL) AND (queues IS NULL) AND (silence IS NULL))
END)
    constraint workers_check CHECK (((id ~~ 'worker\_%'::text) AND (length(id) = 33) AND ((old_digest IS NULL) = (old_until IS NULL))))
    constraint workers_digest_key UNIQUE (digest)
    constraint workers_old_digest_key UNIQUE (old_digest)
    constraint workers_pkey PRIMARY KEY (id)
    constraint workers_slots_check CHECK ((slots > 0))

sequence millpond.id_order maxvalue 4194303 cache 1024 cycle
    -- database: both. The order of ids made within the same microsecond; see millpond.uuid7.
