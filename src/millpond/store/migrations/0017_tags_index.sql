-- Why: jobs can be found by their tags. A migration of its own, so that jobs can be read while the index is built.
-- Locks: writes to jobs wait while the table is scanned once; no job has tags yet, so the index is empty.
-- breaking: no

-- Jobs without tags have no entry: their submission and transitions cost nothing more.
create index jobs_tags on millpond.jobs using gin (tags jsonb_path_ops) where tags is not null;
