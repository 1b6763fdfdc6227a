-- Why: the handler of a job may request several predictions, one after the other or at once. Each is a part of the job.
-- Locks: predictions, while an index on the open ones is built; there are few.
-- breaking: no

alter table millpond.predictions
    add column part text collate "C" not null default '',
    add column kept jsonb;
create unique index predictions_part on millpond.predictions (job_id, part) where status in ('held', 'sending', 'running');
drop index millpond.predictions_open;
alter index millpond.predictions_part rename to predictions_open;
comment on column millpond.predictions.part is 'The part of the job that it is for, as named by the handler. Empty: the provider runs the whole job.';
comment on column millpond.predictions.kept is 'The result of a part: the provider''s response, and the files that were copied into storage. The handler gets this result when it requests the part again.';
