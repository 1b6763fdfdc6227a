-- Why: the tables of the partner product: projects and their context, what jobs made for them, requests for TikTok
-- accounts, and the accounts that were assigned.
-- Locks: writes to jobs wait for a moment while a trigger is added; all tables are new.
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
comment on table millpond.partner_projects is 'database: tenant. The projects of partners, and the context that ingests have found for each.';
comment on column millpond.partner_projects.context is 'The merged results of ingests, by source.';
comment on column millpond.partner_projects.sources is 'The job whose result was merged last, by source. Results of jobs that were submitted before it are ignored.';
comment on column millpond.partner_projects.key is 'The idempotency key of the request that created the project, if it had one; request is the body of that request.';

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
comment on table millpond.partner_resources is 'database: tenant. What jobs make for a project: containers of content, and influencers. A row stays when its job is deleted.';
create index partner_resources_job on millpond.partner_resources (job_id);
comment on column millpond.partner_resources.made is 'What the job made, and the order that it was made from. It is valid once the job has completed, and is deleted if the job ends otherwise.';
comment on column millpond.partner_resources.status is 'How the job ended, written in the transaction that ended it. Null: it has not ended.';

-- Jobs are dropped by week. A resource stays, so it records how its job ended.
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
comment on table millpond.partner_lease_requests is 'database: tenant. Requests for a TikTok account. An operator fulfils or rejects each request once.';
comment on column millpond.partner_lease_requests.base is 'The base path of the request. It is stored so that repeated answers contain the same URLs.';

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
comment on table millpond.partner_social_accounts is 'database: tenant. The social accounts that a project may use. An account belongs to one project only.';

select millpond.wall('partner_projects'), millpond.wall('partner_resources'), millpond.wall('partner_lease_requests'),
    millpond.wall('partner_social_accounts');
