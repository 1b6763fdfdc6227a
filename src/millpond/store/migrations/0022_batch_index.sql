-- Why: the jobs of a batch can be read. A migration of its own, so that jobs can be read while the index is built.
-- Locks: writes to jobs wait while the table is scanned once; no job has a batch yet, so the index is empty.
-- breaking: no

-- Jobs without a batch have no entry: their submission and transitions cost nothing more.
create index jobs_batch on millpond.jobs (batch_id, id) where batch_id is not null;
