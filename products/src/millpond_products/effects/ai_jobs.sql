-- Ai_jobs: what the jobs of the effects contract need beside the engine. Database: tenant.

-- name: cap :exec
-- Sets a user's cap with the first job, unless an operator has set one. From then on, only operators change it.
with first as (
    insert into millpond.effects_users (tenant, account, seen_at) values ($1, $2, millpond.clock())
    on conflict do nothing
    returning tenant, account
)
select millpond.default_cap(f.tenant, f.account, $3::integer) from first f;
