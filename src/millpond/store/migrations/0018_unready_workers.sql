-- Why: a worker whose own means do not work, such as a ComfyUI that does not respond, reports why it takes no jobs.
-- Locks: workers, for a moment: two columns are added that are empty.
-- breaking: no

alter table millpond.workers add column unready_at timestamptz, add column unready_reason text;
comment on column millpond.workers.unready_at is 'Since when it takes no jobs, as it reported itself. None: it is ready.';
comment on column millpond.workers.unready_reason is 'Why it takes no jobs. Operators read it.';
