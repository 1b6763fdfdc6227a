-- Operations: bulk operations, which change or read many jobs. Database: central.
-- Invariants: one process at a time works on a bulk operation, under a lease that expires; the jobs of a batch are
-- stored before the process acts on them, so a process that takes over acts on no others; what was done and refused is
-- counted at the end of a batch.

-- name: order :maybe
-- No row: the key was used before.
insert into millpond.bulk_operations (
    id, tenant, actor, key, digest, action, filter, arguments, estimate, place, created_at, touched_at
)
select millpond.uuid7(), $1, $2, $3, $4, $5, $6::jsonb, $7::jsonb, $8::bigint, $9, t.present, t.present
from millpond.clock() as t(present)
on conflict (actor, key) where key is not null do nothing
returning id, tenant, actor, action, filter, arguments, status as state, place, in_hand, ends, looked as examined, matched, done, refused, refusals,
    estimate, has_file, result, error, abort_asked_at is not null as is_aborting, created_at, started_at, finished_at;

-- name: known :maybe
-- The bulk operation that was ordered with a key, and the digest of its order.
select digest, id from millpond.bulk_operations where actor = $1 and key = $2;

-- name: read :maybe
-- One bulk operation; of this tenant, if one is given.
select id, tenant, actor, action, filter, arguments, status as state, place, in_hand, ends, looked as examined, matched, done, refused, refusals,
    estimate, has_file, result, error, abort_asked_at is not null as is_aborting, created_at, started_at, finished_at
from millpond.bulk_operations where id = $1 and ($2::text is null or tenant = $2);

-- name: list :many
-- The newest first, below an id.
select id, tenant, actor, action, filter, arguments, status as state, place, in_hand, ends, looked as examined, matched, done, refused, refusals,
    estimate, has_file, result, error, abort_asked_at is not null as is_aborting, created_at, started_at, finished_at
from millpond.bulk_operations where ($1::text is null or tenant = $1) and id < $2 and ($3::text is null or status = $3)
order by id desc limit $4;

-- name: abort :maybe
-- A bulk operation that has not started ends at once; a running one is asked to stop. No row: it has ended, or does not
-- exist.
update millpond.bulk_operations e
set abort_asked_at = coalesce(e.abort_asked_at, millpond.clock()),
    status = case e.status when 'waiting' then 'aborted' else e.status end,
    finished_at = case e.status when 'waiting' then millpond.clock() end
where e.id = $1 and ($2::text is null or e.tenant = $2) and e.finished_at is null
returning e.id;

-- name: take :maybe
-- Claims the bulk operation with one of these actions that has waited longest and is not claimed.
update millpond.bulk_operations e
set status = 'running', lease_token = $1, lease_until = millpond.clock() + $2::interval, touched_at = millpond.clock(),
    started_at = coalesce(e.started_at, millpond.clock())
where e.id = (
    select o.id from millpond.bulk_operations o
    where o.finished_at is null and o.action = any($3::text[])
        and (o.lease_until is null or o.lease_until <= millpond.clock())
    order by o.touched_at limit 1 for update skip locked
)
returning id, tenant, actor, action, filter, arguments, status as state, place, in_hand, ends, looked as examined, matched, done, refused, refusals,
    estimate, has_file, result, error, abort_asked_at is not null as is_aborting, created_at, started_at, finished_at;

-- name: is_aborting :maybe
-- Whether it must stop. No row: another process has claimed it.
select abort_asked_at is not null as is_aborting from millpond.bulk_operations where id = $1 and lease_token = $2;

-- name: renew :maybe
update millpond.bulk_operations set lease_until = millpond.clock() + $3::interval where id = $1 and lease_token = $2
returning abort_asked_at is not null as is_aborting;

-- name: begin :maybe
-- Stores the jobs of the next batch, and the position of the walk after it.
update millpond.bulk_operations
set in_hand = $3::uuid[], ends = $4::integer[], place = $5, looked = looked + $6, matched = matched + $7
where id = $1 and lease_token = $2
returning id;

-- name: save :maybe
-- Stores the result of a batch.
update millpond.bulk_operations
set in_hand = null, ends = null, done = done + $3, refused = refused + $4, refusals = $5::jsonb
where id = $1 and lease_token = $2
returning id;

-- name: restart :maybe
-- Resets the counts: a process that takes over writes the file again. `has_file` is set before the file is written.
update millpond.bulk_operations
set looked = 0, matched = 0, done = 0, refused = 0, refusals = '[]', in_hand = null, ends = null, has_file = $3
where id = $1 and lease_token = $2
returning id;

-- name: release :maybe
update millpond.bulk_operations set lease_token = null, lease_until = null where id = $1 and lease_token = $2 returning id;

-- name: finish :maybe
update millpond.bulk_operations
set status = $3, result = $4::jsonb, error = $5::jsonb, finished_at = millpond.clock(), lease_token = null,
    lease_until = null, in_hand = null, ends = null
where id = $1 and lease_token = $2
returning looked as examined, matched, done, refused;

-- name: with_file :many
-- Bulk operations whose file was kept long enough.
select id, arguments ->> 'format' as format from millpond.bulk_operations
where has_file and finished_at < millpond.clock() - $1::interval
order by finished_at limit $2;

-- name: without_file :exec
update millpond.bulk_operations set has_file = false where id = any($1::uuid[]);

-- name: forget :many
-- Deletes bulk operations that ended long ago. One with a file stays until the file is deleted.
delete from millpond.bulk_operations e
where e.id = any(array(
    select o.id from millpond.bulk_operations o
    where o.id < millpond.first_id(millpond.clock() - $1::interval) and o.finished_at < millpond.clock() - $1::interval
        and not o.has_file
    order by o.id limit $2
))
returning e.id;

-- name: kind :maybe
-- A kind, if it is registered.
select kind from millpond.kinds where kind = $1;

-- name: newest :maybe
-- The job with the highest id. Database: tenant.
select id from millpond.jobs order by id desc limit 1;

-- name: runs :many
-- The current run of these jobs, and when it ended. Database: tenant.
select id, run, finished_at from millpond.jobs
where id = any($1::uuid[]) and id >= millpond.least_id($1::uuid[]) and id <= millpond.greatest_id($1::uuid[]);

-- name: retried :one
-- Whether a bulk operation has created a job with this key. Database: tenant.
select exists (
    select from millpond.idempotency k
    where k.tenant = $1 and k.scope = $2 and k.key = $3 and k.request ->> 'bulk_operation' = $4
) as is_retried;

-- name: refunded :one
-- Whether a job was refunded with this reference. Database: tenant.
select exists (
    select from millpond.entries e
    where e.tenant = $1 and e.account = $2 and e.reference = $3 and e.job_id = $4 and e.type = 'adjust'
) as is_refunded;

-- name: present :one
select millpond.clock() as present;
