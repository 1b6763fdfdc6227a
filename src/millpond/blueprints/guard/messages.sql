-- Messages: the jobs of the guard contract, as far as the engine does not tell of them itself. Home: tenant.

-- name: memo :maybe
-- What the rules found in the message, kept where the job's code keeps what it needs later.
select j.memo from millpond.jobs j where j.id = $1 and j.tenant = $2;
