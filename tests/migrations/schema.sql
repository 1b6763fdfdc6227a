table millpond.accounts
    -- database: tenant. A wallet: what is available, what is held, how many jobs are active, the number of its last entry.
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
    -- database: tenant. Files in storage: what clients upload, and what each attempt at a job makes. A row is written before its file and removed after it.
    id uuid not null
    tenant text collate "C" not null
    account text collate "C" not null
    job_id uuid
    epoch integer -- The attempt that makes it; none for what is given to a job, or to none yet.
    name text not null
    content_type text collate "C" not null
    size bigint not null -- As it was announced, and once it is stored, as it is.
    sha256 text collate "C"
    path text collate "C" not null
    created_at timestamp with time zone not null
    expires_at timestamp with time zone not null -- Until when the upload was to be done.
    stored_at timestamp with time zone -- When the file was seen in storage, whole.
    kept_at timestamp with time zone -- When it was found to be of the attempt that won.
    deleted_at timestamp with time zone -- From then on nobody sees it: its file is removed, then this row.
    CREATE INDEX artifacts_deleted ON millpond.artifacts USING btree (id) WHERE (deleted_at IS NOT NULL)
    CREATE INDEX artifacts_job ON millpond.artifacts USING btree (job_id, id) WHERE (job_id IS NOT NULL)
    CREATE INDEX artifacts_undecided ON millpond.artifacts USING btree (id) WHERE ((epoch IS NOT NULL) AND (kept_at IS NULL))
    CREATE INDEX artifacts_unstored ON millpond.artifacts USING btree (id) WHERE ((stored_at IS NULL) AND (epoch IS NULL))
    constraint artifacts_check CHECK (((size >= 0) AND ((epoch IS NULL) OR (job_id IS NOT NULL)) AND ((kept_at IS NULL) OR (stored_at IS NOT NULL))))
    constraint artifacts_path_key UNIQUE (path)
    constraint artifacts_pkey PRIMARY KEY (id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.audit
    -- database: central. What operators did, append-only.
    id uuid not null
    at timestamp with time zone not null
    actor text collate "C" not null
    action text collate "C" not null
    tenant text collate "C"
    subject text collate "C" -- What it was done to: a key, an account, a queue, a job.
    data jsonb
    CREATE INDEX audit_actor ON millpond.audit USING btree (actor, id)
    CREATE INDEX audit_tenant ON millpond.audit USING btree (tenant, id)
    CREATE TRIGGER audit_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON millpond.audit FOR EACH STATEMENT EXECUTE FUNCTION millpond.guard_append_only()
    constraint audit_pkey PRIMARY KEY (id)

table millpond.bulk_operations
    -- database: central. What operators have done to many jobs at once, how far it has come, and what came of it.
    with (fillfactor=50)
    id uuid not null
    tenant text collate "C" -- Whose jobs it is about; none: those of every tenant.
    actor text collate "C" not null
    key text collate "C" -- The idempotency key it was ordered with; the same one orders it once.
    digest bytea not null -- Of all that was ordered: a key that comes again must come with the same.
    action text collate "C" not null
    filter jsonb not null
    arguments jsonb not null
    status text collate "C" not null default 'waiting'::text
    place uuid -- The job that its walk has come to; it goes on below. The zero id: it is through.
    in_hand uuid[] -- The jobs of the batch that is under way: whoever takes over acts on those of them that still fit, which changes nothing twice.
    ends integer[] -- Which end of each of these was seen, by the number of the run that ended so; 0: it had not ended.
    looked bigint not null default 0
    matched bigint not null default 0
    done bigint not null default 0
    refused bigint not null default 0
    refusals jsonb not null default '[]'::jsonb -- Why jobs were refused, each reason once, with how many and one of them.
    estimate bigint
    has_file boolean not null default false -- Whether there may be a file of it in storage. Written before the file is.
    result jsonb
    error jsonb
    lease_token uuid -- Who is at it, until lease_until; after that anybody may go on.
    touched_at timestamp with time zone not null -- When it was last taken up: those that wait take turns.
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
    -- database: tenant. What providers have called, each message once. Only what was signed and fresh is here; what was not is logged.
    provider text collate "C" not null
    message_id text collate "C" not null -- What the provider calls the message; the same when it is sent again.
    tenant text collate "C" not null
    prediction_id uuid not null
    external_id text collate "C" not null
    status text collate "C" not null
    verdict text collate "C" not null -- accepted, late (its job had ended), superseded (another prediction has taken its place) or unknown.
    times integer not null default 1 -- How often it came.
    received_at timestamp with time zone not null
    CREATE INDEX callbacks_age ON millpond.callbacks USING btree (received_at)
    constraint callbacks_pkey PRIMARY KEY (provider, message_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.counter_changes
    -- database: tenant. What a statement has done to jobs, as numbers: written by that statement, merged into the tables below, then deleted. Without an index: batches only append to it.
    with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_insert_threshold=-1, autovacuum_vacuum_cost_delay=0)
    at timestamp with time zone not null -- The minute.
    tenant text collate "C" not null
    kind text collate "C" not null
    event text collate "C" not null
    from_state text collate "C" -- None: they were born.
    from_phase text collate "C"
    to_state text collate "C" -- None: it tells how jobs failed, and another one that they did.
    to_phase text collate "C"
    outcome text collate "C"
    n integer not null
    price bigint not null -- What the jobs cost together.
    captured bigint
    bucket smallint -- How long they waited for their first start, or ran until their end, on a logarithmic scale (millpond.bucket).
    fingerprint text collate "C"
    code text collate "C"
    message text
    sample uuid -- One of the jobs, where they failed.
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.counts
    -- database: tenant. How many jobs are in each state. Of ended ones, how many have come there since this is counted: retention takes none away.
    with (fillfactor=50)
    tenant text collate "C" not null
    kind text collate "C" not null
    state text collate "C" not null
    phase text collate "C" not null
    n bigint not null
    held bigint not null -- The credits that are held for them.
    constraint counts_pkey PRIMARY KEY (tenant, kind, state, phase)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.deliveries
    -- database: tenant. One lifecycle event to be told to one URL, written in the transaction of the lifecycle event. Its id is the webhook-id, whenever it is sent.
    with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0)
    id uuid not null
    tenant text collate "C" not null
    endpoint_id uuid -- None: it goes to the URL that the job was submitted with.
    job_id uuid
    seq integer -- The number of the event. What goes to one URL about one job goes in this order.
    event text collate "C" not null
    receiver text collate "C" -- Whose limits and whose trouble it shares; none: a listener comes for it.
    at timestamp with time zone not null
    data jsonb not null -- The job as it was at that moment: the body is made from it, the same each time.
    decides boolean not null -- Whether its end is still to decide that of the job.
    fate text collate "C" not null default 'pending'::text -- pending, delivered, failed (given up) or withdrawn (its job has ended otherwise, or its endpoint is gone).
    tries smallint not null default 0
    tries_before smallint not null default 0 -- The tries that do not count, because it was asked for once more after them.
    is_out boolean not null default false -- Whether somebody has it in hand, until it is due again.
    due_at timestamp with time zone -- When it is to be sent. Never, once it was set aside because its endpoint is disabled.
    settled_at timestamp with time zone
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
    -- database: tenant. What was sent, and what was answered: the head, and the beginning of the body.
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
    -- database: central. One row for every job that has not ended, and none for one that has: the lock that every verb takes first.
    with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0)
    job_id uuid not null
    tenant text collate "C" not null
    account text collate "C" not null
    kind text collate "C" not null
    queue text collate "C" not null
    phase text collate "C" not null
    rank smallint not null -- The priority, negated: the smallest goes first.
    turn bigint not null default 0 -- Order between tenants in a fair queue; 0 elsewhere.
    epoch integer not null default 0
    attempts smallint not null default 0
    interruptions smallint not null default 0
    lapses smallint not null default 0
    lease_token uuid
    run_at timestamp with time zone
    expires_at timestamp with time zone
    cancel_at timestamp with time zone -- When an requested cancel is forced: the lease is revoked and the job ends.
    wakes_at timestamp with time zone -- When a service must look at this row: its start, its deadline or the end of its grace. Not the end of its lease.
    is_remote boolean not null default false -- Whether its job is in another database: then its verbs are two transactions.
    CREATE INDEX dispatches_remote ON millpond.dispatches USING btree (tenant, job_id) WHERE is_remote
    CREATE INDEX dispatches_wakes ON millpond.dispatches USING btree (wakes_at) WHERE (wakes_at IS NOT NULL)
    constraint dispatches_check CHECK (((phase = ANY (ARRAY['waiting'::text, 'ready'::text, 'leased'::text, 'parked'::text, 'delivering'::text])) AND ((phase = 'leased'::text) = (lease_token IS NOT NULL)) AND ((phase <> 'parked'::text) OR (expires_at IS NOT NULL))))
    constraint dispatches_pkey PRIMARY KEY (job_id)

table millpond.durations
    -- database: tenant. How long some of the jobs that succeeded lately ran, a fixed number for each kind: a new one takes the place of another.
    with (fillfactor=50)
    kind text collate "C" not null
    slot smallint not null
    seconds real not null
    ended_at timestamp with time zone not null
    constraint durations_pkey PRIMARY KEY (kind, slot)

table millpond.endpoints
    -- database: tenant. Where a tenant is told of its jobs. Secrets are encrypted, with a key that is not in the database.
    id uuid not null
    tenant text collate "C" not null
    url text collate "C" -- None: a listener comes for what is to be told.
    events text[] not null
    kinds text[] not null
    description text not null
    in_flight_max integer -- How many requests it may be sent at once.
    secret bytea not null
    old_secret bytea -- What is signed with as well, until old_until: its receiver changes over when it likes.
    old_until timestamp with time zone
    created_at timestamp with time zone not null
    pulled_at timestamp with time zone -- When its listener last came.
    failing_since timestamp with time zone -- The first of the failures since it last took something.
    enabled_at timestamp with time zone -- When it was enabled again; none: it was never disabled.
    disabled_at timestamp with time zone
    disabled_reason text
    account text collate "C" -- The account whose jobs it is told of; none: all of the tenant.
    is_native boolean not null default true -- Whether it is told in the words of the native API, or in those of each kind.
    CREATE INDEX endpoints_account ON millpond.endpoints USING btree (tenant, account, id)
    CREATE INDEX endpoints_pulled ON millpond.endpoints USING btree (pulled_at) WHERE (url IS NULL)
    CREATE INDEX endpoints_tenant ON millpond.endpoints USING btree (tenant, id)
    constraint endpoints_check CHECK ((((disabled_at IS NULL) = (disabled_reason IS NULL)) AND ((old_secret IS NULL) = (old_until IS NULL)) AND (in_flight_max > 0)))
    constraint endpoints_pkey PRIMARY KEY (id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.entries
    -- database: tenant. The ledger, append-only. One row is one balanced transaction over three purses: available, held, and outside (granted from, captured to).
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
    -- database: tenant. What happened to each job, in order, append-only.
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
    -- database: tenant. Takes events whose partition was not made in time; should stay empty.

table millpond.failure_flows
    -- database: tenant. How often each failure happened in each minute, and in each hour; of all tenants, where that is empty.
    with (fillfactor=70)
    step interval not null
    tenant text collate "C" not null
    fingerprint text collate "C" not null
    at timestamp with time zone not null
    n bigint not null
    released bigint not null -- The credits that were given back for it.
    CREATE INDEX failure_flows_age ON millpond.failure_flows USING btree (step, at)
    constraint failure_flows_pkey PRIMARY KEY (step, tenant, at, fingerprint)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.failures
    -- database: tenant. The ways in which jobs fail: those of one fingerprint differ only in numbers, names and the like. The message and the sample are of one of the last. Where too many are new in a day, the others of a kind and code are one.
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

table millpond.flows
    -- database: tenant. What went through in each minute, and in each hour: of a tenant and a kind; of all kinds, or all tenants, where one of them is empty.
    with (fillfactor=70)
    step interval not null
    tenant text collate "C" not null
    kind text collate "C" not null
    at timestamp with time zone not null
    submitted integer not null
    succeeded integer not null
    failed integer not null -- Those that were blocked as well.
    canceled integer not null
    expired integer not null
    retried integer not null -- How often a job went back, to be run once more.
    captured bigint not null
    waits bigint[] -- How many jobs waited how long for their first start: of each bucket that has some, 64 times how many, and the bucket.
    runs bigint[] -- How many jobs took how long from their first start to their end, in the same way.
    CREATE INDEX flows_age ON millpond.flows USING btree (step, at)
    CREATE INDEX flows_tenants ON millpond.flows USING btree (at) WHERE ((step = '00:01:00'::interval) AND (kind = ''::text) AND (tenant <> ''::text))
    constraint flows_pkey PRIMARY KEY (step, tenant, kind, at)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.hooks
    -- database: tenant. The URL that a job was submitted with. Written with the job.
    job_id uuid not null
    tenant text collate "C" not null
    url text collate "C" not null
    receiver text collate "C" not null
    secret bytea not null
    events text[] not null
    decides boolean not null -- Whether the job has succeeded only when the URL has taken the news.
    captured integer -- What such a job costs if it does; none: its price.
    constraint hooks_pkey PRIMARY KEY (job_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.idempotency
    -- database: tenant. Which job answers a key, and what of that answer the job itself may change. The request is kept only where it differs from the job's input.
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
    -- database: tenant. One row a job, partitioned by the time in its id.
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
    run smallint not null default 1 -- How often it was started from its beginning: a retry in place adds one. Each run has its own hold.
    epoch integer not null default 0 -- How often it was leased. Only grows.
    attempts smallint not null default 0
    events integer not null -- The number of its last event.
    noted integer not null default 0 -- The number of the last note of its present lease: a note that comes twice is written once.
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
    memo jsonb -- What its handler left for itself when it parked the job.
    answer jsonb -- What a parked job was waiting for.
    output jsonb
    error jsonb
    fingerprint text collate "C" -- How it failed: the same for failures that differ only in numbers, names and the like.
    tags jsonb -- Up to 16 keys with a text each, given at submit and never changed. None: it has no tags.
    CREATE INDEX jobs_account ON ONLY millpond.jobs USING btree (tenant, account, id)
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
    -- database: tenant. Takes jobs whose partition was not made in time; should stay empty.
    with (fillfactor=60)

table millpond.keys
    -- database: central. Who may come in, and as whom. Of a secret its SHA-256 alone is kept.
    with (fillfactor=70)
    id uuid not null
    digest bytea not null
    hint text collate "C" not null -- The beginning and the end of the secret, to recognise it by.
    scope text collate "C" not null
    tenant text collate "C" -- None: an operator of every tenant.
    account text collate "C"
    name text
    rate_limit integer
    lifetime interval -- For how long it was made; the key that replaces it is made for as long.
    created_at timestamp with time zone not null
    expires_at timestamp with time zone
    revoked_at timestamp with time zone
    last_used_at timestamp with time zone -- Written at most once a minute.
    CREATE INDEX keys_tenant ON millpond.keys USING btree (tenant, id)
    constraint keys_check CHECK (((scope = ANY (ARRAY['client'::text, 'worker'::text, 'viewer'::text, 'operator'::text, 'admin'::text])) AND (rate_limit > 0) AND ((scope <> 'client'::text) OR (account IS NOT NULL)) AND ((account IS NULL) OR (tenant IS NOT NULL))))
    constraint keys_digest_key UNIQUE (digest)
    constraint keys_pkey PRIMARY KEY (id)

table millpond.kinds
    -- database: both. What each kind declares, written when an app registers it.
    kind text collate "C" not null
    lifecycle text collate "C" not null
    queue text collate "C" not null
    is_fair boolean not null
    initial_state text collate "C" not null
    entry_state text collate "C" not null -- The state in which a job that may start at once is born.
    stages text[] not null
    firm_stages text[] not null -- The stages in which a cancel is refused.
    attempts_max smallint not null
    interruptions_max smallint not null
    lapses_max smallint not null
    declaration jsonb not null
    registered_at timestamp with time zone not null default clock_timestamp()
    constraint kinds_attempts_max_check CHECK ((attempts_max > 0))
    constraint kinds_interruptions_max_check CHECK ((interruptions_max > 0))
    constraint kinds_lapses_max_check CHECK ((lapses_max > 0))
    constraint kinds_pkey PRIMARY KEY (kind)

table millpond.leases
    -- database: central. What one claim handed out, until when. A dispatch is held while its token names a lease that has not run out.
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
    -- database: tenant. How long jobs of each kind waited and ran since this is counted, in the same way; of all tenants that live here.
    with (fillfactor=50)
    kind text collate "C" not null
    waits bigint[]
    runs bigint[]
    constraint lengths_pkey PRIMARY KEY (kind)

table millpond.lifecycle_states
    -- database: both. The states of each lifecycle, written from the Python table at migration.
    lifecycle text collate "C" not null
    state text collate "C" not null
    phase text collate "C" not null
    outcome text collate "C"
    is_entry boolean not null
    constraint lifecycle_states_check CHECK (((phase = 'ended'::text) = (outcome IS NOT NULL)))
    constraint lifecycle_states_pkey PRIMARY KEY (lifecycle, state)

table millpond.lifecycle_transitions
    -- database: both. Which state each lifecycle event leads to; the guard looks the pair up.
    lifecycle text collate "C" not null
    from_state text collate "C" not null
    event text collate "C" not null
    to_state text collate "C" not null
    CREATE INDEX lifecycle_transitions_pair ON millpond.lifecycle_transitions USING btree (lifecycle, from_state, to_state)
    constraint lifecycle_transitions_pkey PRIMARY KEY (event, lifecycle, from_state)

table millpond.migrations
    -- database: both. The applied migrations; number 0 stands for the functions.
    number integer not null
    name text not null
    is_breaking boolean not null
    checksum text not null
    applied_at timestamp with time zone not null default clock_timestamp()
    constraint migrations_pkey PRIMARY KEY (number)

table millpond.owed
    -- database: tenant. The jobs that may not have their dispatch yet, because it stands in another database. Written with the job.
    job_id uuid not null
    owed_at timestamp with time zone not null
    CREATE INDEX owed_age ON millpond.owed USING btree (owed_at)
    constraint owed_pkey PRIMARY KEY (job_id)

table millpond.predictions
    -- database: tenant. What a provider was asked to do for a job. Written before it is asked, so that nothing it says can be about something unknown.
    with (fillfactor=70)
    id uuid not null
    tenant text collate "C" not null
    job_id uuid not null
    run smallint not null -- The run of the job that it is for.
    provider text collate "C" not null
    status text collate "C" not null -- held: to be sent when the provider takes calls again; sending: it may or may not have been heard; running: it has been; unwanted: to be canceled there; over: nothing more will come of it.
    external_id text collate "C" -- What the provider calls it, once that is known.
    looks integer not null default 0 -- How often the reconciler has looked at it.
    created_at timestamp with time zone not null
    expires_at timestamp with time zone not null -- The deadline of the job.
    due_at timestamp with time zone -- When the reconciler looks next; none: it has no more to do with it.
    over_at timestamp with time zone
    part text collate "C" not null default ''::text -- Which part of the job it is for, by the name that the job's code gives it; empty where the provider does all of it.
    kept jsonb -- What came of a part: what the provider said, and the files that were brought into storage. The job's code is told so when it asks again.
    CREATE INDEX predictions_done ON millpond.predictions USING btree (created_at) WHERE (due_at IS NULL)
    CREATE INDEX predictions_due ON millpond.predictions USING btree (provider, due_at) WHERE (due_at IS NOT NULL)
    CREATE INDEX predictions_external_id ON millpond.predictions USING btree (external_id) WHERE (external_id IS NOT NULL)
    CREATE INDEX predictions_job ON millpond.predictions USING btree (job_id, id)
    CREATE UNIQUE INDEX predictions_open ON millpond.predictions USING btree (job_id, part) WHERE (status = ANY (ARRAY['held'::text, 'sending'::text, 'running'::text]))
    constraint predictions_check CHECK (((status = ANY (ARRAY['held'::text, 'sending'::text, 'running'::text, 'unwanted'::text, 'over'::text])) AND ((status <> 'running'::text) OR (external_id IS NOT NULL)) AND ((status <> ALL (ARRAY['held'::text, 'running'::text])) OR (due_at IS NOT NULL)) AND ((status = 'over'::text) = (over_at IS NOT NULL))))
    constraint predictions_pkey PRIMARY KEY (id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.queues
    -- database: central. A queue may be paused.
    queue text collate "C" not null
    paused_at timestamp with time zone
    is_route boolean not null default false -- Whether its jobs go to the fleet: a worker that registers may name it.
    constraint queues_pkey PRIMARY KEY (queue)

table millpond.ready
    -- database: central. The line: the dispatches that may be claimed now, in order. Rows are inserted and deleted, never updated, and only under the lock of their dispatch.
    with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0)
    queue text collate "C" not null
    rank smallint not null
    turn bigint not null
    job_id uuid not null
    constraint ready_pkey PRIMARY KEY (queue, rank, turn, job_id)

table millpond.recounts
    -- database: tenant. When jobs that have not ended are to be counted again. A row is for transitions by statements of an older version, which wrote no counter changes; each change of the functions writes one.
    due_at timestamp with time zone not null

table millpond.secrets
    -- database: central. What this installation signs with: browser tokens. Without the row a new secret is made, and what the old one has signed is void.
    name text collate "C" not null
    secret bytea not null
    constraint secrets_pkey PRIMARY KEY (name)

table millpond.sessions
    -- database: central. Who has signed in to the dashboard. Of a cookie its SHA-256 alone is kept.
    with (fillfactor=70)
    digest bytea not null
    key_id uuid not null -- The key that was shown: the session may what that key may now, and nothing when it is not good any more.
    address text not null -- From where the sign-in came.
    created_at timestamp with time zone not null
    last_seen_at timestamp with time zone not null -- Written at most once a minute.
    expires_at timestamp with time zone not null -- When it ends, however busy it is.
    CREATE INDEX sessions_end ON millpond.sessions USING btree (expires_at)
    constraint sessions_pkey PRIMARY KEY (digest)

table millpond.shares
    -- database: central. The last turn given to each tenant of a fair queue.
    with (fillfactor=50)
    queue text collate "C" not null
    tenant text collate "C" not null
    turn bigint not null
    constraint shares_pkey PRIMARY KEY (queue, tenant)

table millpond.subscriptions
    -- database: tenant. Which endpoints are told of which lifecycle event: those that are not disabled. Written with the endpoint, so that a lifecycle event nobody wants costs one look.
    event text collate "C" not null
    tenant text collate "C" not null
    endpoint_id uuid not null
    kinds text[] not null -- The kinds of jobs it is about; none: all of them.
    receiver text collate "C"
    account text collate "C" -- The account whose jobs it is about; none: all of the tenant.
    CREATE INDEX subscriptions_account ON millpond.subscriptions USING btree (event, tenant, account)
    CREATE INDEX subscriptions_endpoint ON millpond.subscriptions USING btree (endpoint_id)
    constraint subscriptions_pkey PRIMARY KEY (event, tenant, endpoint_id)
    policy client for select to {millpond_client} using ((tenant = ANY (( SELECT string_to_array(current_setting('millpond.callers'::text, true), ','::text) AS string_to_array)::text[])))

table millpond.tenant_databases
    -- database: central. The tenants that live in another database. Whoever does not know where must not touch their jobs.
    tenant text collate "C" not null
    since timestamp with time zone not null
    constraint tenant_databases_pkey PRIMARY KEY (tenant)

table millpond.tenants
    -- database: central. The customers that an operator has named.
    tenant text collate "C" not null
    created_at timestamp with time zone not null
    constraint tenants_pkey PRIMARY KEY (tenant)

table millpond.tracebacks
    -- database: tenant. Where the code of a job raised the error of an attempt: for operators only, the role of clients cannot read it. Without secrets, at most 16,000 characters.
    job_id uuid not null
    epoch integer not null -- Which lease of the job the attempt had.
    tenant text collate "C" not null
    at timestamp with time zone not null
    text text not null
    constraint tracebacks_pkey PRIMARY KEY (job_id, epoch)

table millpond.worker_routes
    -- database: central. Which queues a worker of the fleet is given jobs from.
    route text collate "C" not null
    worker_id text collate "C" not null
    CREATE INDEX worker_routes_worker ON millpond.worker_routes USING btree (worker_id)
    constraint worker_routes_pkey PRIMARY KEY (route, worker_id)

table millpond.workers
    -- database: central. The workers: those of the fleet, which come over HTTP with a token, and direct ones, which connect to the database. One that has left has no row.
    with (fillfactor=50)
    id text collate "C" not null -- As it stands in leases: each registration has its own, so that what its former self held is told apart.
    worker text collate "C" not null -- Its name, which is unique in the fleet. Several direct workers may have the same.
    digest bytea -- The SHA-256 of its token; the token itself is kept nowhere. Null for a direct worker.
    hint text collate "C"
    old_digest bytea -- Of the token before, which stays good until old_until.
    old_until timestamp with time zone
    slots smallint not null
    capabilities jsonb
    fleet text collate "C" -- The key it registered with. Null for a direct worker.
    address text collate "C" -- From where it was last heard.
    registered_at timestamp with time zone not null
    heard_at timestamp with time zone not null -- Written every few seconds at most.
    approved_at timestamp with time zone
    draining_at timestamp with time zone
    revoked_at timestamp with time zone
    polled_at timestamp with time zone -- When it last asked for jobs; written together with heard_at, every few seconds at most.
    unready_at timestamp with time zone -- Since when it takes no jobs, as it reported itself. None: it is ready.
    unready_reason text -- Why it takes no jobs. Operators read it.
    queues text[] -- From which queues a direct worker takes jobs; those of a fleet worker are in worker_routes.
    silence interval -- After how long without a heartbeat a direct worker is lost: when its leases have expired.
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
    -- database: both. The order of ids of one microsecond; see millpond.uuid7.
