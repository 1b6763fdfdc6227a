-- Why: the code of a job may have a provider do several things, one after the other or at once. Each is a part of the job.
-- Locks: submissions, while an index on those that are open is made; there are few.
-- breaking: no

alter table millpond.submissions
    add column part text collate "C" not null default '',
    add column kept jsonb;
create unique index submissions_part on millpond.submissions (job_id, part) where status in ('held', 'sending', 'running');
drop index millpond.submissions_open;
alter index millpond.submissions_part rename to submissions_open;
comment on column millpond.submissions.part is 'Which part of the job it is for, by the name that the job''s code gives it; empty where the provider does all of it.';
comment on column millpond.submissions.kept is 'What came of a part: what the provider said, and the files that were brought into storage. The job''s code is told so when it asks again.';
