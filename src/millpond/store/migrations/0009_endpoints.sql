-- Why: an endpoint may be about the jobs of one account, and may be told in the words of their kinds, as their product's contract has it.
-- Locks: both tables for a moment; neither is rewritten.
-- breaking: no

alter table millpond.endpoints
    add column account text collate "C",
    add column is_native boolean not null default true;
create index endpoints_account on millpond.endpoints (tenant, account, id);
comment on column millpond.endpoints.account is 'The account whose jobs it is told of; none: all of the tenant.';
comment on column millpond.endpoints.is_native is 'Whether it is told in the words of the native API, or in those of each kind.';

alter table millpond.subscriptions add column account text collate "C";
create index subscriptions_account on millpond.subscriptions (event, tenant, account);
comment on column millpond.subscriptions.account is 'The account whose jobs it is about; none: all of the tenant.';
