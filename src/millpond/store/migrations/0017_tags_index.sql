-- Why: jobs are found by their tags. It is a migration of its own, so that jobs can be read while it is made.
-- Locks: jobs are not written to while they are looked through once; no job has tags yet, so that the index is empty.
-- breaking: no

-- Jobs without tags have no entry: neither to submit nor to move them costs more.
create index jobs_tags on millpond.jobs using gin (tags jsonb_path_ops) where tags is not null;
