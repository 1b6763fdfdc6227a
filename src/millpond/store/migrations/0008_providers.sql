-- Why: providers run jobs: what each was asked to do, the status of that, and the callbacks received.
-- Locks: none that matter; the tables are new.
-- breaking: no

create table millpond.predictions (
    id            uuid primary key,
    tenant        text collate "C" not null,
    job_id        uuid not null,
    run           smallint not null,
    provider      text collate "C" not null,
    status        text collate "C" not null,
    external_id text collate "C",
    looks         integer not null default 0,
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    due_at        timestamptz,
    over_at       timestamptz,
    check (
        status in ('held', 'sending', 'running', 'unwanted', 'over')
        and (status <> 'running' or external_id is not null)
        and (status not in ('held', 'running') or due_at is not null)
        and (status = 'over') = (over_at is not null)
    )
) with (fillfactor = 70);
create unique index predictions_open on millpond.predictions (job_id) where status in ('held', 'sending', 'running');
create index predictions_job on millpond.predictions (job_id, id);
create index predictions_due on millpond.predictions (provider, due_at) where due_at is not null;
create index predictions_done on millpond.predictions (created_at) where due_at is null;
comment on table millpond.predictions is 'database: tenant. What a provider was asked to do for a job. Written before the request, so that every callback is about a known prediction.';
comment on column millpond.predictions.run is 'The run of the job that it is for.';
comment on column millpond.predictions.status is 'held: to be sent when the provider accepts requests again; sending: the provider may or may not have received it; running: the provider has received it; unwanted: to be canceled at the provider; over: finished.';
comment on column millpond.predictions.external_id is 'The id that the provider gave it, once known.';
comment on column millpond.predictions.looks is 'How often the reconciler has polled it.';
comment on column millpond.predictions.expires_at is 'The deadline of the job.';
comment on column millpond.predictions.due_at is 'When the reconciler polls it next. Null: never.';

create table millpond.callbacks (
    provider      text collate "C" not null,
    message_id    text collate "C" not null,
    tenant        text collate "C" not null,
    prediction_id uuid not null,
    external_id text collate "C" not null,
    status        text collate "C" not null,
    verdict       text collate "C" not null,
    times         integer not null default 1,
    received_at   timestamptz not null,
    primary key (provider, message_id)
);
create index callbacks_age on millpond.callbacks (received_at);
comment on table millpond.callbacks is 'database: tenant. The callbacks of providers, each message once. Only callbacks with a valid signature and a recent time are stored; others are logged.';
comment on column millpond.callbacks.message_id is 'The id that the provider gave the message. It is the same when the message is sent again.';
comment on column millpond.callbacks.verdict is 'accepted, late (the job had ended), superseded (another prediction has replaced this one) or unknown.';
comment on column millpond.callbacks.times is 'How often the message was received.';

select millpond.raise_wall();
