-- Events: what happened to each job, in order. Home: tenant.
-- Invariants: append-only; numbered 1..n per job, by a counter on the job's row, so a reader that saw n has seen
-- all up to n.

-- name: after :many
select seq, at, type, state, data from millpond.events
where job_id = $1 and tenant = $2 and seq > $3
order by seq
limit $4;
