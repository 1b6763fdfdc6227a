-- Why: what happens to jobs is told to URLs: those of a tenant's endpoints, and the one a job was submitted with.
-- Locks: none that matter; the tables are new.
-- breaking: no

create table millpond.endpoints (
    id              uuid primary key,
    tenant          text collate "C" not null,
    url             text collate "C",
    events         text[] not null,
    kinds           text[] not null,
    description     text not null,
    in_flight_max   integer,
    secret          bytea not null,
    old_secret      bytea,
    old_until       timestamptz,
    created_at      timestamptz not null,
    pulled_at       timestamptz,
    failing_since   timestamptz,
    enabled_at      timestamptz,
    disabled_at     timestamptz,
    disabled_reason text,
    check ((disabled_at is null) = (disabled_reason is null) and (old_secret is null) = (old_until is null) and in_flight_max > 0)
);
create index endpoints_tenant on millpond.endpoints (tenant, id);
create index endpoints_pulled on millpond.endpoints (pulled_at) where url is null;
comment on table millpond.endpoints is 'database: tenant. Where a tenant is told of its jobs. Secrets are encrypted, with a key that is not in the database.';
comment on column millpond.endpoints.url is 'None: a listener comes for what is to be told.';
comment on column millpond.endpoints.in_flight_max is 'How many requests it may be sent at once.';
comment on column millpond.endpoints.old_secret is 'What is signed with as well, until old_until: its receiver changes over when it likes.';
comment on column millpond.endpoints.pulled_at is 'When its listener last came.';
comment on column millpond.endpoints.enabled_at is 'When it was enabled again; none: it was never disabled.';
comment on column millpond.endpoints.failing_since is 'The first of the failures since it last took something.';

create table millpond.subscriptions (
    event      text collate "C" not null,
    tenant      text collate "C" not null,
    endpoint_id uuid not null,
    kinds       text[] not null,
    receiver    text collate "C",
    primary key (event, tenant, endpoint_id)
);
create index subscriptions_endpoint on millpond.subscriptions (endpoint_id);
comment on table millpond.subscriptions is 'database: tenant. Which endpoints are told of which lifecycle event: those that are not disabled. Written with the endpoint, so that a lifecycle event nobody wants costs one look.';
comment on column millpond.subscriptions.kinds is 'The kinds of jobs it is about; none: all of them.';

create table millpond.hooks (
    job_id   uuid primary key,
    tenant   text collate "C" not null,
    url      text collate "C" not null,
    receiver text collate "C" not null,
    secret   bytea not null,
    events  text[] not null,
    decides  boolean not null,
    captured integer
);
comment on table millpond.hooks is 'database: tenant. The URL that a job was submitted with. Written with the job.';
comment on column millpond.hooks.decides is 'Whether the job has succeeded only when the URL has taken the news.';
comment on column millpond.hooks.captured is 'What such a job costs if it does; none: its price.';

create table millpond.deliveries (
    id           uuid primary key,
    tenant       text collate "C" not null,
    endpoint_id  uuid,
    job_id       uuid,
    seq          integer,
    event       text collate "C" not null,
    receiver     text collate "C",
    at           timestamptz not null,
    data         jsonb not null,
    decides      boolean not null,
    fate         text collate "C" not null default 'pending',
    tries        smallint not null default 0,
    tries_before smallint not null default 0,
    is_out       boolean not null default false,
    due_at       timestamptz,
    settled_at   timestamptz,
    check (
        fate in ('pending', 'delivered', 'failed', 'withdrawn')
        and (fate = 'pending') = (due_at is not null) and (fate = 'pending') = (settled_at is null)
        and (job_id is null) = (seq is null) and not (is_out and due_at is null)
    )
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
create index deliveries_due on millpond.deliveries (receiver, due_at) where due_at is not null and receiver is not null;
create index deliveries_pulled on millpond.deliveries (endpoint_id, due_at) where due_at is not null and endpoint_id is not null;
create unique index deliveries_job on millpond.deliveries (job_id, seq, endpoint_id) nulls not distinct where job_id is not null;
create index deliveries_tenant on millpond.deliveries (tenant, id);
create index deliveries_undelivered on millpond.deliveries (tenant, fate, id) where fate <> 'delivered';
create index deliveries_pending on millpond.deliveries (due_at) where due_at is not null;
create index deliveries_endpoint on millpond.deliveries (endpoint_id, id) where endpoint_id is not null;
create index deliveries_endpoint_at on millpond.deliveries (endpoint_id, at) where endpoint_id is not null;
create index deliveries_undecided on millpond.deliveries (id) where decides and due_at is null;
create index deliveries_settled on millpond.deliveries (settled_at) where settled_at is not null;
comment on table millpond.deliveries is 'database: tenant. One lifecycle event to be told to one URL, written in the transaction of the lifecycle event. Its id is the webhook-id, whenever it is sent.';
comment on column millpond.deliveries.endpoint_id is 'None: it goes to the URL that the job was submitted with.';
comment on column millpond.deliveries.seq is 'The number of the event. What goes to one URL about one job goes in this order.';
comment on column millpond.deliveries.receiver is 'Whose limits and whose trouble it shares; none: a listener comes for it.';
comment on column millpond.deliveries.data is 'The job as it was at that moment: the body is made from it, the same each time.';
comment on column millpond.deliveries.decides is 'Whether its end is still to decide that of the job.';
comment on column millpond.deliveries.fate is 'pending, delivered, failed (given up) or withdrawn (its job has ended otherwise, or its endpoint is gone).';
comment on column millpond.deliveries.due_at is 'When it is to be sent. Never, once it was set aside because its endpoint is disabled.';
comment on column millpond.deliveries.tries_before is 'The tries that do not count, because it was asked for once more after them.';
comment on column millpond.deliveries.is_out is 'Whether somebody has it in hand, until it is due again.';

create table millpond.delivery_tries (
    delivery_id      uuid not null,
    number           smallint not null,
    tenant           text collate "C" not null,
    at               timestamptz not null,
    seconds          real not null,
    status           smallint,
    error            text,
    url              text collate "C",
    request_headers  jsonb not null,
    response_headers jsonb not null,
    response_body    text not null,
    primary key (delivery_id, number)
);
comment on table millpond.delivery_tries is 'database: tenant. What was sent, and what was answered: the head, and the beginning of the body.';

select millpond.raise_wall();
