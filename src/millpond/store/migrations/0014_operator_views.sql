-- Why: operators see when a worker of the fleet last asked for jobs, and find a job by what its provider calls it.
-- Locks: workers for a moment; predictions are not written to while their new index is built.
-- breaking: no

alter table millpond.workers add column polled_at timestamptz;
comment on column millpond.workers.polled_at is 'When it last asked for jobs; written together with heard_at, every few seconds at most.';

-- A prediction learns its name at the provider once, in an update that moves it in other indexes as well.
create index predictions_external_id on millpond.predictions (external_id) where external_id is not null;
