-- Why: keys, tenants and the audit; row-level security between tenants; lists of all jobs of a tenant.
-- Locks: jobs, events, entries, accounts and idempotency for a moment; writes to jobs wait while a new index is built.
-- breaking: no

create table millpond.tenants (
    tenant     text collate "C" primary key,
    created_at timestamptz not null
);
comment on table millpond.tenants is 'database: central. The tenants that an operator has created.';

create table millpond.keys (
    id           uuid primary key,
    digest       bytea not null unique,
    hint         text collate "C" not null,
    scope        text collate "C" not null,
    tenant       text collate "C",
    account      text collate "C",
    name         text,
    rate_limit   integer,
    lifetime     interval,
    created_at   timestamptz not null,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    check (
        scope in ('client', 'worker', 'admin') and rate_limit > 0
        and (scope <> 'client' or account is not null) and (account is null or tenant is not null)
    )
) with (fillfactor = 70);
create index keys_tenant on millpond.keys (tenant, id);
comment on table millpond.keys is 'database: central. API keys: whom a key authenticates, and what it may do. Only the SHA-256 of the secret is stored.';
comment on column millpond.keys.hint is 'The beginning and the end of the secret, to recognize the key by.';
comment on column millpond.keys.tenant is 'Null: the key is valid for every tenant.';
comment on column millpond.keys.lifetime is 'How long the key is valid from its creation. A key that replaces it is valid for the same time.';
comment on column millpond.keys.last_used_at is 'Updated at most once a minute.';

create table millpond.audit (
    id      uuid primary key,
    at      timestamptz not null,
    actor   text collate "C" not null,
    action  text collate "C" not null,
    tenant  text collate "C",
    subject text collate "C",
    data    jsonb
);
create index audit_tenant on millpond.audit (tenant, id);
create trigger audit_append_only before update or delete or truncate on millpond.audit
    for each statement execute function millpond.guard_append_only();
comment on table millpond.audit is 'database: central. What operators and workers did. Append-only.';
comment on column millpond.audit.subject is 'What the action was applied to: a key, an account, a queue, a job.';

create table millpond.secrets (
    name   text collate "C" primary key,
    secret bytea not null
);
comment on table millpond.secrets is 'database: central. The secret with which this installation signs browser tokens. If the row is deleted, a new secret is made, and tokens signed with the old one are no longer valid.';

create index jobs_tenant on millpond.jobs (tenant, id);

select millpond.raise_wall();
