-- Notifier: wakes other processes. It is only a hint: a process that misses it finds the job at its next poll.

-- name: notify :exec
-- In a transaction of its own, after the commit that it announces, because NOTIFY makes commits wait for each other.
-- It does not need an fsync either.
select set_config('synchronous_commit', 'off', true), pg_notify('millpond', $1);
