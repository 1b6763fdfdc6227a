-- Why: jobs have tags, by which they can be found.
-- Locks: jobs, for a moment: an empty column is added.
-- breaking: no

alter table millpond.jobs add column tags jsonb;
comment on column millpond.jobs.tags is 'Up to 16 keys, each with a text, set at submit and never changed. Null: no tags.';
