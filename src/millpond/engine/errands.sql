-- Errands: what operators have done to many jobs at once. Home: central.
-- Invariants: one process at a time is at an errand, by a lease that runs out; what it has in hand is written before it
-- acts, so whoever takes over acts on no others; what is counted is counted with the end of a batch.

-- name: order :maybe
-- No row: the key was used before.
insert into millpond.errands (
    id, tenant, actor, key, digest, action, filter, arguments, estimate, place, created_at, touched_at
)
select millpond.uuid7(), $1, $2, $3, $4, $5, $6::jsonb, $7::jsonb, $8::bigint, $9, t.present, t.present
from millpond.clock() as t(present)
on conflict (actor, key) where key is not null do nothing
returning id, tenant, actor, action, filter, arguments, status as state, place, in_hand, ends, looked, matched, done, refused, refusals,
    estimate, has_file, result, error, abort_asked_at is not null as is_aborting, created_at, started_at, finished_at;

-- name: known :maybe
-- What was ordered with a key, and the digest of it.
select digest, id from millpond.errands where actor = $1 and key = $2;

-- name: read :maybe
-- One errand; of this tenant, if one is given.
select id, tenant, actor, action, filter, arguments, status as state, place, in_hand, ends, looked, matched, done, refused, refusals,
    estimate, has_file, result, error, abort_asked_at is not null as is_aborting, created_at, started_at, finished_at
from millpond.errands where id = $1 and ($2::text is null or tenant = $2);

-- name: list :many
-- The newest first, below an id.
select id, tenant, actor, action, filter, arguments, status as state, place, in_hand, ends, looked, matched, done, refused, refusals,
    estimate, has_file, result, error, abort_asked_at is not null as is_aborting, created_at, started_at, finished_at
from millpond.errands where ($1::text is null or tenant = $1) and id < $2
order by id desc limit $3;

-- name: abort :maybe
-- One that nobody has begun is over at once; one that is under way is told. No row: it is over, or there is none.
update millpond.errands e
set abort_asked_at = coalesce(e.abort_asked_at, millpond.clock()),
    status = case e.status when 'waiting' then 'aborted' else e.status end,
    finished_at = case e.status when 'waiting' then millpond.clock() end
where e.id = $1 and ($2::text is null or e.tenant = $2) and e.finished_at is null
returning e.id;

-- name: take :maybe
-- The one of these that has waited longest and that nobody is at.
update millpond.errands e
set status = 'running', lease_token = $1, lease_until = millpond.clock() + $2::interval, touched_at = millpond.clock(),
    started_at = coalesce(e.started_at, millpond.clock())
where e.id = (
    select o.id from millpond.errands o
    where o.finished_at is null and o.action = any($3::text[])
        and (o.lease_until is null or o.lease_until <= millpond.clock())
    order by o.touched_at limit 1 for update skip locked
)
returning id, tenant, actor, action, filter, arguments, status as state, place, in_hand, ends, looked, matched, done, refused, refusals,
    estimate, has_file, result, error, abort_asked_at is not null as is_aborting, created_at, started_at, finished_at;

-- name: glance :maybe
-- Whether it must stop. No row: somebody else is at it.
select abort_asked_at is not null as is_aborting from millpond.errands where id = $1 and lease_token = $2;

-- name: hold :maybe
update millpond.errands set lease_until = millpond.clock() + $3::interval where id = $1 and lease_token = $2
returning abort_asked_at is not null as is_aborting;

-- name: begin :maybe
-- The jobs of the next batch, and how far the walk has come with it.
update millpond.errands
set in_hand = $3::uuid[], ends = $4::integer[], place = $5, looked = looked + $6, matched = matched + $7
where id = $1 and lease_token = $2
returning id;

-- name: save :maybe
-- What came of a batch.
update millpond.errands
set in_hand = null, ends = null, done = done + $3, refused = refused + $4, refusals = $5::jsonb
where id = $1 and lease_token = $2
returning id;

-- name: restart :maybe
-- A file is written anew by whoever takes over; that there may be one is known before it is written.
update millpond.errands
set looked = 0, matched = 0, done = 0, refused = 0, refusals = '[]', in_hand = null, ends = null, has_file = $3
where id = $1 and lease_token = $2
returning id;

-- name: release :maybe
update millpond.errands set lease_token = null, lease_until = null where id = $1 and lease_token = $2 returning id;

-- name: finish :maybe
update millpond.errands
set status = $3, result = $4::jsonb, error = $5::jsonb, finished_at = millpond.clock(), lease_token = null,
    lease_until = null, in_hand = null, ends = null
where id = $1 and lease_token = $2
returning looked, matched, done, refused;

-- name: with_file :many
-- Those whose file is past its time.
select id, arguments ->> 'format' as format from millpond.errands
where has_file and finished_at < millpond.clock() - $1::interval
order by finished_at limit $2;

-- name: without_file :exec
update millpond.errands set has_file = false where id = any($1::uuid[]);

-- name: forget :many
-- Those that were over long ago; a file goes first.
delete from millpond.errands e
where e.id = any(array(
    select o.id from millpond.errands o
    where o.id < millpond.first_id(millpond.clock() - $1::interval) and o.finished_at < millpond.clock() - $1::interval
        and not o.has_file
    order by o.id limit $2
))
returning e.id;

-- name: kind :maybe
-- A kind, where the database knows it.
select kind from millpond.kinds where kind = $1;

-- name: newest :maybe
-- The job with the highest id. Home: tenant.
select id from millpond.jobs order by id desc limit 1;

-- name: runs :many
-- Which run jobs are in, and when that ended. Home: tenant.
select id, run, finished_at from millpond.jobs
where id = any($1::uuid[]) and id >= millpond.least_id($1::uuid[]) and id <= millpond.greatest_id($1::uuid[]);

-- name: retried :one
-- Whether an errand has made a job of this key. Home: tenant.
select exists (
    select from millpond.idempotency k
    where k.tenant = $1 and k.scope = $2 and k.key = $3 and k.request ->> 'errand' = $4
) as is_retried;

-- name: refunded :one
-- Whether a job was refunded by this reference. Home: tenant.
select exists (
    select from millpond.entries e
    where e.tenant = $1 and e.account = $2 and e.reference = $3 and e.job_id = $4 and e.type = 'adjust'
) as is_refunded;

-- name: present :one
select millpond.clock() as present;
