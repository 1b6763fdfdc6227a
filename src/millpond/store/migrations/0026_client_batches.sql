-- Why: a client submits many independent jobs as one batch, which has counts, a cost, one cancel and one webhook.
-- Locks: batches: writes wait while it is scanned for two indexes. Then batches and deliveries for a moment: columns are added.
-- breaking: no

create index batches_tenant on millpond.batches (tenant, id) where parent_id is null;
create index batches_client on millpond.batches (id) where parent_id is null;

alter table millpond.batches
    add column tags jsonb,
    add column price bigint,
    add column captured bigint,
    add column canceled_at timestamptz;
alter table millpond.batches drop constraint batches_check;
alter table millpond.batches add constraint batches_check check (
    (total > 0 or canceled_at is not null) and submitted between 0 and total and ended between 0 and submitted
    and succeeded + failed + canceled = ended and (ended_at is not null) = (ended = total)
    and (parent_id is not null) = (run is not null and root_id is not null)
    and (parent_id is null) = (price is not null and captured is not null)
    and (canceled_at is null or parent_id is null and total = submitted)
) not valid;
comment on column millpond.batches.total is 'How many jobs it is to have; they are submitted in parts. A cancel reduces it to those that were submitted.';
comment on column millpond.batches.tags is 'The tags that its jobs inherit.';
comment on column millpond.batches.price is 'What its jobs may cost: the sum of their prices and budgets. Null: they are children.';
comment on column millpond.batches.captured is 'What its ended jobs have cost, with what was spent of their budgets. Null: they are children.';
comment on column millpond.batches.canceled_at is 'When it was canceled: from then on it accepts no more jobs.';

create table millpond.batch_keys (
    tenant   text collate "C" not null,
    account  text collate "C" not null,
    key      text collate "C" not null,
    batch_id uuid not null,
    digest   bytea not null,
    primary key (tenant, account, key)
);
create index batch_keys_batch on millpond.batch_keys (batch_id);
comment on table millpond.batch_keys is 'database: tenant. The idempotency keys of the requests that created batches.';
comment on column millpond.batch_keys.digest is 'The digest of the request: another request with the same key is refused.';

create table millpond.batch_pages (
    batch_id uuid not null,
    first    integer not null,
    tenant   text collate "C" not null,
    jobs     integer not null,
    digest   bytea not null,
    primary key (batch_id, first),
    check (first >= 0 and jobs > 0)
);
comment on table millpond.batch_pages is 'database: tenant. The requests that added jobs to batches. A repeated request is recognized by its position and digest.';
comment on column millpond.batch_pages.first is 'The position of its first job in the batch, from 0.';

create table millpond.batch_hooks (
    batch_id uuid primary key,
    tenant   text collate "C" not null,
    url      text collate "C" not null,
    receiver text collate "C" not null,
    secret   bytea not null
);
comment on table millpond.batch_hooks is 'database: tenant. The webhook URL that a batch was created with. It receives the end of the batch.';

create table millpond.batch_cancels (
    batch_id uuid primary key,
    tenant   text collate "C" not null,
    at       timestamptz not null,
    after    uuid not null default '00000000-0000-0000-0000-000000000000'
);
create index batch_cancels_at on millpond.batch_cancels (at);
comment on table millpond.batch_cancels is 'database: tenant. Canceled batches with jobs that have not ended: a service cancels these.';
comment on column millpond.batch_cancels.at is 'When the service looks at it next.';
comment on column millpond.batch_cancels.after is 'The last job that the service has looked at.';

alter table millpond.deliveries add column batch_id uuid;
comment on column millpond.deliveries.batch_id is 'The batch whose end it reports. Null: it reports something else.';

-- Endpoints that receive all events receive the new one too.
insert into millpond.subscriptions (event, tenant, account, endpoint_id, kinds, receiver)
select 'batch.completed', e.tenant, e.account, e.id, e.kinds, case when e.url is not null then e.id::text end
from millpond.endpoints e where '*' = any(e.events) and e.disabled_at is null and e.is_native
on conflict do nothing;

select millpond.raise_wall();
