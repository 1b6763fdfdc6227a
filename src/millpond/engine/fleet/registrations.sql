-- Registrations: the entries of direct workers, which connect to the database. They are rows of millpond.workers without
-- a token, and their leases contain their ids. Database: central.

-- name: beat :one
-- Stores that a worker was heard from, what it has loaded, and whether it has polled; returns whether it is draining.
-- Registers it, also again if its row was removed meanwhile.
insert into millpond.workers as w (
    id, worker, slots, capabilities, queues, silence, registered_at, heard_at, approved_at, polled_at
)
select $1, $2, $3::smallint, $4::jsonb, $5::text[], $6::interval, p.at, p.at, p.at, case when $7::boolean then p.at end
from (select millpond.clock() as at) p
on conflict (id) do update set heard_at = excluded.heard_at, capabilities = excluded.capabilities,
    polled_at = coalesce(excluded.polled_at, w.polled_at)
returning w.draining_at is not null as is_draining;

-- name: leave :exec
delete from millpond.workers w where w.id = $1;
