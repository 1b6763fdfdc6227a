-- Why: what the partner product has of its own: projects with what is known of them, what was made for them, requests
-- for TikTok accounts, and the accounts that came of them.
-- Locks: writes of jobs wait for a moment while they are given a trigger; all tables are new.
-- breaking: no

create table millpond.partner_projects (
    id          uuid primary key,
    tenant      text collate "C" not null,
    account     text collate "C" not null,
    name        text not null,
    description text,
    context     jsonb not null default '{}',
    sources     jsonb not null default '{}',
    key         uuid,
    request     jsonb,
    created_at  timestamptz not null,
    updated_at  timestamptz not null,
    check ((key is null) = (request is null))
);
create index partner_projects_account on millpond.partner_projects (tenant, account, id);
create unique index partner_projects_key on millpond.partner_projects (tenant, account, key) where key is not null;
comment on table millpond.partner_projects is 'database: tenant. What partners make things for, and what was found out about each.';
comment on column millpond.partner_projects.context is 'What ingests have merged, by their source.';
comment on column millpond.partner_projects.sources is 'The job of each source that was merged: one that was submitted before it changes nothing any more.';
comment on column millpond.partner_projects.key is 'The idempotency key it was made with, if any; request is what was asked for with it.';

create table millpond.partner_resources (
    id          uuid primary key,
    tenant      text collate "C" not null,
    account     text collate "C" not null,
    project_id  uuid not null,
    job_id      uuid not null,
    kind        text collate "C" not null,
    made        jsonb,
    status      text collate "C",
    created_at  timestamptz not null,
    check (kind in ('container', 'influencer') and status in ('completed', 'failed', 'canceled'))
);
create index partner_resources_project on millpond.partner_resources (tenant, project_id, kind, id);
comment on table millpond.partner_resources is 'database: tenant. What jobs make for a project: containers of content, and influencers. It stays when the job is forgotten.';
create index partner_resources_job on millpond.partner_resources (job_id);
comment on column millpond.partner_resources.made is 'What the job made, and from which order. It is believed once the job has completed, and forgotten if that ends otherwise.';
comment on column millpond.partner_resources.status is 'How the job ended, written in the transaction in which it did; none: it has not.';

-- What is known of a job is dropped with its week. What it made stays, and must say for itself how that ended.
create function millpond.partner_settle() returns trigger language plpgsql as $$
begin
    update millpond.partner_resources r
    set status = new.state, made = case when new.state = 'completed' then r.made end
    where r.job_id = new.id and r.status is null;
    return null;
end $$;
select millpond.on_end('partner', 'millpond.partner_settle');

create table millpond.partner_lease_requests (
    id         uuid primary key,
    tenant     text collate "C" not null,
    account    text collate "C" not null,
    project_id uuid not null,
    status     text collate "C" not null default 'pending',
    wish       jsonb not null,
    base       text not null,
    key        uuid,
    request    jsonb,
    reason     text,
    created_at timestamptz not null,
    settled_at timestamptz,
    check (status in ('pending', 'fulfilled', 'rejected') and (status = 'pending') = (settled_at is null)),
    check ((reason is not null) = (status = 'rejected') and (key is null) = (request is null))
);
create index partner_lease_requests_project on millpond.partner_lease_requests (tenant, project_id, id);
create index partner_lease_requests_status on millpond.partner_lease_requests (tenant, status, id);
create unique index partner_lease_requests_key on millpond.partner_lease_requests (tenant, account, key) where key is not null;
comment on table millpond.partner_lease_requests is 'database: tenant. A wish for a TikTok account, which an operator fulfils or rejects, once.';
comment on column millpond.partner_lease_requests.base is 'The path under which it was asked for: what was answered stays the same.';

create table millpond.partner_social_accounts (
    id           uuid primary key,
    tenant       text collate "C" not null,
    project_id   uuid not null,
    lease_id     uuid not null unique,
    platform     text collate "C" not null,
    handle       text not null,
    display_name text,
    created_at   timestamptz not null
);
create index partner_social_accounts_project on millpond.partner_social_accounts (tenant, project_id, id);
create unique index partner_social_accounts_handle on millpond.partner_social_accounts (platform, lower(handle));
comment on table millpond.partner_social_accounts is 'database: tenant. The accounts that a project may use. None is given to two.';

select millpond.wall('partner_projects'), millpond.wall('partner_resources'), millpond.wall('partner_lease_requests'),
    millpond.wall('partner_social_accounts');
