-- Why: how many jobs there are, how fast they move and why they fail is kept as they move, so that nobody counts history.
-- Locks: jobs, for a moment, when all else is done: a column is added that is empty. Before that, it counts them.
-- breaking: no

create table millpond.counter_changes (
    at          timestamptz not null,
    tenant      text collate "C" not null,
    kind        text collate "C" not null,
    event      text collate "C" not null,
    from_state  text collate "C",
    from_phase  text collate "C",
    to_state    text collate "C",
    to_phase    text collate "C",
    outcome     text collate "C",
    n           integer not null,
    price       bigint not null,
    captured    bigint,
    bucket      smallint,
    fingerprint text collate "C",
    code        text collate "C",
    message     text,
    sample      uuid
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0
);
comment on table millpond.counter_changes is 'database: tenant. What a statement has done to jobs, as numbers: written by that statement, merged into the tables below, then deleted. Without an index: batches only append to it.';
comment on column millpond.counter_changes.at is 'The minute.';
comment on column millpond.counter_changes.from_state is 'None: they were born.';
comment on column millpond.counter_changes.to_state is 'None: it tells how jobs failed, and another one that they did.';
comment on column millpond.counter_changes.price is 'What the jobs cost together.';
comment on column millpond.counter_changes.bucket is 'How long they waited for their first start, or ran until their end, on a logarithmic scale (millpond.bucket).';
comment on column millpond.counter_changes.sample is 'One of the jobs, where they failed.';

create table millpond.counts (
    tenant text collate "C" not null,
    kind   text collate "C" not null,
    state  text collate "C" not null,
    phase  text collate "C" not null,
    n      bigint not null,
    held   bigint not null,
    primary key (tenant, kind, state, phase)
) with (fillfactor = 50);
comment on table millpond.counts is 'database: tenant. How many jobs are in each state. Of ended ones, how many have come there since this is counted: retention takes none away.';
comment on column millpond.counts.held is 'The credits that are held for them.';

create table millpond.flows (
    step      interval not null,
    tenant    text collate "C" not null,
    kind      text collate "C" not null,
    at        timestamptz not null,
    submitted integer not null,
    succeeded integer not null,
    failed    integer not null,
    canceled  integer not null,
    expired   integer not null,
    retried   integer not null,
    captured  bigint not null,
    waits     bigint[],
    runs      bigint[],
    primary key (step, tenant, kind, at)
) with (fillfactor = 70);
create index flows_age on millpond.flows (step, at);
create index flows_tenants on millpond.flows (at) where step = interval '1 minute' and kind = '' and tenant <> '';
comment on table millpond.flows is 'database: tenant. What went through in each minute, and in each hour: of a tenant and a kind; of all kinds, or all tenants, where one of them is empty.';
comment on column millpond.flows.failed is 'Those that were blocked as well.';
comment on column millpond.flows.retried is 'How often a job went back, to be run once more.';
comment on column millpond.flows.waits is 'How many jobs waited how long for their first start: of each bucket that has some, 64 times how many, and the bucket.';
comment on column millpond.flows.runs is 'How many jobs took how long from their first start to their end, in the same way.';

create table millpond.lengths (
    kind  text collate "C" primary key,
    waits bigint[],
    runs  bigint[]
) with (fillfactor = 50);
comment on table millpond.lengths is 'database: tenant. How long jobs of each kind waited and ran since this is counted, in the same way; of all tenants that live here.';

create table millpond.failures (
    fingerprint text collate "C" not null,
    tenant      text collate "C" not null,
    kind        text collate "C" not null,
    code        text collate "C" not null,
    message     text not null,
    first_at    timestamptz not null,
    last_at     timestamptz not null,
    sample      uuid not null,
    primary key (fingerprint, tenant)
) with (fillfactor = 70);
create index failures_age on millpond.failures (last_at);
create index failures_new on millpond.failures (tenant, kind, code, first_at);
comment on table millpond.failures is 'database: tenant. The ways in which jobs fail: those of one fingerprint differ only in numbers, names and the like. The message and the sample are of one of the last. Where too many are new in a day, the others of a kind and code are one.';

create table millpond.failure_flows (
    step        interval not null,
    tenant      text collate "C" not null,
    fingerprint text collate "C" not null,
    at          timestamptz not null,
    n           bigint not null,
    released    bigint not null,
    primary key (step, tenant, at, fingerprint)
) with (fillfactor = 70);
create index failure_flows_age on millpond.failure_flows (step, at);
comment on table millpond.failure_flows is 'database: tenant. How often each failure happened in each minute, and in each hour; of all tenants, where that is empty.';
comment on column millpond.failure_flows.released is 'The credits that were given back for it.';

create table millpond.recounts (due_at timestamptz not null);
comment on table millpond.recounts is 'database: tenant. When jobs that have not ended are to be counted again. A row is for transitions by statements of an older version, which wrote no counter changes; each change of the functions writes one.';

insert into millpond.counts (tenant, kind, state, phase, n, held)
select tenant, kind, state, phase, count(*), case when phase = 'ended' then 0 else sum(price) end
from millpond.jobs group by tenant, kind, state, phase;

alter table millpond.jobs add column fingerprint text collate "C";
comment on column millpond.jobs.fingerprint is 'How it failed: the same for failures that differ only in numbers, names and the like.';

select millpond.wall('counter_changes'), millpond.wall('counts'), millpond.wall('flows'), millpond.wall('failures'),
    millpond.wall('failure_flows');
