-- Sessions: sign-ins to the dashboard. Database: central.
-- Invariants: only the digest of a cookie is stored; a session may do what its key may do at the moment, and no more.

-- name: open :one
insert into millpond.sessions (digest, key_id, address, created_at, last_seen_at, expires_at)
select $1, $2, $3, t.present, t.present, t.present + $4::interval from millpond.clock() as t(present)
returning expires_at;

-- name: find :maybe
-- A session and its key. One clock decides whether it is over, and whether `last_seen_at` must be written.
select s.expires_at as ends_at, s.last_seen_at < t.present - $3::interval as is_stale,
    s.expires_at <= t.present or s.last_seen_at + $2::interval <= t.present as is_over,
    k.id, k.scope, k.tenant, k.account, k.name, k.rate_limit, k.revoked_at is not null as is_revoked, k.expires_at,
    extract(epoch from k.expires_at - t.present)::float8 as seconds_left
from millpond.sessions s
join millpond.keys k on k.id = s.key_id
cross join millpond.clock() as t(present)
where s.digest = $1;

-- name: touch :exec
-- Skips a session that another request has updated a moment ago.
update millpond.sessions s set last_seen_at = millpond.clock()
where s.digest = $1 and s.last_seen_at < millpond.clock() - $2::interval;

-- name: close :maybe
delete from millpond.sessions s where s.digest = $1 returning s.key_id;

-- name: prune :many
delete from millpond.sessions s
where s.ctid = any(array(
    select ctid from millpond.sessions where expires_at < millpond.clock()
    order by expires_at limit $1 for update skip locked
))
returning s.key_id;
