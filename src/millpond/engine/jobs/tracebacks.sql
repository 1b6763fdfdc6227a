-- Tracebacks: where the code of a job raised the error of an attempt. Operators read them; clients never do. Database: tenant.

-- name: keep :exec
-- Stores the traceback of the attempt that a lease began, while the lease holds: its epoch is the job's. Only the last
-- $4 epochs of a job are kept.
with kept as (
    insert into millpond.tracebacks as t (job_id, epoch, tenant, at, text)
    select j.id, j.epoch, j.tenant, millpond.clock(), $3
    from millpond.jobs j where j.id = $1 and j.epoch = $2 and j.phase = 'leased'
    on conflict (job_id, epoch) do update set text = excluded.text, at = excluded.at
    returning t.job_id, t.epoch
)
delete from millpond.tracebacks t using kept k where t.job_id = k.job_id and t.epoch <= k.epoch - $4::integer;

-- name: of_job :many
select t.epoch, t.text from millpond.tracebacks t where t.job_id = $1 and t.tenant = $2 order by t.epoch;
