-- Summaries: jobs by filter, without their inputs and outputs. Database: tenant, unless a query says otherwise.
-- Invariants: one call walks over a bounded number of jobs. Tenants are isolated twice, as in views.sql: by the `where`
-- of the function, and by row-level security for the callers that it names.

-- function: view_summaries
-- Jobs that match a filter, the newest first, below an id. `job_ids` names the candidates where they are known. Failed
-- jobs have indexes of their own, which begin with the first job that was created after fingerprints were introduced
-- (`prints_from`; null if the filter does not select failures). All else is a walk. At most `shown` matches are
-- returned, and at most `row_limit` are counted (`matched`). A last row follows: the number of matches, the number of jobs
-- examined and, if there may be more, the id down to which the result is complete.
-- Tenants and fingerprints are compared as ranges, in the order of the index, and nothing is sorted: the generic plan
-- must suit frequent and rare values, and must not walk over all jobs in search of a few.
create or replace function millpond.view_summaries(
    of_tenant text, of_account text, before uuid, low uuid, job_ids uuid[], prints_from uuid, of_kind text,
    kinds_like text, of_state text, of_phase text, of_outcome text, of_error text, of_fingerprint text, of_stage text,
    row_limit integer, shown integer, walk integer, of_tags jsonb default null
) returns table (
    is_match boolean, matched integer, examined integer, id uuid, tenant text, account text, kind text, state text, phase text,
    outcome text, stage text, progress float8, attempts smallint, priority smallint, price integer, captured integer,
    created_at timestamptz, run_at timestamptz, started_at timestamptz, finished_at timestamptz, fingerprint text,
    error_code text, error_message text, is_canceling boolean, tags jsonb
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off set enable_incremental_sort = off
as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', of_tenant, true);
    newest refcursor;
    job millpond.jobs;
    least uuid := millpond.least_id(job_ids);
    greatest uuid := millpond.greatest_id(job_ids);
    is_walk boolean := job_ids is null;
    is_printed boolean := coalesce(of_fingerprint is not null or before > prints_from, false);
    first_print text := coalesce(of_fingerprint, '');
    last_print text := coalesce(of_fingerprint, '~');
    reach integer := case when is_printed then (walk + 1) / 2 else walk end;  -- failed jobs lie far apart in the table
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
            select j.* from millpond.jobs j
            where j.id = any(job_ids) and j.id >= least and j.id <= greatest and j.id < before and j.id >= low
                and (of_tenant is null or j.tenant = of_tenant)
            order by j.id desc;
    elsif is_printed and of_tenant is not null then
        open newest no scroll for
            select j.* from millpond.jobs j
            where (j.tenant, j.id) < (of_tenant, before) and (j.tenant, j.id) >= (of_tenant, low)
                and j.id < before and j.id >= low
                and j.fingerprint >= first_print and j.fingerprint <= last_print
            order by j.tenant desc, j.id desc limit reach;
    elsif of_fingerprint is not null then
        open newest no scroll for
            select j.* from millpond.jobs j
            where j.fingerprint >= of_fingerprint and j.fingerprint <= of_fingerprint and j.id < before and j.id >= low
            order by j.fingerprint desc, j.id desc limit reach;
    elsif is_printed then
        open newest no scroll for
            select j.* from millpond.jobs j
            where j.fingerprint is not null and j.id < before and j.id >= low
            order by j.id desc limit reach;
    elsif of_account is not null then
        open newest no scroll for
            select j.* from millpond.jobs j
            where (j.tenant, j.account, j.id) < (of_tenant, of_account, before)
                and (j.tenant, j.account, j.id) >= (of_tenant, of_account, low)
                and j.account >= of_account and j.account <= of_account and j.id < before and j.id >= low
            order by j.tenant desc, j.account desc, j.id desc limit reach;
    elsif of_tenant is not null then
        open newest no scroll for
            select j.* from millpond.jobs j
            where (j.tenant, j.id) < (of_tenant, before) and (j.tenant, j.id) >= (of_tenant, low)
                and j.id < before and j.id >= low
            order by j.tenant desc, j.id desc limit reach;
    else
        open newest no scroll for
            select j.* from millpond.jobs j
            where j.id < before and j.id >= low
            order by j.id desc limit reach;
    end if;

    is_match := true;
    matched := 0;
    examined := 0;
    loop
        fetch newest into job;
        exit when not found;
        examined := examined + 1;
        if coalesce(job.kind = of_kind, true) and coalesce(starts_with(job.kind, kinds_like), true)
            and coalesce(job.state = of_state, true) and coalesce(job.phase = of_phase, true)
            and (of_outcome is null or job.outcome is not distinct from of_outcome)
            and (of_stage is null or job.stage is not distinct from of_stage)
            and coalesce(job.account = of_account, true)
            and (of_fingerprint is null or job.fingerprint is not distinct from of_fingerprint)
            and (of_tags is null or coalesce(job.tags @> of_tags, false))
            and (of_error is null or job.error ->> 'code' is not distinct from of_error)
        then
            matched := matched + 1;
            if matched <= shown then
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
                tags := job.tags;
                return next;
            end if;
            exit when matched = row_limit;
        end if;
        if is_walk and examined = reach then
            bottom := job.id;
        end if;
    end loop;
    close newest;
    is_match := false;
    id := bottom;
    return next;
end $$;

-- name: summaries :many
select is_match, matched, examined, id, tenant, account, kind, state, phase, outcome, stage, progress, attempts, priority, price,
    captured, created_at, run_at, started_at, finished_at, fingerprint, error_code, error_message, is_canceling,
    tags
from millpond.view_summaries(
    $1, $2, $3, $4, $5::uuid[], $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18::jsonb
);

-- name: prints_from :one
-- The lowest id of a job that has a fingerprint if it failed. Database: both.
select millpond.first_id(applied_at) as id from millpond.migrations where number = 12;

-- name: ends :one
-- Whether in every lifecycle jobs in a state of this name have not ended (`is_live`), or have failed (`is_failed`).
-- Database: both.
select coalesce(bool_and(phase <> 'ended'), false) as is_live, coalesce(bool_and(outcome in ('failed', 'expired', 'blocked')), false) as is_failed
from millpond.lifecycle_states where state = $1;

-- name: crowd :one
-- How many jobs have not ended, counted up to $1. Database: central.
select count(*) as jobs from (select from millpond.dispatches limit $1) d;

-- name: live :many
-- Walks over the jobs that have not ended, below an id. Returns those that may match, and the one at which the walk
-- stopped. Database: central.
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
-- The jobs that workers hold, below an id. Database: central.
select d.job_id, d.tenant
from millpond.leases l
cross join lateral (
    select d.job_id, d.tenant, d.account from millpond.dispatches d
    where d.job_id = any(l.job_ids) and d.lease_token = l.token and d.job_id < $1 and d.job_id >= $2
) d
where ($3::text is null or d.tenant = $3) and ($4::text is null or d.account = $4)
order by d.job_id desc limit $5;

-- name: workers :many
-- The workers that hold these jobs. Database: central.
select d.job_id, l.worker
from millpond.dispatches d join millpond.leases l on l.token = d.lease_token
where d.job_id = any($1::uuid[]);
