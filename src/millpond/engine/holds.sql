-- Holds: credits that are held for jobs, and the wallets they are taken from.

-- function: age_holds
-- How many of these jobs have credits held for them, and how many, by how old the hold is: between which of these ages, in
-- seconds and in order. The plan is made once: to make one for ten thousand ids takes longer than to look at them.
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
    select width_bucket(date_part('epoch', present - h.at), ages), count(*), sum(h.price)::bigint
    from (
        select j.price, coalesce(
            case when j.run > 1 then (
                select e.at from millpond.entries e where e.job_id = j.id and e.run = j.run and e.type = 'hold' limit 1
            ) end,
            j.created_at
        ) as at
        from millpond.jobs j
        where j.id = any(job_ids) and j.id >= low and j.id <= high and j.price > 0 and j.phase <> 'ended'
    ) h
    group by 1;
end $$;

-- name: live :one
-- So many jobs that have not ended, in the order in which they were born, after an id; those of one tenant, if one is
-- given. The last one that was looked at, where there may be more: the next page goes on from there. Home: central.
select coalesce(array_agg(d.job_id) filter (where d.is_own), '{}') as job_ids,
    case when count(*) = $3 then (array_agg(d.job_id))[$3] end as stop
from (
    select d.job_id, $2::text is null or d.tenant = $2 as is_own from millpond.dispatches d
    where d.job_id > $1 order by d.job_id limit $3::integer
) d;

-- name: priced :many
-- What is held for the first of these jobs, and since when: since their birth, or since they were last retried.
-- Home: tenant.
select j.id as job_id, j.tenant, j.account, j.kind, j.state, j.phase, j.price, coalesce(h.at, j.created_at) as held_at
from millpond.jobs j
left join lateral (
    select e.at from millpond.entries e where j.run > 1 and e.job_id = j.id and e.run = j.run and e.type = 'hold' limit 1
) h on true
where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
    and j.price > 0 and j.phase <> 'ended'
order by j.id limit $2;

-- name: aged :many
-- The holds of these jobs by age. Home: tenant.
select place, jobs, credits from millpond.age_holds($1::uuid[], $2::float8[]);

-- name: wallets :many
-- A page of wallets by tenant and name: from a place on, up to another, and after the last of the page before. Home: tenant.
select a.tenant, a.account, a.available, a.held, a.active, a.active_max from millpond.accounts a
where (a.tenant, a.account) >= ($1, $2) and (a.tenant, a.account) < ($3, $4) and (a.tenant, a.account) > ($5, $6)
order by a.tenant, a.account
limit $7;
