-- Rules: what messages are checked against. Database: tenant.
-- Invariant: a statement that changes a rule first increments the version of its set, so that concurrent changes of the
-- tenant's rules wait for it. A rule is stored only at the version that it was checked with.

-- name: list :many
select r.id, r.position, r.name, r.direction, r.action, r.mode, r.matcher, r.created_at, r.updated_at
from millpond.guard_rules r
where r.tenant = $1
order by r.position, r.id;

-- name: read :maybe
select r.id, r.position, r.name, r.direction, r.action, r.mode, r.matcher, r.created_at, r.updated_at
from millpond.guard_rules r
where r.id = $1 and r.tenant = $2;

-- name: make :maybe
-- Adds a rule at the end. No row: the set is not at this version (0: the set does not exist).
with raised as (
    insert into millpond.guard_sets as s (tenant, version, last_position, changed_at)
    values ($2, 1, 1, millpond.clock())
    on conflict (tenant) do update
    set version = s.version + 1, last_position = s.last_position + 1, changed_at = millpond.clock()
    where s.version = $3::bigint
    returning s.last_position
)
insert into millpond.guard_rules (
    id, tenant, position, name, direction, action, mode, matcher, created_at, updated_at
)
select $1::uuid, $2::text, s.last_position, $4, $5, $6, $7, $8::jsonb, millpond.clock(), millpond.clock() from raised s
returning id;

-- name: change :maybe
-- No row: the set is not at this version.
with raised as (
    update millpond.guard_sets s set version = s.version + 1, changed_at = millpond.clock()
    where s.tenant = $2 and s.version = $3::bigint
    returning s.tenant
)
update millpond.guard_rules r
set name = $4, direction = $5, action = $6, mode = $7, matcher = $8::jsonb,
    updated_at = greatest(millpond.clock(), r.updated_at + interval '1 microsecond')
from raised s
where r.id = $1 and r.tenant = s.tenant
returning r.id;

-- name: remove :maybe
with raised as (
    update millpond.guard_sets s set version = s.version + 1, changed_at = millpond.clock()
    where s.tenant = $2 and exists (select from millpond.guard_rules r where r.id = $1 and r.tenant = $2)
    returning s.tenant
)
delete from millpond.guard_rules r using raised s where r.id = $1 and r.tenant = s.tenant returning r.id;

-- name: reorder :many
-- Puts the rules into the given order. A rule that was added meanwhile stays after them.
with raised as (
    update millpond.guard_sets s set version = s.version + 1, changed_at = millpond.clock()
    where s.tenant = $1
    returning s.tenant
)
update millpond.guard_rules r set position = n.position
from raised s cross join unnest($2::uuid[]) with ordinality as n(id, position)
where r.id = n.id and r.tenant = s.tenant
returning r.id;
