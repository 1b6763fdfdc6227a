-- Why: the tables of the engine.
-- Locks: none that matter; everything is new.
-- breaking: no
-- The comment of each table names its database. Tenant tables (a customer's jobs and credits) and central tables (the
-- queue) are never joined and never reference each other, so that a tenant can have a database of its own. A test in
-- `tests/tidy` checks this for every query.
--
-- PostgreSQL compiles the check constraints of a table for every statement that writes to it. For a statement that
-- writes a single job, this costs more than the row. So the tables that such statements write have at most one check
-- constraint, and millpond.jobs has none: its guards, which a session compiles once, check its columns instead.

create table millpond.lifecycle_states (
    lifecycle text collate "C" not null,
    state     text collate "C" not null,
    phase     text collate "C" not null,
    outcome   text collate "C",
    is_entry  boolean not null,
    primary key (lifecycle, state),
    check ((phase = 'ended') = (outcome is not null))
);
comment on table millpond.lifecycle_states is 'database: both. The states of each lifecycle, copied from the Python definitions by each migration.';

create table millpond.lifecycle_transitions (
    lifecycle  text collate "C" not null,
    from_state text collate "C" not null,
    event     text collate "C" not null,
    to_state   text collate "C" not null,
    primary key (event, lifecycle, from_state)
);
create index lifecycle_transitions_pair on millpond.lifecycle_transitions (lifecycle, from_state, to_state);
comment on table millpond.lifecycle_transitions is 'database: both. The state to which each lifecycle event leads. The guard of jobs is generated from these rows.';

create table millpond.kinds (
    kind              text collate "C" primary key,
    lifecycle         text collate "C" not null,
    queue             text collate "C" not null,
    is_fair           boolean not null,
    initial_state     text collate "C" not null,
    entry_state       text collate "C" not null,
    stages            text[] not null,
    firm_stages       text[] not null,
    attempts_max      smallint not null check (attempts_max > 0),
    interruptions_max smallint not null check (interruptions_max > 0),
    lapses_max        smallint not null check (lapses_max > 0),
    declaration       jsonb not null,
    registered_at     timestamptz not null default clock_timestamp()
);
comment on table millpond.kinds is 'database: both. What each kind declares, written when an app registers the kind.';
comment on column millpond.kinds.entry_state is 'The state of a new job that may start at once.';
comment on column millpond.kinds.firm_stages is 'The stages during which a cancel is refused.';

create table millpond.accounts (
    tenant     text collate "C" not null,
    account    text collate "C" not null,
    available  bigint not null default 0,
    held       bigint not null default 0,
    active     integer not null default 0,
    active_max integer,
    entries    bigint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, account),
    check (available >= 0 and held >= 0 and active >= 0 and active_max >= 0)
) with (fillfactor = 50);
comment on table millpond.accounts is 'database: tenant. The wallet of each account: available and held credits, the number of active jobs and its limit, and the number of the last entry.';

create table millpond.jobs (
    id                  uuid not null,
    tenant              text collate "C" not null,
    account             text collate "C" not null,
    kind                text collate "C" not null,
    lifecycle           text collate "C" not null,
    queue               text collate "C" not null,
    state               text collate "C" not null,
    phase               text collate "C" not null,
    outcome             text collate "C",
    priority            smallint not null,
    run                 smallint not null default 1,
    epoch               integer not null default 0,
    attempts            smallint not null default 0,
    events              integer not null,
    noted               integer not null default 0,
    price               integer not null,
    captured            integer,
    progress            real not null default 0,
    stage               text,
    created_at          timestamptz not null,
    run_at              timestamptz,
    expires_at          timestamptz,
    started_at          timestamptz,
    finished_at         timestamptz,
    cancel_requested_at timestamptz,
    retry_of            uuid,
    input               jsonb not null,
    memo                jsonb,
    answer              jsonb,
    output              jsonb,
    error               jsonb,
    primary key (id)
) partition by range (id);
create index jobs_account on millpond.jobs (tenant, account, id);
comment on table millpond.jobs is 'database: tenant. One row for each job, partitioned by the time in its id.';
comment on column millpond.jobs.run is 'The number of the current run. A retry in place begins another run, with a hold of its own.';
comment on column millpond.jobs.epoch is 'How often the job has been leased. It only increases.';
comment on column millpond.jobs.noted is 'The number of the last note written under the current lease. Notes up to this number are duplicates, and are not written again.';
comment on column millpond.jobs.memo is 'What the handler stored for its next call when it parked the job.';
comment on column millpond.jobs.answer is 'The value with which the parked job was answered.';
comment on column millpond.jobs.events is 'The number of the last event.';

create table millpond.events (
    job_id uuid not null,
    seq    integer not null,
    at     timestamptz not null,
    type   text collate "C" not null,
    state  text collate "C" not null,
    tenant text collate "C" not null,
    data   jsonb,
    primary key (job_id, seq)
) partition by range (job_id);
comment on table millpond.events is 'database: tenant. The events of each job, numbered in order. Append-only.';

create table millpond.entries (
    tenant          text collate "C" not null,
    account         text collate "C" not null,
    seq             bigint not null,
    at              timestamptz not null,
    type            text collate "C" not null,
    available       bigint not null,
    held            bigint not null,
    outside         bigint not null,
    available_after bigint not null,
    held_after      bigint not null,
    job_id          uuid,
    run             smallint,
    reference       text collate "C",
    reason          text,
    primary key (tenant, account, seq),
    check (
        available + held + outside = 0 and available_after >= 0 and held_after >= 0
        and type in ('grant', 'adjust', 'hold', 'capture', 'release')
        and (type in ('hold', 'capture', 'release')) = (job_id is not null and run is not null)
    )
);
create unique index entries_hold on millpond.entries (job_id, run) where type = 'hold';
create unique index entries_settlement on millpond.entries (job_id, run) where type in ('capture', 'release');
create unique index entries_reference on millpond.entries (tenant, account, reference) where reference is not null;
comment on table millpond.entries is 'database: tenant. The ledger, append-only. Each row is one change of three balances: available, held, and outside (where grants come from and captures go). The three amounts add up to zero.';

create table millpond.idempotency (
    tenant     text collate "C" not null,
    scope      text collate "C" not null,
    key        text collate "C" not null,
    job_id     uuid not null,
    request    jsonb,
    created_at timestamptz not null,
    expires_at timestamptz,
    primary key (key, scope, tenant)  -- the most distinct column comes first, so comparisons end early
);
create index idempotency_age on millpond.idempotency using brin (created_at);
comment on table millpond.idempotency is 'database: tenant. Idempotency keys, each with the job that it created. The request is stored only if it differs from the input and tags of the job.';

create table millpond.queues (
    queue     text collate "C" primary key,
    paused_at timestamptz
);
comment on table millpond.queues is 'database: central. The queues, and since when each is paused.';

create table millpond.shares (
    queue  text collate "C" not null,
    tenant text collate "C" not null,
    turn   bigint not null,
    primary key (queue, tenant)
) with (fillfactor = 50);
comment on table millpond.shares is 'database: central. The last turn that was given to each tenant of a fair queue.';

create table millpond.dispatches (
    job_id        uuid primary key,
    tenant        text collate "C" not null,
    account       text collate "C" not null,
    kind          text collate "C" not null,
    queue         text collate "C" not null,
    phase         text collate "C" not null,
    rank          smallint not null,
    turn          bigint not null default 0,
    epoch         integer not null default 0,
    attempts      smallint not null default 0,
    interruptions smallint not null default 0,
    lapses        smallint not null default 0,
    lease_token   uuid,
    run_at        timestamptz,
    expires_at    timestamptz,
    cancel_at     timestamptz,
    wakes_at      timestamptz,
    check (
        phase in ('waiting', 'ready', 'leased', 'parked', 'delivering')
        and (phase = 'leased') = (lease_token is not null) and (phase <> 'parked' or expires_at is not null)
    )
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
create index dispatches_wakes on millpond.dispatches (wakes_at) where wakes_at is not null;
comment on table millpond.dispatches is 'database: central. One row for each job that has not ended. Every verb locks it first.';
comment on column millpond.dispatches.rank is 'The negated priority: the lowest rank is claimed first.';
comment on column millpond.dispatches.turn is 'The order of tenants in a fair queue; 0 in other queues.';
comment on column millpond.dispatches.cancel_at is 'When a requested cancel is enforced: the lease is revoked and the job ends.';
comment on column millpond.dispatches.wakes_at is 'When a service must process the row: at the start time, the deadline, or the end of the grace of a cancel. The expiry of a lease is not included.';

create table millpond.ready (
    queue  text collate "C" not null,
    rank   smallint not null,
    turn   bigint not null,
    job_id uuid not null,
    primary key (queue, rank, turn, job_id)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
comment on table millpond.ready is 'database: central. The dispatches that may be claimed now, in order. Rows are inserted and deleted, never updated, and only while their dispatch is locked.';

create table millpond.leases (
    token      uuid primary key,
    worker     text collate "C" not null,
    granted_at timestamptz not null,
    expires_at timestamptz not null,
    job_ids    uuid[] not null
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
comment on table millpond.leases is 'database: central. What each claim leased, and until when. A job is leased while the token of its dispatch names a lease that has not expired.';

-- millpond.compile_guard generates the bodies of both guards from the lifecycle tables.
create function millpond.guard_birth() returns trigger language plpgsql as 'begin return null; end';
create function millpond.guard_transition() returns trigger language plpgsql as 'begin return null; end';
select millpond.compile_guard();

create trigger jobs_birth before insert on millpond.jobs
    for each row execute function millpond.guard_birth();
create trigger jobs_transition before update on millpond.jobs
    for each row execute function millpond.guard_transition();
create trigger events_append_only before update or delete on millpond.events
    for each row execute function millpond.guard_append_only();
create trigger entries_append_only before update or delete or truncate on millpond.entries
    for each statement execute function millpond.guard_append_only();

create table millpond.jobs_default partition of millpond.jobs default with (fillfactor = 60);
create table millpond.events_default partition of millpond.events default;
comment on table millpond.jobs_default is 'database: tenant. Holds jobs whose partition did not exist when they were created. Should stay empty.';
comment on table millpond.events_default is 'database: tenant. Holds events whose partition did not exist when they were written. Should stay empty.';
