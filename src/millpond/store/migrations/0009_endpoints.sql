-- Why: an endpoint may receive the events of one account only, and in the format of a product's contract.
-- Locks: both tables for a moment; neither is rewritten.
-- breaking: no

alter table millpond.endpoints
    add column account text collate "C",
    add column is_native boolean not null default true;
create index endpoints_account on millpond.endpoints (tenant, account, id);
comment on column millpond.endpoints.account is 'The account whose jobs it covers. Null: all accounts of the tenant.';
comment on column millpond.endpoints.is_native is 'Whether it receives the format of the native API. Otherwise, the product of each kind defines the format.';

alter table millpond.subscriptions add column account text collate "C";
create index subscriptions_account on millpond.subscriptions (event, tenant, account);
comment on column millpond.subscriptions.account is 'The account whose jobs it covers. Null: all accounts of the tenant.';
