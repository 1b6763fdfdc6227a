-- Ai_jobs: the jobs of the effects contract, as far as the engine does not tell of them itself. Home: tenant.

-- name: cap :exec
-- A user who comes for the first time is given a cap, unless an operator has set one; later it is nobody's but theirs.
with first as (
    insert into millpond.effects_users (tenant, account, seen_at) values ($1, $2, millpond.clock())
    on conflict do nothing
    returning tenant, account
)
insert into millpond.accounts as a (tenant, account, active_max)
select tenant, account, $3::integer from first
on conflict (tenant, account) do update set active_max = coalesce(a.active_max, excluded.active_max);

-- name: keyed :maybe
-- The job that answers a key, and the request that made it.
select k.job_id, k.request from millpond.idempotency k where k.key = $3 and k.scope = $2 and k.tenant = $1;
