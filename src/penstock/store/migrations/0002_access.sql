-- Why: keys, tenants and the audit; the second wall between tenants; pages of a whole tenant's jobs.
-- Locks: jobs, events, entries, accounts and idempotency for a moment; writes of jobs wait while their new index is built.
-- breaking: no

create table penstock.tenants (
    tenant     text collate "C" primary key,
    created_at timestamptz not null
);
comment on table penstock.tenants is 'home: central. The customers that an operator has named.';

create table penstock.keys (
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
create index keys_tenant on penstock.keys (tenant, id);
comment on table penstock.keys is 'home: central. Who may come in, and as whom. Of a secret its SHA-256 alone is kept.';
comment on column penstock.keys.hint is 'The beginning and the end of the secret, to recognise it by.';
comment on column penstock.keys.tenant is 'None: an operator of every tenant.';
comment on column penstock.keys.lifetime is 'For how long it was made; the key that replaces it is made for as long.';
comment on column penstock.keys.last_used_at is 'Written at most once a minute.';

create table penstock.audit (
    id      uuid primary key,
    at      timestamptz not null,
    actor   text collate "C" not null,
    action  text collate "C" not null,
    tenant  text collate "C",
    subject text collate "C",
    data    jsonb
);
create index audit_tenant on penstock.audit (tenant, id);
create trigger audit_append_only before update or delete or truncate on penstock.audit
    for each statement execute function penstock.guard_append_only();
comment on table penstock.audit is 'home: central. What operators did, append-only.';
comment on column penstock.audit.subject is 'What it was done to: a key, an account, a queue, a job.';

create table penstock.secrets (
    name   text collate "C" primary key,
    secret bytea not null
);
comment on table penstock.secrets is 'home: central. What this installation signs with: browser tokens. Without the row a new secret is made, and what the old one has signed is void.';

create index jobs_tenant on penstock.jobs (tenant, id);

select penstock.raise_wall();
