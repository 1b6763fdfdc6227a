-- Workflows: ComfyUI graphs with their properties and assets. Database: central.
-- Invariant: a workflow that is active has a graph and all its assets in storage.

-- name: list :many
select id, slug, name, description, is_active, input_type, properties, assets, output_node_id, output_extension,
    comfyui_workflow_path, content_hash, created_at, updated_at
from millpond.effects_workflows
order by slug;

-- name: read :maybe
select id, slug, name, description, is_active, input_type, properties, assets, output_node_id, output_extension,
    comfyui_workflow_path, content_hash, created_at, updated_at
from millpond.effects_workflows
where id = $1 or slug = $2;

-- name: make :maybe
-- No row: the slug is taken.
insert into millpond.effects_workflows (
    id, slug, name, description, input_type, properties, output_extension, created_at, updated_at
)
values ($1, $2, $3, $4, $5, $6::jsonb, $7, millpond.clock(), millpond.clock())
on conflict (slug) do nothing
returning id;

-- name: update :maybe
-- No row: the workflow was changed since it was read.
update millpond.effects_workflows
set name = $3, description = $4, input_type = $5, properties = $6::jsonb, output_extension = $7, is_active = $8,
    assets = $9::jsonb, output_node_id = $10, comfyui_workflow_path = $11, content_hash = $12,
    updated_at = greatest(millpond.clock(), updated_at + interval '1 microsecond')
where id = $1 and updated_at = $2
returning id;

-- name: overrides :many
-- The properties that the effects of a workflow set.
select slug, property_overrides from millpond.effects_effects where workflow_id = $1 order by slug;
