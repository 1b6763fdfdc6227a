-- Why: keys, tenants and the audit; the second wall between tenants; pages of a whole tenant's jobs.
-- Locks: jobs, events, entries, accounts and idempotency for a moment; writes of jobs wait while their new index is built.
-- breaking: no

create table millpond.tenants (
    tenant     text collate "C" primary key,
    created_at timestamptz not null
);
comment on table millpond.tenants is 'database: central. The customers that an operator has named.';

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
comment on table millpond.keys is 'database: central. Who may come in, and as whom. Of a secret its SHA-256 alone is kept.';
comment on column millpond.keys.hint is 'The beginning and the end of the secret, to recognise it by.';
comment on column millpond.keys.tenant is 'None: an operator of every tenant.';
comment on column millpond.keys.lifetime is 'For how long it was made; the key that replaces it is made for as long.';
comment on column millpond.keys.last_used_at is 'Written at most once a minute.';

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
comment on table millpond.audit is 'database: central. What operators did, append-only.';
comment on column millpond.audit.subject is 'What it was done to: a key, an account, a queue, a job.';

create table millpond.secrets (
    name   text collate "C" primary key,
    secret bytea not null
);
comment on table millpond.secrets is 'database: central. What this installation signs with: browser tokens. Without the row a new secret is made, and what the old one has signed is void.';

create index jobs_tenant on millpond.jobs (tenant, id);

select millpond.raise_wall();
