-- Why: outside services run jobs: what was asked of them, where that stands, and what they have called back.
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
comment on table millpond.predictions is 'database: tenant. What a provider was asked to do for a job. Written before it is asked, so that nothing it says can be about something unknown.';
comment on column millpond.predictions.run is 'The run of the job that it is for.';
comment on column millpond.predictions.status is 'held: to be sent when the provider takes calls again; sending: it may or may not have been heard; running: it has been; unwanted: to be canceled there; over: nothing more will come of it.';
comment on column millpond.predictions.external_id is 'What the provider calls it, once that is known.';
comment on column millpond.predictions.looks is 'How often the reconciler has looked at it.';
comment on column millpond.predictions.expires_at is 'The deadline of the job.';
comment on column millpond.predictions.due_at is 'When the reconciler looks next; none: it has no more to do with it.';

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
comment on table millpond.callbacks is 'database: tenant. What providers have called, each message once. Only what was signed and fresh is here; what was not is logged.';
comment on column millpond.callbacks.message_id is 'What the provider calls the message; the same when it is sent again.';
comment on column millpond.callbacks.verdict is 'accepted, late (its job had ended), superseded (another prediction has taken its place) or unknown.';
comment on column millpond.callbacks.times is 'How often it came.';

select millpond.raise_wall();
