-- Bell: wakes other processes. A hint and no more: who misses it finds the job at the next look.

-- name: ring :exec
-- In a transaction of its own, after the commit it tells of: NOTIFY makes commits wait for each other. It is not
-- worth an fsync either.
select set_config('synchronous_commit', 'off', true), pg_notify('millpond', $1);
