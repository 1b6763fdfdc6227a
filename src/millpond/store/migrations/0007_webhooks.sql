-- Why: webhooks: lifecycle events are sent to the endpoints of a tenant, and to the URL that a job was submitted with.
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
comment on table millpond.endpoints is 'database: tenant. The URLs that receive the events of a tenant''s jobs. Secrets are encrypted with a key that is not in the database.';
comment on column millpond.endpoints.url is 'Null: a listener pulls the deliveries.';
comment on column millpond.endpoints.in_flight_max is 'How many requests may be in flight to it at once.';
comment on column millpond.endpoints.old_secret is 'The previous secret. Requests are signed with both until old_until, so the receiver can switch at any time before.';
comment on column millpond.endpoints.pulled_at is 'When its listener last pulled.';
comment on column millpond.endpoints.enabled_at is 'When it was last enabled again. Null: it was never disabled.';
comment on column millpond.endpoints.failing_since is 'The time of the first failure after its last success.';

create table millpond.subscriptions (
    event      text collate "C" not null,
    tenant      text collate "C" not null,
    endpoint_id uuid not null,
    kinds       text[] not null,
    receiver    text collate "C",
    primary key (event, tenant, endpoint_id)
);
create index subscriptions_endpoint on millpond.subscriptions (endpoint_id);
comment on table millpond.subscriptions is 'database: tenant. Which endpoints receive which lifecycle event. A disabled endpoint has no rows. Written together with the endpoint, so that an event without subscribers costs one look-up.';
comment on column millpond.subscriptions.kinds is 'The kinds of jobs that it covers. Empty: all kinds.';

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
comment on table millpond.hooks is 'database: tenant. The webhook URL that a job was submitted with. Written together with the job.';
comment on column millpond.hooks.decides is 'Whether the job succeeds only if the delivery to this URL succeeds.';
comment on column millpond.hooks.captured is 'The credits to capture if such a job succeeds. Null: its price.';

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
comment on table millpond.deliveries is 'database: tenant. One lifecycle event to be sent to one URL, written in the transaction of the event. The id is the webhook-id of each try.';
comment on column millpond.deliveries.endpoint_id is 'Null: it is sent to the URL that the job was submitted with.';
comment on column millpond.deliveries.seq is 'The number of the job''s event. Deliveries of one job to one URL are sent in this order.';
comment on column millpond.deliveries.receiver is 'Deliveries with the same receiver share its limits and its failures. Null: a listener pulls it.';
comment on column millpond.deliveries.data is 'The job as it was at the event. The body is made from it and is the same in each try.';
comment on column millpond.deliveries.decides is 'Whether its outcome will decide how the job ends.';
comment on column millpond.deliveries.fate is 'pending, delivered, failed (given up) or withdrawn (the job has ended otherwise, or the endpoint was deleted).';
comment on column millpond.deliveries.due_at is 'When it is to be sent. Infinity while it is set aside because its endpoint is disabled.';
comment on column millpond.deliveries.tries_before is 'The number of tries before it was last sent again on request. These do not count towards the limit.';
comment on column millpond.deliveries.is_out is 'Whether it is claimed: due_at is then the time at which the claim expires.';

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
comment on table millpond.delivery_tries is 'database: tenant. What was sent and received in each try: the headers, and the beginning of the response body.';

select millpond.raise_wall();
