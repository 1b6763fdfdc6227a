-- Why: workers that connect to the database are registered like those of the fleet, but without a token.
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

comment on table millpond.workers is 'database: central. The registered workers: fleet workers, which connect over HTTP with a token, and direct workers, which connect to the database. A worker that has left has no row.';
comment on column millpond.workers.worker is 'The name of the worker, unique in the fleet. Several direct workers may have the same name.';
comment on column millpond.workers.digest is 'The SHA-256 of the token; the token itself is not stored. Null for a direct worker.';
comment on column millpond.workers.fleet is 'The key with which the worker registered. Null for a direct worker.';
comment on column millpond.workers.queues is 'The queues from which a direct worker takes jobs; those of a fleet worker are in worker_routes.';
comment on column millpond.workers.silence is 'How long after its last heartbeat a direct worker is lost: its leases have then expired.';
