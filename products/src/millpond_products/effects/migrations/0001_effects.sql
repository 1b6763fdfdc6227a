-- Why: the tables of the effects product: workflows, effects, users and their videos.
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
comment on table millpond.effects_workflows is 'database: central. What a GPU worker can run: a ComfyUI graph in storage, the properties that a request may set, and the files that the graph needs.';
comment on column millpond.effects_workflows.content_hash is 'The SHA-256 of the graph. A graph that is read from storage must match it.';

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
comment on column millpond.effects_effects.last_processed_at is 'When the job of last_processing_time_seconds ended.';

create table millpond.effects_users (
    tenant  text collate "C" not null,
    account text collate "C" not null,
    seen_at timestamptz not null,
    primary key (tenant, account)
);
comment on table millpond.effects_users is 'database: tenant. The accounts that have submitted a job to this product. An account gets its cap with its first job; after that the product does not change the cap.';

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
comment on table millpond.effects_videos is 'database: tenant. The videos that users uploaded, each with the jobs that process it.';
comment on column millpond.effects_videos.job_ids is 'An id is written before its job. An id without a job belongs to a submit that was not accepted, and is ignored.';

select millpond.wall('effects_users'), millpond.wall('effects_videos');
