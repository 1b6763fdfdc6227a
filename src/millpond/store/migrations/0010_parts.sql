-- Why: the code of a job may have a provider do several things, one after the other or at once. Each is a part of the job.
-- Locks: predictions, while an index on those that are open is made; there are few.
-- breaking: no

alter table millpond.predictions
    add column part text collate "C" not null default '',
    add column kept jsonb;
create unique index predictions_part on millpond.predictions (job_id, part) where status in ('held', 'sending', 'running');
drop index millpond.predictions_open;
alter index millpond.predictions_part rename to predictions_open;
comment on column millpond.predictions.part is 'Which part of the job it is for, by the name that the job''s code gives it; empty where the provider does all of it.';
comment on column millpond.predictions.kept is 'What came of a part: what the provider said, and the files that were brought into storage. The job''s code is told so when it asks again.';
