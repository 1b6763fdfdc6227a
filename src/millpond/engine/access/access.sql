-- Access: keys, tenants, the secret that signs tokens, and the audit. Database: central.
-- Invariants: only the digest of a key is stored; a revoked key stays revoked; the audit is append-only, and a record
-- is written in the transaction of what it records.

-- function: audit_page
-- A page of the audit, the newest first, below an id and not before a time. There are indexes by tenant and by actor;
-- other matches may be rare, so the function walks over at most `walk` records, and returns the one at which it stops.
create or replace function millpond.audit_page(
    tenant text, actor text, action text, subject text, before uuid, since timestamptz, row_limit integer, walk integer
) returns table (is_match boolean, is_stop boolean, line millpond.audit)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    newest refcursor;
    oldest uuid := millpond.first_id(coalesce(audit_page.since, timestamptz 'epoch'));
    matched integer := 0;
    walked integer := 0;
begin
    if audit_page.actor is not null then
        open newest no scroll for
            select a.* from millpond.audit a where a.actor = audit_page.actor and a.id < before and a.id >= oldest
            order by a.id desc limit walk;
    elsif audit_page.tenant is not null then
        open newest no scroll for
            select a.* from millpond.audit a where a.tenant = audit_page.tenant and a.id < before and a.id >= oldest
            order by a.id desc limit walk;
    else
        open newest no scroll for
            select a.* from millpond.audit a where a.id < before and a.id >= oldest order by a.id desc limit walk;
    end if;
    loop
        fetch newest into line;
        exit when line.id is null;
        walked := walked + 1;
        is_stop := walked = walk;
        is_match := (audit_page.tenant is null or coalesce(line.tenant = audit_page.tenant, false))
            and (audit_page.subject is null or coalesce(line.subject = audit_page.subject, false))
            and (audit_page.action is null or starts_with(line.action, audit_page.action));
        if is_match or is_stop then
            matched := matched + 1;
            return next;
            exit when matched = row_limit;
        end if;
    end loop;
    close newest;
end $$;

-- function: audit_refunded
-- Audits a refund, once, however often it is called. The id is made of the time of the refund and its reference. The
-- previous version made another id: its record is in the same millisecond, or in the next.
create or replace function millpond.audit_refunded(
    actor text, tenant text, job_id uuid, amount bigint, reason text, reference text, at timestamptz
) returns void
language sql as $$
    insert into millpond.audit (id, at, actor, action, tenant, subject, data)
    select millpond.id_at(at, '8' || left(md5(tenant || ':' || reference), 15)),
        at, actor, 'job.refunded', tenant, millpond.typeid('job', job_id),
        jsonb_build_object('amount', amount, 'reason', reason)
    where not exists (
        select from millpond.audit a
        where a.tenant = audit_refunded.tenant and a.id >= millpond.first_id(audit_refunded.at)
            and a.id < millpond.first_id(audit_refunded.at + interval '2 milliseconds') and a.at = audit_refunded.at
            and a.subject = millpond.typeid('job', job_id) and a.action = 'job.refunded'
    )
    on conflict (id) do nothing
$$;

-- name: find_keys :many
-- The keys with these digests, and for how many seconds from now each is valid.
select k.digest, k.id, k.scope, k.tenant, k.account, k.rate_limit, k.revoked_at is not null as is_revoked, k.expires_at,
    extract(epoch from k.expires_at - millpond.clock())::float8 as seconds_left
from millpond.keys k where k.digest = any($1::bytea[]);

-- name: make_key :one
insert into millpond.keys (id, digest, hint, scope, tenant, account, name, rate_limit, lifetime, created_at, expires_at)
select millpond.uuid7(), $1, $2, $3, $4, $5, $6, $7::integer, $8::interval, t.present, t.present + $8::interval
from millpond.clock() as t(present)
returning id, hint, scope, tenant, account, name, rate_limit, created_at, expires_at, revoked_at, last_used_at;

-- name: lock_key :maybe
-- A key of this tenant and account, or of any if none is given.
select k.id, k.scope, k.tenant, k.account, k.name, k.rate_limit, k.lifetime, k.revoked_at is not null as is_revoked,
    coalesce(k.expires_at <= millpond.clock(), false) as is_expired
from millpond.keys k
where k.id = $1 and ($2::text is null or k.tenant = $2) and ($3::text is null or k.account = $3) for update;

-- name: retire_key :one
-- Makes a key expire after this time, unless it expires before.
update millpond.keys k set expires_at = least(k.expires_at, millpond.clock() + $2::interval) where k.id = $1
returning id, hint, scope, tenant, account, name, rate_limit, created_at, expires_at, revoked_at, last_used_at;

-- name: revoke_key :one
update millpond.keys k set revoked_at = coalesce(k.revoked_at, millpond.clock()) where k.id = $1
returning id, hint, scope, tenant, account, name, rate_limit, created_at, expires_at, revoked_at, last_used_at;

-- name: key :maybe
-- A key of this tenant, or of any if none is given.
select id, hint, scope, tenant, account, name, rate_limit, created_at, expires_at, revoked_at, last_used_at
from millpond.keys k where k.id = $1 and ($2::text is null or k.tenant = $2);

-- name: list_keys :many
-- The newest first, below an id.
select id, hint, scope, tenant, account, name, rate_limit, created_at, expires_at, revoked_at, last_used_at
from millpond.keys k where ($1::text is null or k.tenant = $1) and k.id < $2
order by k.id desc
limit $3;

-- name: touch_keys :exec
-- Skips keys that another process has updated a moment ago.
update millpond.keys k set last_used_at = millpond.clock()
where k.id = any($1::uuid[]) and (k.last_used_at is null or k.last_used_at < millpond.clock() - $2::interval);

-- name: make_tenant :one
with made as (
    insert into millpond.tenants (tenant, created_at) values ($1, millpond.clock())
    on conflict (tenant) do nothing
    returning tenant
)
select exists (select from made) as is_new;

-- name: tenant :maybe
select tenant, created_at from millpond.tenants where tenant = $1;

-- name: list_tenants :many
select tenant, created_at from millpond.tenants where tenant > $1 and ($2::text is null or tenant = $2)
order by tenant
limit $3;

-- name: list_accounts :many
select tenant, account, available, held, active, active_max from millpond.accounts where tenant = $1 and account > $2
order by account
limit $3;

-- name: write_audit :exec
insert into millpond.audit (id, at, actor, action, tenant, subject, data)
values (millpond.uuid7(), millpond.clock(), $1, $2, $3, $4, $5::jsonb);

-- name: list_audit :many
select is_match, is_stop, id, at, actor, action, tenant, subject, data
from millpond.audit_page($1, $2, $3, $4, $5, $6::timestamptz, $7, $8) p, lateral (select (p.line).*) l;

-- name: secret :maybe
select secret, extract(epoch from millpond.clock())::float8 as present from millpond.secrets where name = $1;

-- name: make_secret :exec
insert into millpond.secrets (name, secret) values ($1, $2) on conflict do nothing;
