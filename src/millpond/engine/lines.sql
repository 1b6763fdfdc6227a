-- Lines: jobs as operators look for them, without what they were given and what they made. Home: tenant, but for what
-- the queue knows.
-- Invariants: one look walks over so many jobs and no further; the first wall between tenants is the `where` of the
-- function, the second that it names its callers, as in views.sql.

-- function: view_lines
-- Jobs that fit a filter, the newest first, below an id. Where the candidates are known they are named (`job_ids`). Jobs
-- that failed have indexes of their own, down to the first that was born when there were fingerprints (`prints_from`;
-- none: it is not about those). All else is a walk. Of the jobs that fit no more than `shown` are told, and `most` are
-- counted. After them comes a last row: how many fit, how many were looked at, and, where there may be more, the id down
-- to which all is known.
-- Whose jobs they are, and how they failed, is said as a range, in the order of the index, and nothing is sorted: a plan is
-- made once, for what is frequent and what is rare, and must not walk over all jobs in search of those few.
create or replace function millpond.view_lines(
    of_tenant text, of_account text, before uuid, low uuid, job_ids uuid[], prints_from uuid, of_kind text,
    kinds_like text, of_state text, of_phase text, of_outcome text, of_error text, of_fingerprint text, of_stage text,
    most integer, shown integer, walk integer
) returns table (
    is_match boolean, told integer, looked integer, id uuid, tenant text, account text, kind text, state text, phase text,
    outcome text, stage text, progress float8, attempts smallint, priority smallint, price integer, captured integer,
    created_at timestamptz, run_at timestamptz, started_at timestamptz, finished_at timestamptz, fingerprint text,
    error_code text, error_message text, is_canceling boolean
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set enable_incremental_sort = off
as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', of_tenant, true);
    newest refcursor;
    job record;
    least uuid := millpond.least_id(job_ids);
    greatest uuid := millpond.greatest_id(job_ids);
    is_walk boolean := job_ids is null;
    is_printed boolean := coalesce(of_fingerprint is not null or before > prints_from, false);
    first_print text := coalesce(of_fingerprint, '');
    last_print text := coalesce(of_fingerprint, '~');
    reach integer := case when is_printed then (walk + 1) / 2 else walk end;  -- those that failed lie far apart
    bottom uuid;
begin
    if is_printed and of_fingerprint is null and low < prints_from then
        bottom := case when exists (
            select from millpond.jobs j
            where j.id < prints_from and j.id >= low and (of_tenant is null or j.tenant = of_tenant)
        ) then prints_from end;
        low := prints_from;
    end if;

    if not is_walk then
        open newest no scroll for
            select j.id, j.tenant, j.account, j.kind, j.state, j.phase, j.outcome, j.stage, j.progress, j.attempts,
                j.priority, j.price, j.captured, j.created_at, j.run_at, j.started_at, j.finished_at, j.fingerprint,
                j.cancel_requested_at, j.error
            from millpond.jobs j
            where j.id = any(job_ids) and j.id >= least and j.id <= greatest and j.id < before and j.id >= low
                and (of_tenant is null or j.tenant = of_tenant)
            order by j.id desc;
    elsif is_printed and of_tenant is not null then
        open newest no scroll for
            select j.id, j.tenant, j.account, j.kind, j.state, j.phase, j.outcome, j.stage, j.progress, j.attempts,
                j.priority, j.price, j.captured, j.created_at, j.run_at, j.started_at, j.finished_at, j.fingerprint,
                j.cancel_requested_at, j.error
            from millpond.jobs j
            where (j.tenant, j.id) < (of_tenant, before) and (j.tenant, j.id) >= (of_tenant, low)
                and j.id < before and j.id >= low
                and j.fingerprint >= first_print and j.fingerprint <= last_print
            order by j.tenant desc, j.id desc limit reach;
    elsif of_fingerprint is not null then
        open newest no scroll for
            select j.id, j.tenant, j.account, j.kind, j.state, j.phase, j.outcome, j.stage, j.progress, j.attempts,
                j.priority, j.price, j.captured, j.created_at, j.run_at, j.started_at, j.finished_at, j.fingerprint,
                j.cancel_requested_at, j.error
            from millpond.jobs j
            where j.fingerprint >= of_fingerprint and j.fingerprint <= of_fingerprint and j.id < before and j.id >= low
            order by j.fingerprint desc, j.id desc limit reach;
    elsif is_printed then
        open newest no scroll for
            select j.id, j.tenant, j.account, j.kind, j.state, j.phase, j.outcome, j.stage, j.progress, j.attempts,
                j.priority, j.price, j.captured, j.created_at, j.run_at, j.started_at, j.finished_at, j.fingerprint,
                j.cancel_requested_at, j.error
            from millpond.jobs j
            where j.fingerprint is not null and j.id < before and j.id >= low
            order by j.id desc limit reach;
    elsif of_account is not null then
        open newest no scroll for
            select j.id, j.tenant, j.account, j.kind, j.state, j.phase, j.outcome, j.stage, j.progress, j.attempts,
                j.priority, j.price, j.captured, j.created_at, j.run_at, j.started_at, j.finished_at, j.fingerprint,
                j.cancel_requested_at, j.error
            from millpond.jobs j
            where (j.tenant, j.account, j.id) < (of_tenant, of_account, before)
                and (j.tenant, j.account, j.id) >= (of_tenant, of_account, low)
                and j.account >= of_account and j.account <= of_account and j.id < before and j.id >= low
            order by j.tenant desc, j.account desc, j.id desc limit reach;
    elsif of_tenant is not null then
        open newest no scroll for
            select j.id, j.tenant, j.account, j.kind, j.state, j.phase, j.outcome, j.stage, j.progress, j.attempts,
                j.priority, j.price, j.captured, j.created_at, j.run_at, j.started_at, j.finished_at, j.fingerprint,
                j.cancel_requested_at, j.error
            from millpond.jobs j
            where (j.tenant, j.id) < (of_tenant, before) and (j.tenant, j.id) >= (of_tenant, low)
                and j.id < before and j.id >= low
            order by j.tenant desc, j.id desc limit reach;
    else
        open newest no scroll for
            select j.id, j.tenant, j.account, j.kind, j.state, j.phase, j.outcome, j.stage, j.progress, j.attempts,
                j.priority, j.price, j.captured, j.created_at, j.run_at, j.started_at, j.finished_at, j.fingerprint,
                j.cancel_requested_at, j.error
            from millpond.jobs j
            where j.id < before and j.id >= low
            order by j.id desc limit reach;
    end if;

    is_match := true;
    told := 0;
    looked := 0;
    loop
        fetch newest into job;
        exit when not found;
        looked := looked + 1;
        if coalesce(job.kind = of_kind, true) and coalesce(starts_with(job.kind, kinds_like), true)
            and coalesce(job.state = of_state, true) and coalesce(job.phase = of_phase, true)
            and (of_outcome is null or job.outcome is not distinct from of_outcome)
            and (of_stage is null or job.stage is not distinct from of_stage)
            and coalesce(job.account = of_account, true)
            and (of_fingerprint is null or job.fingerprint is not distinct from of_fingerprint)
            and (of_error is null or job.error ->> 'code' is not distinct from of_error)
        then
            told := told + 1;
            if told <= shown then
                id := job.id;
                tenant := job.tenant;
                account := job.account;
                kind := job.kind;
                state := job.state;
                phase := job.phase;
                outcome := job.outcome;
                stage := job.stage;
                progress := job.progress::numeric;
                attempts := job.attempts;
                priority := job.priority;
                price := job.price;
                captured := job.captured;
                created_at := job.created_at;
                run_at := job.run_at;
                started_at := job.started_at;
                finished_at := job.finished_at;
                fingerprint := job.fingerprint;
                error_code := job.error ->> 'code';
                error_message := left(job.error ->> 'message', 200);
                is_canceling := job.cancel_requested_at is not null and job.phase <> 'ended';
                return next;
            end if;
            exit when told = most;
        end if;
        if is_walk and looked = reach then
            bottom := job.id;
        end if;
    end loop;
    close newest;
    is_match := false;
    id := bottom;
    return next;
end $$;

-- name: lines :many
select is_match, told, looked, id, tenant, account, kind, state, phase, outcome, stage, progress, attempts, priority, price,
    captured, created_at, run_at, started_at, finished_at, fingerprint, error_code, error_message, is_canceling
from millpond.view_lines(
    $1, $2, $3, $4, $5::uuid[], $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17
);

-- name: prints_from :one
-- The first job that has a fingerprint if it failed. Home: both.
select millpond.first_id(applied_at) as id from millpond.migrations where number = 12;

-- name: ends :one
-- Whether every state of this name is one of jobs that have not ended, or one of jobs that failed. Home: both.
select coalesce(bool_and(phase <> 'ended'), false) as is_live, coalesce(bool_and(outcome in ('failed', 'expired', 'blocked')), false) as is_failed
from millpond.lifecycle_states where state = $1;

-- name: crowd :one
-- How many jobs have not ended; no further than this. Home: central.
select count(*) as jobs from (select from millpond.dispatches limit $1) d;

-- name: live :many
-- A walk over the jobs that have not ended, below an id: those that may be meant, and the one at which it stopped.
-- Home: central.
select d.job_id, d.tenant, d.is_match, d.n = $6 as is_stop
from (
    select d.job_id, d.tenant, row_number() over () as n,
        ($3::text is null or d.tenant = $3) and ($4::text is null or d.account = $4) and ($5::text is null or d.phase = $5)
            as is_match
    from (
        select d.job_id, d.tenant, d.account, d.phase from millpond.dispatches d
        where d.job_id < $1 and d.job_id >= $2 order by d.job_id desc limit $6
    ) d
) d
where d.is_match or d.n = $6;

-- name: leased :many
-- The jobs that workers hold, below an id. Home: central.
select d.job_id, d.tenant
from millpond.leases l
cross join lateral (
    select d.job_id, d.tenant, d.account from millpond.dispatches d
    where d.job_id = any(l.job_ids) and d.lease_token = l.token and d.job_id < $1 and d.job_id >= $2
) d
where ($3::text is null or d.tenant = $3) and ($4::text is null or d.account = $4)
order by d.job_id desc limit $5;

-- name: workers :many
-- Who holds these jobs. Home: central.
select d.job_id, l.worker
from millpond.dispatches d join millpond.leases l on l.token = d.lease_token
where d.job_id = any($1::uuid[]);
