-- Schedules: what submits jobs at due times. Database: central.
-- Invariants: a schedule that is paused or orphaned has no next due time; the next due time of any other one is moved in
-- the commit that writes its fires (see fires.sql), so each due time is decided on once.

-- fragment: columns
s.id as schedule_id, s.tenant, s.account, s.name, s.kind, s.input, s.due_field, s.cron, s.every, s.at, s.zone, s.jitter,
    s.since, s.overlap, s.catch_up, s.catch_up_max, s.priority, s.expires_in, s.tags, s.source, s.due_at, s.next_at,
    s.paused_at, s.orphaned_at, s.created_at, s.updated_at

-- name: present :one
select millpond.clock() as present;

-- name: make :maybe
-- No row: the name or the idempotency key is taken.
insert into millpond.schedules as s (
    id, tenant, name, account, kind, input, due_field, cron, every, at, zone, jitter, since, overlap, catch_up, catch_up_max,
    priority, expires_in, tags, source, app, app_kinds, actor, key, digest, due_at, next_at, created_at, updated_at
)
values (
    $1, $2, $3, $4, $5, $6::jsonb, $7, $8, $9::interval, $10, $11, $12::interval, $13, $14, $15, $16, $17, $18::interval,
    $19::jsonb, $20, $21, $22::text[], $23, $24, $25::bytea, $26, $27, $28, $28
)
on conflict do nothing
returning {schedules.columns};

-- name: known :maybe
-- The schedule that was created with a key, and the digest of its request.
select s.digest, {schedules.columns} from millpond.schedules s where s.actor = $1 and s.key = $2;

-- name: count :one
select count(*) as schedules from millpond.schedules where tenant = $1;

-- name: read :maybe
-- One schedule; of this tenant and account, if they are given.
select {schedules.columns} from millpond.schedules s
where s.id = $1 and ($2::text is null or s.tenant = $2) and ($3::text is null or s.account = $3);

-- name: lock :maybe
-- The same, for a transaction that changes it.
select {schedules.columns}, millpond.clock() as present from millpond.schedules s
where s.id = $1 and ($2::text is null or s.tenant = $2) and ($3::text is null or s.account = $3) for update;

-- name: read_many :many
select {schedules.columns} from millpond.schedules s where s.id = any($1::uuid[]);

-- name: list :many
-- The oldest first, above an id.
select {schedules.columns} from millpond.schedules s
where s.id > $1 and ($2::text is null or s.tenant = $2) and ($3::text is null or s.account = $3)
    and ($4::text is null or s.kind = $4) and ($5::text is null or s.name = $5) and ($6::text is null or s.source = $6)
    and ($7::text is null or $7 = case
        when s.orphaned_at is not null then 'orphaned' when s.paused_at is not null then 'paused'
        when s.due_at is null then 'ended' else 'active' end)
order by s.id limit $8;

-- name: update :one
update millpond.schedules s
set account = $2, kind = $3, input = $4::jsonb, due_field = $5, cron = $6, every = $7::interval, at = $8, zone = $9,
    jitter = $10::interval, since = $11, overlap = $12, catch_up = $13, catch_up_max = $14, priority = $15,
    expires_in = $16::interval, tags = $17::jsonb, due_at = $18, next_at = $19, updated_at = millpond.clock()
where s.id = $1
returning {schedules.columns};

-- name: pause :one
update millpond.schedules s
set paused_at = coalesce(s.paused_at, millpond.clock()), due_at = null, next_at = null
where s.id = $1
returning {schedules.columns};

-- name: resume :one
update millpond.schedules s set paused_at = null, due_at = $2, next_at = $3 where s.id = $1
returning {schedules.columns};

-- name: delete :exec
delete from millpond.schedules where id = $1;

-- name: withdraw :exec
-- Deletes the pending fires of a schedule that is deleted.
delete from millpond.fires where schedule_id = $1 and outcome = 'pending';

-- name: declared :many
-- The schedules with these names, for the app that declares them.
select {schedules.columns}, s.app, s.app_kinds
from unnest($1::text[], $2::text[]) as i(tenant, name)
join millpond.schedules s on s.tenant = i.tenant and s.name = i.name
order by s.id for update of s;

-- name: declare :exec
-- A schedule that was created through the API belongs to the app from now on.
update millpond.schedules set source = 'code', app = $2, app_kinds = $3::text[], orphaned_at = null where id = $1;

-- name: orphan :many
-- The schedules of an app that it no longer declares. They are those of the same name; an app without a name is known
-- by its kinds: it has one in common with the app that declared the schedule.
update millpond.schedules s
set orphaned_at = millpond.clock(), due_at = null, next_at = null
where s.source = 'code' and s.orphaned_at is null and s.app is not distinct from $1
    and ($1::text is not null or s.app_kinds && $2::text[])
    and not exists (
        select from unnest($3::text[], $4::text[]) as i(tenant, name) where i.tenant = s.tenant and i.name = s.name
    )
returning s.tenant, s.name;

-- name: overdue :one
-- How many schedules should have fired a while ago.
select count(*) as schedules from millpond.schedules
where next_at < (select millpond.clock()) - $1::interval;
