-- Why: a worker that cannot run jobs, for example because its ComfyUI does not respond, reports why it takes none.
-- Locks: workers, for a moment: two empty columns are added.
-- breaking: no

alter table millpond.workers add column unready_at timestamptz, add column unready_reason text;
comment on column millpond.workers.unready_at is 'Since when the worker has reported that it takes no jobs. Null: it is ready.';
comment on column millpond.workers.unready_reason is 'Why it takes no jobs. Shown to operators.';
