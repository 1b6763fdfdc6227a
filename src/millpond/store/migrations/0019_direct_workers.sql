-- Why: workers that connect to the database are registered like those of the fleet, without a token.
-- Locks: workers for a moment.
-- breaking: no

alter table millpond.workers
    alter column digest drop not null,
    alter column hint drop not null,
    alter column fleet drop not null,
    drop constraint workers_worker_key,
    add column queues text[],
    add column silence interval,
    add constraint workers_are_fleet_or_direct check (
        case
            when fleet is null then digest is null and queues is not null and silence is not null
            else digest is not null and hint is not null and queues is null and silence is null
        end
    );
create unique index workers_name on millpond.workers (worker) where fleet is not null;

comment on table millpond.workers is 'database: central. The workers: those of the fleet, which come over HTTP with a token, and direct ones, which connect to the database. One that has left has no row.';
comment on column millpond.workers.worker is 'Its name, which is unique in the fleet. Several direct workers may have the same.';
comment on column millpond.workers.digest is 'The SHA-256 of its token; the token itself is kept nowhere. Null for a direct worker.';
comment on column millpond.workers.fleet is 'The key it registered with. Null for a direct worker.';
comment on column millpond.workers.queues is 'From which queues a direct worker takes jobs; those of a fleet worker are in worker_routes.';
comment on column millpond.workers.silence is 'After how long without a heartbeat a direct worker is lost: when its leases have expired.';
