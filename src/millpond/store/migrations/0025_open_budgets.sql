-- Why: the overview counts the credits that open budgets hold, and must not read the closed ones.
-- Locks: writes to budgets wait while the table is scanned once.
-- breaking: no

-- The columns that change while a budget is open are not part of it, so that those updates need no new index entry.
create index budgets_open on millpond.budgets (tenant, job_id) where closed_at is null;
