-- Why: operators see when a fleet worker last polled, and find a job by the id that its provider gave it.
-- Locks: workers for a moment; writes to predictions wait while their new index is built.
-- breaking: no

alter table millpond.workers add column polled_at timestamptz;
comment on column millpond.workers.polled_at is 'When it last asked for jobs. Updated together with heard_at, every few seconds at most.';

-- external_id is set once, by an update that changes other indexes as well.
create index predictions_external_id on millpond.predictions (external_id) where external_id is not null;
