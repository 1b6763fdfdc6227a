-- Why: each transition updates the counts, rates and failures of jobs, so that the dashboard need not count jobs.
-- Locks: jobs, for a moment, at the end: an empty column is added. Before that, all jobs are counted.
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
comment on table millpond.counter_changes is 'database: tenant. What a statement changed in the numbers of jobs: written by that statement, merged into the tables of counters, then deleted. Without an index: statements only append to it.';
comment on column millpond.counter_changes.at is 'The minute of the change.';
comment on column millpond.counter_changes.from_state is 'Null: the jobs were created.';
comment on column millpond.counter_changes.to_state is 'Null: the row says how jobs failed; another row counts that they failed.';
comment on column millpond.counter_changes.price is 'The sum of the prices of the jobs.';
comment on column millpond.counter_changes.bucket is 'How long the jobs waited for their first start, or ran until their end, on a logarithmic scale (millpond.bucket).';
comment on column millpond.counter_changes.sample is 'One of the jobs, if they failed.';

create table millpond.counts (
    tenant text collate "C" not null,
    kind   text collate "C" not null,
    state  text collate "C" not null,
    phase  text collate "C" not null,
    n      bigint not null,
    held   bigint not null,
    primary key (tenant, kind, state, phase)
) with (fillfactor = 50);
comment on table millpond.counts is 'database: tenant. How many jobs are in each state. For the states of ended jobs: how many have reached it since counting began; retention does not reduce these counts.';
comment on column millpond.counts.held is 'The credits that are held for these jobs.';

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
comment on table millpond.flows is 'database: tenant. How many jobs were submitted and ended in each minute, and in each hour, by tenant and kind. An empty tenant or kind means all of them.';
comment on column millpond.flows.failed is 'Includes blocked jobs.';
comment on column millpond.flows.retried is 'How often a job was requeued or retried in place.';
comment on column millpond.flows.waits is 'A histogram of how long jobs waited for their first start: for each bucket that is not empty, 64 times the number of jobs, plus the bucket.';
comment on column millpond.flows.runs is 'A histogram of the time from the first start of jobs to their end, in the same format.';

create table millpond.lengths (
    kind  text collate "C" primary key,
    waits bigint[],
    runs  bigint[]
) with (fillfactor = 50);
comment on table millpond.lengths is 'database: tenant. Histograms of how long jobs of each kind waited and ran since counting began, in the format of flows, for all tenants of this database.';

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
comment on table millpond.failures is 'database: tenant. The different failures of jobs: those with the same fingerprint differ only in numbers, names and the like. The message and the sample are from one of the latest. If there are too many new fingerprints in a day, further failures of the same kind and code share one.';

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
comment on table millpond.failure_flows is 'database: tenant. How often each failure happened in each minute, and in each hour. An empty tenant means all tenants.';
comment on column millpond.failure_flows.released is 'The credits that were released.';

create table millpond.recounts (due_at timestamptz not null);
comment on table millpond.recounts is 'database: tenant. When to recount the jobs that have not ended. Each change of the functions writes a row, because processes of the previous version may still run statements that write no counter changes.';

insert into millpond.counts (tenant, kind, state, phase, n, held)
select tenant, kind, state, phase, count(*), case when phase = 'ended' then 0 else sum(price) end
from millpond.jobs group by tenant, kind, state, phase;

alter table millpond.jobs add column fingerprint text collate "C";
comment on column millpond.jobs.fingerprint is 'Identifies how the job failed: the same for failures that differ only in numbers, names and the like.';

select millpond.wall('counter_changes'), millpond.wall('counts'), millpond.wall('flows'), millpond.wall('failures'),
    millpond.wall('failure_flows');
