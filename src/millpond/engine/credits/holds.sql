-- Holds: credits that are held for jobs, and the wallets they are taken from.

-- function: age_holds
-- How many of these jobs have a hold, and the sum of their holds, by age group. `ages` are the bounds between the
-- groups, in seconds and ascending. The plan is made once: planning for ten thousand ids takes longer than reading
-- them.
create or replace function millpond.age_holds(job_ids uuid[], ages float8[])
returns table (place integer, jobs bigint, credits bigint)
language plpgsql stable
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    return query
    select width_bucket(date_part('epoch', present - h.at), ages), count(*), sum(h.held)::bigint
    from (
        select {holds.held} as held, coalesce(
            case when j.run > 1 then (
                select e.at from millpond.entries e where e.job_id = j.id and e.run = j.run and e.type = 'hold' limit 1
            ) end,
            j.created_at
        ) as at
        from millpond.jobs j
        where j.id = any(job_ids) and j.id >= low and j.id <= high and (j.price > 0 or j.depth is not null) and j.phase <> 'ended'
    ) h
    where h.held > 0
    group by 1;
end $$;

-- fragment: held
-- What is held for a job that has not ended: its price, and what is left of its budget; nothing if a budget pays for it.
case
    when j.depth is null then j.price::bigint
    when exists (select from millpond.reservations r where r.job_id = j.id and r.captured is null) then 0
    else j.price + coalesce((
        select b.amount - b.spent from millpond.budgets b where b.job_id = j.id and b.run = j.run and b.closed_at is null
    ), 0)
end

-- name: live :one
-- The next jobs after an id that have not ended, in the order of creation; those of one tenant, if one is given. `stop`
-- is the last id that was examined, if there may be more: the next page starts after it. Database: central.
select coalesce(array_agg(d.job_id) filter (where d.is_own), '{}') as job_ids,
    case when count(*) = $3 then (array_agg(d.job_id))[$3] end as stop
from (
    select d.job_id, $2::text is null or d.tenant = $2 as is_own from millpond.dispatches d
    where d.job_id > $1 order by d.job_id limit $3::integer
) d;

-- name: priced :many
-- The holds of the first of these jobs, and their start: the creation of the job, or its last retry in place. Database:
-- tenant.
select j.job_id, j.tenant, j.account, j.kind, j.state, j.phase, j.held as price, coalesce(h.at, j.created_at) as held_at
from (
    select j.id as job_id, j.tenant, j.account, j.kind, j.state, j.phase, j.run, j.created_at, {holds.held} as held
    from millpond.jobs j
    where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
        and (j.price > 0 or j.depth is not null) and j.phase <> 'ended'
) j
left join lateral (
    select e.at from millpond.entries e where j.run > 1 and e.job_id = j.job_id and e.run = j.run and e.type = 'hold' limit 1
) h on true
where j.held > 0
order by j.job_id limit $2;

-- name: aged :many
-- The holds of these jobs by age. Database: tenant.
select place, jobs, credits from millpond.age_holds($1::uuid[], $2::float8[]);

-- name: wallets :many
-- A page of wallets by tenant and account: between two bounds, and after the last one of the page before. Database:
-- tenant.
select a.tenant, a.account, a.available, a.held, a.active, a.active_max from millpond.accounts a
where (a.tenant, a.account) >= ($1, $2) and (a.tenant, a.account) < ($3, $4) and (a.tenant, a.account) > ($5, $6)
order by a.tenant, a.account
limit $7;
