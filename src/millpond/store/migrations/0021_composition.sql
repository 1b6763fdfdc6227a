-- Why: a job can have children, steps, questions and a budget, and jobs can be submitted as a batch.
-- Locks: jobs and dispatches, for a moment: empty columns are added, and a check is replaced without a scan.
-- breaking: no

alter table millpond.jobs
    add column batch_id uuid,
    add column parent_id uuid,
    add column depth smallint,
    add column waits_for text collate "C";
comment on column millpond.jobs.batch_id is 'The batch that the job belongs to. Null: none.';
comment on column millpond.jobs.parent_id is 'The job that submitted it. Null: it is not a child.';
comment on column millpond.jobs.depth is 'How many ancestors it has. Null: it has no steps, batch or budget, so nothing has to be done for them when it ends.';
comment on column millpond.jobs.waits_for is 'What a parked job waits for: its children, a time, or the answer to a question. Null: an answer to the job itself.';

create table millpond.batches (
    id          uuid primary key,
    tenant      text collate "C" not null,
    account     text collate "C" not null,
    name        text not null,
    parent_id   uuid,
    run         smallint,
    root_id     uuid,
    before      integer not null default 0,
    is_detached boolean not null default false,
    fails_fast  boolean not null default false,
    is_awaited  boolean not null default false,
    total       integer not null,
    submitted   integer not null,
    ended       integer not null default 0,
    succeeded   integer not null default 0,
    failed      integer not null default 0,
    canceled    integer not null default 0,
    created_at  timestamptz not null,
    ended_at    timestamptz,
    check (
        total > 0 and submitted between 0 and total and ended between 0 and submitted
        and succeeded + failed + canceled = ended and (ended_at is not null) = (ended = total)
        and (parent_id is not null) = (run is not null and root_id is not null)
    )
) with (fillfactor = 50);
create index batches_parent on millpond.batches (parent_id, id) where parent_id is not null;
create index batches_account on millpond.batches (tenant, account, id) where parent_id is null;
comment on table millpond.batches is 'database: tenant. Jobs that are awaited together: the children of one step of a job, or jobs that a client submitted as a batch.';
comment on column millpond.batches.run is 'The run of the parent that submitted it.';
comment on column millpond.batches.root_id is 'The first ancestor of its jobs.';
comment on column millpond.batches.before is 'How many children the run of the parent submitted before this batch.';
comment on column millpond.batches.is_detached is 'Whether its jobs outlive their parent.';
comment on column millpond.batches.fails_fast is 'Whether the parent resumes as soon as a job of the batch has not succeeded.';
comment on column millpond.batches.is_awaited is 'Whether the parent is parked until the batch has ended.';
comment on column millpond.batches.total is 'How many jobs it is to have; they are submitted in parts.';
comment on column millpond.batches.failed is 'How many of its jobs failed, expired or were blocked.';

create table millpond.trees (
    root_id uuid primary key,
    tenant  text collate "C" not null,
    jobs    integer not null
) with (fillfactor = 50);
comment on table millpond.trees is 'database: tenant. How many descendants a job has, for the limit.';

create table millpond.steps (
    job_id   uuid not null,
    run      smallint not null,
    name     text collate "C" not null,
    tenant   text collate "C" not null,
    position integer,
    type     text collate "C" not null,
    at       timestamptz not null,
    batch_id uuid,
    due_at   timestamptz,
    details  jsonb,
    done_at  timestamptz,
    done_by  text,
    result   jsonb,
    primary key (job_id, run, name),
    check (
        type in ('call', 'children', 'sleep', 'question')
        and (type = 'children') = (batch_id is not null) and (type <> 'sleep' or due_at is not null)
    )
);
comment on table millpond.steps is 'database: tenant. What a run of a job has done, by name: a later attempt gets the recorded results instead of doing it again.';
comment on column millpond.steps.position is 'The number of the step, in the order of the handler. Null: it was made in another task or thread.';
comment on column millpond.steps.type is 'call: a function was called; children: child jobs were submitted; sleep: the job waits until due_at; question: somebody is asked.';
comment on column millpond.steps.due_at is 'The end of a sleep, or the deadline of a question.';
comment on column millpond.steps.details is 'Of a question: its text, the schema of the answer, and who may answer it.';
comment on column millpond.steps.done_by is 'Who answered a question.';

create table millpond.budgets (
    job_id    uuid not null,
    run       smallint not null,
    tenant    text collate "C" not null,
    amount    integer not null,
    spent     bigint not null default 0,
    moved     bigint not null default 0,
    reserved  bigint not null default 0,
    closed_at timestamptz,
    primary key (job_id, run),
    check (amount > 0 and moved between 0 and spent and reserved >= 0 and spent + reserved <= amount)
) with (fillfactor = 50);
comment on table millpond.budgets is 'database: tenant. What the descendants of a run of a job may cost. The hold of the job covers it, or the budget of an ancestor.';
comment on column millpond.budgets.spent is 'What its descendants have cost.';
comment on column millpond.budgets.moved is 'What they had cost when the job got a hold of its own, because the budget of its ancestor was closed.';
comment on column millpond.budgets.reserved is 'What its descendants that have not ended may still cost.';

create table millpond.reservations (
    job_id   uuid primary key,
    tenant   text collate "C" not null,
    payer_id uuid not null,
    amount   bigint not null,
    captured bigint,
    check (amount >= 0 and captured between 0 and amount)
) with (fillfactor = 70);
create index reservations_open on millpond.reservations (payer_id) where captured is null;
comment on table millpond.reservations is 'database: tenant. The jobs that a budget pays for. A job with a hold of its own has none.';
comment on column millpond.reservations.payer_id is 'The job with the budget.';
comment on column millpond.reservations.amount is 'The price of the job, with its own budget.';
comment on column millpond.reservations.captured is 'What the job itself has cost. Null: it has not ended.';

create table millpond.orphans (
    job_id uuid primary key,
    tenant text collate "C" not null,
    at     timestamptz not null
);
create index orphans_at on millpond.orphans (at);
comment on table millpond.orphans is 'database: tenant. Jobs that ended before their children: a service cancels the children.';

select millpond.raise_wall();

-- A job that waits for its children needs no deadline: they have ends of their own.
alter table millpond.dispatches drop constraint dispatches_check;
alter table millpond.dispatches add constraint dispatches_check check (
    phase in ('waiting', 'ready', 'leased', 'parked', 'delivering') and (phase = 'leased') = (lease_token is not null)
) not valid;
