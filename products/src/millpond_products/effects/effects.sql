-- Effects: workflows with a price and settings. Database: central.
-- Invariant: the settings of an effect fit the properties of its workflow.

-- name: list :many
select e.id, e.slug, e.name, e.description, e.workflow_id, e.provider, e.credits_cost, e.priority, e.property_overrides,
    e.is_active, e.last_processing_time_seconds, e.created_at, e.updated_at
from millpond.effects_effects e
order by e.slug;

-- name: read :maybe
select e.id, e.slug, e.name, e.description, e.workflow_id, e.provider, e.credits_cost, e.priority, e.property_overrides,
    e.is_active, e.last_processing_time_seconds, e.created_at, e.updated_at
from millpond.effects_effects e
where e.id = $1 or e.slug = $2;

-- name: make :maybe
-- No row: the slug is taken.
insert into millpond.effects_effects (
    id, slug, name, description, workflow_id, provider, credits_cost, priority, property_overrides, is_active,
    created_at, updated_at
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb, $10, millpond.clock(), millpond.clock())
on conflict (slug) do nothing
returning id;

-- name: update :maybe
-- No row: the effect was changed since it was read.
update millpond.effects_effects
set name = $3, description = $4, workflow_id = $5, provider = $6, credits_cost = $7, priority = $8,
    property_overrides = $9::jsonb, is_active = $10,
    updated_at = greatest(millpond.clock(), updated_at + interval '1 microsecond')
where id = $1 and updated_at = $2
returning id;

-- name: learn :exec
-- Stores the duration of the job that ended last; a job that ended earlier changes nothing.
update millpond.effects_effects
set last_processing_time_seconds = $2::float8, last_processed_at = $3::timestamptz
where id = $1 and (last_processed_at is null or last_processed_at < $3::timestamptz);
