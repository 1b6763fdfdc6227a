-- Why: the tables of the engine.
-- Locks: none that matter; everything is new.
-- breaking: no
-- The comment of each table names its database. Tenant tables (a customer's jobs and money) and central tables (the queue) are
-- never joined and never reference each other, so that a tenant can live in another database. `tests/tidy` holds every query to
-- it.
--
-- A check constraint is read from text and compiled by every statement that writes to its table. Where one job is
-- written that costs more than its row, so a table has one at most, and millpond.jobs none: its guards, which a
-- session keeps ready, say what must hold between its columns.

create table millpond.lifecycle_states (
    lifecycle text collate "C" not null,
    state     text collate "C" not null,
    phase     text collate "C" not null,
    outcome   text collate "C",
    is_entry  boolean not null,
    primary key (lifecycle, state),
    check ((phase = 'ended') = (outcome is not null))
);
comment on table millpond.lifecycle_states is 'database: both. The states of each lifecycle, written from the Python table at migration.';

create table millpond.lifecycle_transitions (
    lifecycle  text collate "C" not null,
    from_state text collate "C" not null,
    event     text collate "C" not null,
    to_state   text collate "C" not null,
    primary key (event, lifecycle, from_state)
);
create index lifecycle_transitions_pair on millpond.lifecycle_transitions (lifecycle, from_state, to_state);
comment on table millpond.lifecycle_transitions is 'database: both. Which state each lifecycle event leads to; the guard looks the pair up.';

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
comment on table millpond.kinds is 'database: both. What each kind declares, written when an app registers it.';
comment on column millpond.kinds.entry_state is 'The state in which a job that may start at once is born.';
comment on column millpond.kinds.firm_stages is 'The stages in which a cancel is refused.';

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
comment on table millpond.accounts is 'database: tenant. A wallet: what is available, what is held, how many jobs are active, the number of its last entry.';

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
comment on table millpond.jobs is 'database: tenant. One row a job, partitioned by the time in its id.';
comment on column millpond.jobs.run is 'How often it was started from its beginning: a retry in place adds one. Each run has its own hold.';
comment on column millpond.jobs.epoch is 'How often it was leased. Only grows.';
comment on column millpond.jobs.noted is 'The number of the last note of its present lease: a note that comes twice is written once.';
comment on column millpond.jobs.memo is 'What its handler left for itself when it parked the job.';
comment on column millpond.jobs.answer is 'What a parked job was waiting for.';
comment on column millpond.jobs.events is 'The number of its last event.';

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
comment on table millpond.events is 'database: tenant. What happened to each job, in order, append-only.';

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
comment on table millpond.entries is 'database: tenant. The ledger, append-only. One row is one balanced transaction over three purses: available, held, and outside (granted from, captured to).';

create table millpond.idempotency (
    tenant     text collate "C" not null,
    scope      text collate "C" not null,
    key        text collate "C" not null,
    job_id     uuid not null,
    request    jsonb,
    created_at timestamptz not null,
    expires_at timestamptz,
    primary key (key, scope, tenant)  -- what differs most stands first: comparing goes no further
);
create index idempotency_age on millpond.idempotency using brin (created_at);
comment on table millpond.idempotency is 'database: tenant. Which job answers a key, and what of that answer the job itself may change. The request is kept only where it differs from the job''s input.';

create table millpond.queues (
    queue     text collate "C" primary key,
    paused_at timestamptz
);
comment on table millpond.queues is 'database: central. A queue may be paused.';

create table millpond.shares (
    queue  text collate "C" not null,
    tenant text collate "C" not null,
    turn   bigint not null,
    primary key (queue, tenant)
) with (fillfactor = 50);
comment on table millpond.shares is 'database: central. The last turn given to each tenant of a fair queue.';

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
comment on table millpond.dispatches is 'database: central. One row for every job that has not ended, and none for one that has: the lock that every verb takes first.';
comment on column millpond.dispatches.rank is 'The priority, negated: the smallest goes first.';
comment on column millpond.dispatches.turn is 'Order between tenants in a fair queue; 0 elsewhere.';
comment on column millpond.dispatches.cancel_at is 'When an requested cancel is forced: the lease is revoked and the job ends.';
comment on column millpond.dispatches.wakes_at is 'When a service must look at this row: its start, its deadline or the end of its grace. Not the end of its lease.';

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
comment on table millpond.ready is 'database: central. The line: the dispatches that may be claimed now, in order. Rows are inserted and deleted, never updated, and only under the lock of their dispatch.';

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
comment on table millpond.leases is 'database: central. What one claim handed out, until when. A dispatch is held while its token names a lease that has not run out.';

-- The bodies of both guards are written by millpond.compile_guard from the lifecycle tables.
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
comment on table millpond.jobs_default is 'database: tenant. Takes jobs whose partition was not made in time; should stay empty.';
comment on table millpond.events_default is 'database: tenant. Takes events whose partition was not made in time; should stay empty.';
