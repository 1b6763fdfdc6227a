-- Views: what clients read. Home: tenant.
-- Invariants: two walls stand between tenants, and each holds alone. The first is the `where` of each function. The
-- second is row-level security: a function begins by naming its callers, for its own transaction only, and the role
-- that reads for clients sees no other rows (see millpond.raise_wall). An operator of every tenant names nobody, and
-- does not read by that role.

-- function: view_jobs
-- Jobs for many callers of many tenants at once. Whose job it is must still be compared with who asked for it.
create or replace function millpond.view_jobs(tenants text[], job_ids uuid[]) returns setof millpond.jobs
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', array_to_string(tenants, ','), true);
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    return query
    select j.* from millpond.jobs j
    where j.id = any(job_ids) and j.id >= low and j.id <= high and (tenants is null or j.tenant = any(tenants));
end $$;

-- function: view_page
-- A page of jobs, the newest first, below an id. What the filters ask for may be rare, and no index knows of it: states
-- change, and an index of them would cost each change. So it walks over so many jobs and no further. The job at which
-- it stops is told, match or not: the next page goes on from there.
create or replace function millpond.view_page(
    tenant text, account text, before uuid, kind text, state text, phase text, most integer, walk integer
) returns table (is_match boolean, is_stop boolean, job millpond.jobs)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', view_page.tenant, true);
    newest refcursor;
    told integer := 0;
    walked integer := 0;
begin
    if view_page.account is not null then
        open newest no scroll for
            select j.* from millpond.jobs j
            where j.tenant = view_page.tenant and j.account = view_page.account and j.id < before
            order by j.id desc limit walk;
    elsif view_page.tenant is not null then
        open newest no scroll for
            select j.* from millpond.jobs j where j.tenant = view_page.tenant and j.id < before
            order by j.id desc limit walk;
    else
        open newest no scroll for
            select j.* from millpond.jobs j where j.id < before order by j.id desc limit walk;
    end if;
    loop
        fetch newest into job;
        exit when job.id is null;
        walked := walked + 1;
        is_stop := walked = walk;
        is_match := coalesce(job.kind = view_page.kind, true) and coalesce(job.state = view_page.state, true)
            and coalesce(job.phase = view_page.phase, true);
        if is_match or is_stop then
            told := told + 1;
            return next;
            exit when told = most;
        end if;
    end loop;
    close newest;
end $$;

-- function: view_events
-- The events of a job after a number, in order; of one type, if one is given. No row: no such job. A row without a
-- number: nothing happened since.
create or replace function millpond.view_events(
    tenant text, account text, job_id uuid, after integer, of_type text, most integer
) returns table (seq integer, at timestamptz, type text, state text, data jsonb)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', view_events.tenant, true);
begin
    return query
    select e.seq, e.at, e.type, e.state, e.data
    from (
        select j.id, j.tenant from millpond.jobs j
        where j.id = view_events.job_id and (view_events.tenant is null or j.tenant = view_events.tenant)
            and (view_events.account is null or j.account = view_events.account)
        limit 1
    ) j
    left join lateral (
        select e.seq, e.at, e.type, e.state, e.data from millpond.events e
        where e.job_id = view_events.job_id and e.tenant = j.tenant and e.seq > after
            and (of_type is null or e.type = of_type)
        order by e.seq limit most
    ) e on true;
end $$;

-- function: view_wallet
create or replace function millpond.view_wallet(tenant text, account text)
returns table (available bigint, held bigint, active integer, active_max integer)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    callers text := set_config('millpond.callers', tenant, true);
begin
    return query select w.available, w.held, w.active, w.active_max from millpond.wallet(tenant, account) w;
end $$;

-- function: view_entries
-- The newest first, below a number.
create or replace function millpond.view_entries(tenant text, account text, before bigint, most integer)
returns setof millpond.entries
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', view_entries.tenant, true);
begin
    return query
    select e.* from millpond.entries e
    where e.tenant = view_entries.tenant and e.account = view_entries.account and e.seq < before
    order by e.seq desc limit most;
end $$;

-- name: jobs :many
select id, tenant, account, kind, lifecycle, queue, state, phase, outcome, priority, run, epoch, attempts, events, price,
    captured, progress::numeric::float8, stage, created_at, run_at, expires_at, started_at, finished_at,
    cancel_requested_at, retry_of, input, output, error
from millpond.view_jobs($1::text[], $2::uuid[]);

-- name: page :many
select is_match, is_stop, id, tenant, account, kind, lifecycle, queue, state, phase, outcome, priority, run, epoch, attempts,
    events, price, captured, progress::numeric::float8, stage, created_at, run_at, expires_at, started_at, finished_at,
    cancel_requested_at, retry_of, input, output, error
from millpond.view_page($1, $2, $3, $4, $5, $6, $7, $8) p, lateral (select (p.job).*) j;

-- name: events :many
select seq, at, type, state, data from millpond.view_events($1, $2, $3, $4, $5, $6);

-- name: wallet :maybe
select available, held, active, active_max from millpond.view_wallet($1, $2);

-- name: entries :many
select seq, at, type, available, held, outside, available_after, held_after, job_id, run, reference, reason
from millpond.view_entries($1, $2, $3, $4);
