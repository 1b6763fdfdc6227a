-- Why: what the effects product has of its own: workflows, effects made of them, users, and their videos.
-- Locks: none that matter; the tables are new.
-- breaking: no

create table millpond.effects_workflows (
    id                    uuid primary key,
    slug                  text collate "C" not null unique,
    name                  text not null,
    description           text,
    is_active             boolean not null default false,
    input_type            text collate "C" not null,
    properties            jsonb not null default '[]',
    assets                jsonb not null default '[]',
    output_node_id        text,
    output_extension      text collate "C" not null,
    comfyui_workflow_path text collate "C",
    content_hash          text collate "C",
    created_at            timestamptz not null,
    updated_at            timestamptz not null,
    check (input_type in ('image', 'video', 'any') and (comfyui_workflow_path is null) = (content_hash is null))
);
comment on table millpond.effects_workflows is 'database: central. What a GPU can do: a ComfyUI graph in storage, what it can be asked for, and the files it needs.';
comment on column millpond.effects_workflows.content_hash is 'The SHA-256 of the graph: what is read from storage must have it.';

create table millpond.effects_effects (
    id                           uuid primary key,
    slug                         text collate "C" not null unique,
    name                         text not null,
    description                  text,
    workflow_id                  uuid not null,
    provider                     text collate "C" not null,
    credits_cost                 integer not null,
    priority                     smallint not null default 0,
    property_overrides           jsonb not null default '{}',
    is_active                    boolean not null default true,
    last_processing_time_seconds double precision,
    last_processed_at            timestamptz,
    created_at                   timestamptz not null,
    updated_at                   timestamptz not null,
    check (provider in ('self_hosted', 'cloud') and credits_cost >= 0)
);
create index effects_effects_workflow on millpond.effects_effects (workflow_id);
comment on table millpond.effects_effects is 'database: central. What a user can choose: a workflow with a price and settings of its own.';
comment on column millpond.effects_effects.last_processed_at is 'When the job ended that last_processing_time_seconds is about.';

create table millpond.effects_users (
    tenant  text collate "C" not null,
    account text collate "C" not null,
    seen_at timestamptz not null,
    primary key (tenant, account)
);
comment on table millpond.effects_users is 'database: tenant. The accounts that have submitted a job here: each was given its cap then, and is left alone since.';

create table millpond.effects_videos (
    id               uuid primary key,
    tenant           text collate "C" not null,
    account          text collate "C" not null,
    original_file_id uuid not null,
    title            text,
    job_ids          uuid[] not null default '{}',
    created_at       timestamptz not null
);
create index effects_videos_account on millpond.effects_videos (tenant, account, id);
comment on table millpond.effects_videos is 'database: tenant. What a user uploaded, and the jobs that were made of it.';
comment on column millpond.effects_videos.job_ids is 'Written before the job is: one that does not exist was never accepted, and counts for nothing.';

select millpond.wall('effects_users'), millpond.wall('effects_videos');
