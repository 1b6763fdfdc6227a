-- Views: the reads for clients. Database: tenant.
-- Invariants: tenants are isolated twice, and each of the two is sufficient alone. The first is the `where` of each
-- function. The second is row-level security: a function begins by naming its callers, in a setting of its own
-- transaction, and the role that reads for clients sees no other rows (see millpond.raise_wall). For an operator of all
-- tenants no caller is named, and that role is not used.

-- function: view_jobs
-- Jobs for many callers of several tenants at once. The owner of each job must still be compared with the caller that
-- requested it.
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
-- A page of jobs, the newest first, below an id. Matches of the filters may be rare, and no index covers states: it
-- would cost each change of state. So the function walks over at most `walk` jobs. The job at which it stops is
-- returned, match or not: the next page continues there. It also stops when the JSON of the page has reached 4 MiB, the
-- limit that views.py calls BYTES_MAX. `job_ids` names the candidates where they are known, and only they are looked at.
create or replace function millpond.view_page(
    tenant text, account text, before uuid, kind text, state text, phase text, row_limit integer, walk integer,
    tags jsonb default null, job_ids uuid[] default null
) returns table (is_match boolean, is_stop boolean, job millpond.jobs)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', view_page.tenant, true);
    newest refcursor;
    matched integer := 0;
    walked integer := 0;
    bytes bigint := 0;
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    if job_ids is not null then
        open newest no scroll for
            select j.* from millpond.jobs j
            where j.id = any(job_ids) and j.id >= low and j.id <= high and j.id < before
                and (view_page.tenant is null or j.tenant = view_page.tenant)
            order by j.id desc;
    elsif view_page.account is not null then
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
        is_stop := walked = walk and job_ids is null;
        is_match := coalesce(job.kind = view_page.kind, true) and coalesce(job.state = view_page.state, true)
            and coalesce(job.phase = view_page.phase, true) and coalesce(job.account = view_page.account, true)
            and (view_page.tags is null or coalesce(job.tags @> view_page.tags, false));
        if is_match then
            bytes := bytes + octet_length(job.input::text) + coalesce(octet_length(job.output::text), 0)
                + coalesce(octet_length(job.error::text), 0);
            is_stop := is_stop or bytes >= 4 * 1024 * 1024;
        end if;
        if is_match or is_stop then
            matched := matched + 1;
            return next;
            exit when matched = row_limit or is_stop;
        end if;
    end loop;
    close newest;
end $$;

-- function: tagged_jobs
-- The newest jobs that have these tags, and maybe more, below an id, by the index on tags. It runs as the engine: the
-- role for clients, whose rows a policy selects, cannot use that index. It returns only ids; the jobs themselves are
-- read by the other functions, which isolate tenants. A tag may be on one job or on all of them, so the plan is made
-- for each call.
create or replace function millpond.tagged_jobs(of_tenant text, of_tags jsonb, before uuid, low uuid, row_limit integer)
returns table (job_id uuid)
language plpgsql stable set plan_cache_mode = force_custom_plan set enable_seqscan = off as $$
begin
    return query
    select j.id from millpond.jobs j
    where j.tags @> of_tags and j.tags is not null and j.id < before and j.id >= low
        and (of_tenant is null or j.tenant = of_tenant)
    order by j.id desc limit row_limit;
end $$;

-- function: view_events
-- The events of a job after a number, in order, optionally of one type. No row means that there is no such job; a row
-- without a number, that there are no such events. The last event is the one with which their JSON has reached 4 MiB.
create or replace function millpond.view_events(
    tenant text, account text, job_id uuid, after integer, of_type text, row_limit integer
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
        select e.seq, e.at, e.type, e.state, e.data
        from (
            select e.seq, e.at, e.type, e.state, e.data,
                sum(octet_length(e.data::text)) over (
                    order by e.seq rows between unbounded preceding and 1 preceding
                ) as bytes_before
            from (
                select e.seq, e.at, e.type, e.state, e.data from millpond.events e
                where e.job_id = view_events.job_id and e.tenant = j.tenant and e.seq > after
                    and (of_type is null or e.type = of_type)
                order by e.seq limit row_limit
            ) e
        ) e
        where coalesce(e.bytes_before, 0) < 4 * 1024 * 1024
        order by e.seq
    ) e on true;
end $$;

-- function: view_text
-- The text that a job has emitted so far, and its position in the job's stream. That of a job that has ended as blocked
-- is not returned. No row means that there is no such job.
create or replace function millpond.view_text(tenant text, account text, job_id uuid)
returns table (seq integer, number integer, at timestamptz, epoch integer, content text)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', view_text.tenant, true);
begin
    return query
    select j.events, coalesce(c.number, 0), c.at, c.epoch, coalesce(c.content, '')
    from (
        select j.id, j.tenant, j.events, j.outcome from millpond.jobs j
        where j.id = view_text.job_id and (view_text.tenant is null or j.tenant = view_text.tenant)
            and (view_text.account is null or j.account = view_text.account)
        limit 1
    ) j
    cross join lateral (
        select max(c.number) as number, max(c.at) as at, max(c.epoch) as epoch,
            string_agg(c.text, '' order by c.after, c.number) as content
        from millpond.chunks c
        where c.job_id = view_text.job_id and c.tenant = j.tenant and j.outcome is distinct from 'blocked'
    ) c;
end $$;

-- function: view_last_chunk
-- The position of the last chunk of a job, if it has any.
create or replace function millpond.view_last_chunk(tenant text, account text, job_id uuid)
returns table (seq integer, number integer)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', view_last_chunk.tenant, true);
begin
    return query
    select c.after, c.number
    from millpond.jobs j
    cross join lateral (
        select c.after, c.number from millpond.chunks c
        where c.job_id = view_last_chunk.job_id and c.tenant = j.tenant order by c.after desc, c.number desc limit 1
    ) c
    where j.id = view_last_chunk.job_id and (view_last_chunk.tenant is null or j.tenant = view_last_chunk.tenant)
        and (view_last_chunk.account is null or j.account = view_last_chunk.account);
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
-- The entries of an account, the newest first, below a number.
create or replace function millpond.view_entries(tenant text, account text, before bigint, row_limit integer)
returns setof millpond.entries
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', view_entries.tenant, true);
begin
    return query
    select e.* from millpond.entries e
    where e.tenant = view_entries.tenant and e.account = view_entries.account and e.seq < before
    order by e.seq desc limit row_limit;
end $$;

-- name: jobs :many
select {jobs.fields}, input, output, error
from millpond.view_jobs($1::text[], $2::uuid[]);

-- name: page :many
select is_match, is_stop, {jobs.fields}, input, output, error
from millpond.view_page($1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb, $10::uuid[]) p, lateral (select (p.job).*) j;

-- name: tagged :many
select job_id from millpond.tagged_jobs($1, $2::jsonb, $3, $4, $5);

-- name: events :many
select seq, at, type, state, data from millpond.view_events($1, $2, $3, $4, $5, $6);

-- name: text :maybe
select seq, number, at, epoch, content from millpond.view_text($1, $2, $3);

-- name: last_chunk :maybe
select seq, number from millpond.view_last_chunk($1, $2, $3);

-- name: wallet :maybe
select available, held, active, active_max from millpond.view_wallet($1, $2);

-- name: entries :many
select seq, at, type, available, held, outside, available_after, held_after, job_id, run, reference, reason
from millpond.view_entries($1, $2, $3, $4);
