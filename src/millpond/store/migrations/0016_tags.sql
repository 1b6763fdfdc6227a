-- Why: a job has tags, by which it is found.
-- Locks: jobs, for a moment: a column is added that is empty.
-- breaking: no

alter table millpond.jobs add column tags jsonb;
comment on column millpond.jobs.tags is 'Up to 16 keys with a text each, given at submit and never changed. None: it has no tags.';
