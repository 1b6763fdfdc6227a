-- Lease_requests: requests for TikTok accounts. Database: tenant.
-- Invariant: a request is settled once. If it is fulfilled, the account is written in the same statement.

-- name: make :maybe
-- No row: the key has made one already.
insert into millpond.partner_lease_requests (
    id, tenant, account, project_id, wish, base, key, request, created_at
)
select $1, $2, $3, $4, $5::jsonb, $6, $7, $8::jsonb, millpond.clock()
on conflict (tenant, account, key) where key is not null do nothing
returning id, tenant, project_id, status, wish, base, reason, created_at, settled_at, null::uuid as social_account_id;

-- name: keyed :maybe
-- What a key has made, in its first state, and whether the request is the same.
select id, tenant, project_id, 'pending' as status, wish, base, null::text as reason, created_at,
    null::timestamptz as settled_at, null::uuid as social_account_id, request = $4::jsonb as is_same
from millpond.partner_lease_requests where tenant = $1 and account = $2 and key = $3;

-- name: read :maybe
-- For its client, with the project it is for, or for an operator, without one.
select l.id, l.tenant, l.project_id, l.status, l.wish, l.base, l.reason, l.created_at, l.settled_at, s.id as social_account_id
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select l.* from millpond.partner_lease_requests l
    where l.id = $2 and l.tenant = c.tenant and ($3::uuid is null or l.project_id = $3) limit 1
) l
left join lateral (
    select s.id from millpond.partner_social_accounts s where s.lease_id = l.id and s.tenant = c.tenant limit 1
) s on true;

-- name: list :many
-- Newest first, below an id.
select l.id, l.tenant, l.project_id, l.status, l.wish, l.base, l.reason, l.created_at, l.settled_at, s.id as social_account_id
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select l.* from millpond.partner_lease_requests l
    where l.tenant = c.tenant and l.project_id = $2 and l.id < $3
    order by l.id desc limit $4
) l
left join lateral (
    select s.id from millpond.partner_social_accounts s where s.lease_id = l.id and s.tenant = c.tenant limit 1
) s on true
order by l.id desc;

-- name: list_of_status :many
-- Those of a tenant, for operators: newest first, below an id.
select l.id, l.tenant, l.project_id, l.status, l.wish, l.base, l.reason, l.created_at, l.settled_at, s.id as social_account_id
from (
    select l.* from millpond.partner_lease_requests l
    where l.tenant = $1 and l.status = $2 and l.id < $3 order by l.id desc limit $4
) l
left join lateral (
    select s.id from millpond.partner_social_accounts s where s.lease_id = l.id limit 1
) s on true
order by l.id desc;

-- name: given :many
-- Whether an account is assigned already, to any tenant. Within one database an index ensures that there is at most one
-- assignment; this query is run on all of them.
select s.id as social_account_id from millpond.partner_social_accounts s
where s.platform = 'tiktok' and lower(s.handle) = lower($1);

-- name: fulfil :maybe
-- No row: the request is no longer pending. If another project has the account, is_given is false, and the request stays
-- pending.
with waiting as materialized (
    select l.id, l.tenant, l.project_id from millpond.partner_lease_requests l
    where l.id = $2 and l.tenant = $1 and l.status = 'pending' for update
),
given as (
    insert into millpond.partner_social_accounts (
        id, tenant, project_id, lease_id, platform, handle, display_name, created_at
    )
    select $3, w.tenant, w.project_id, w.id, 'tiktok', $4, $5, millpond.clock() from waiting w
    on conflict do nothing
    returning lease_id, created_at
),
settled as (
    update millpond.partner_lease_requests l set status = 'fulfilled', settled_at = g.created_at
    from given g where l.id = $2 and l.id = g.lease_id
)
select w.id as lease_id, exists (select from given) as is_given from waiting w;

-- name: reject :maybe
-- No row: the request is no longer pending.
update millpond.partner_lease_requests l set status = 'rejected', reason = $3, settled_at = millpond.clock()
where l.id = $2 and l.tenant = $1 and l.status = 'pending'
returning l.id as lease_id;
