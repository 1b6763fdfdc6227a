-- Workers: the fleet, whose workers connect over HTTP, and direct workers (see registrations.sql). Database: central.
-- Invariants: only the digest of a token is stored; a worker holds no more jobs than it has slots; a worker that is
-- unapproved, draining or revoked is given no jobs; a worker that has left or was revoked soon holds none.

-- function: room
-- How many of the wanted jobs each of these workers may have: no more than it has free slots, and none if it may not be
-- given jobs. The workers are locked first, in a statement of its own, because only the next statement sees what
-- another claim has given them meanwhile.
create or replace function millpond.room(workers text[], wants integer[]) returns integer[]
language plpgsql as $$
#variable_conflict use_column
declare
    rooms integer[];
begin
    perform from millpond.workers w where w.id = any(workers) order by w.id for update;

    -- A worker holds at most the jobs that its leases name: if that leaves enough slots, they need not be counted.
    with worker as (
        select w.id, w.slots, (
            select coalesce(sum(cardinality(l.job_ids)), 0) from millpond.leases l
            where l.worker = w.id and l.worker like 'worker\_%' and length(l.worker) = 33
        ) as named
        from millpond.workers w
        where w.id = any(workers)
            and w.approved_at is not null and w.draining_at is null and w.revoked_at is null
    ),
    item as (
        select i.worker, i.want, i.n, sum(i.want) over (partition by i.worker order by i.n) - i.want as before,
            sum(i.want) over (partition by i.worker) as total
        from unnest(workers, wants) with ordinality as i(worker, want, n)
    )
    select array_agg(
        case
            when w.id is null then 0
            when w.named + i.total <= w.slots then i.want
            else least(i.want, w.slots - i.before - (
                select count(*) from millpond.leases l
                cross join unnest(l.job_ids) as j(job_id)
                cross join lateral (
                    select from millpond.dispatches d where d.job_id = j.job_id and d.lease_token = l.token limit 1
                ) d
                where l.worker = i.worker and l.worker like 'worker\_%' and length(l.worker) = 33
            ))
        end::integer order by i.n
    ) into rooms
    from item i left join worker w on w.id = i.worker;
    return rooms;
end $$;

-- function: audit_leased
-- Audits the jobs that a claim has leased to fleet workers.
create or replace function millpond.audit_leased(job_ids uuid[], tokens uuid[], origins text[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    insert into millpond.audit (id, at, actor, action, tenant, subject, data)
    select millpond.uuid7(), l.granted_at, l.worker, 'job.leased', d.tenant, millpond.typeid('job', d.job_id),
        jsonb_build_object('address', origins[array_position(tokens, l.token)], 'epoch', d.epoch, 'route', d.queue)
    from millpond.dispatches d
    join millpond.leases l on l.token = any(tokens) and l.token = d.lease_token
    where d.job_id = any(audit_leased.job_ids);
end $$;

-- name: known_routes :many
select q.queue as route from millpond.queues q where q.is_route and q.queue = any($1::text[]);

-- name: open_route :exec
insert into millpond.queues as q (queue, is_route, is_limited) values ($1, true, millpond.is_limited($1))
on conflict (queue) do update set is_route = true where not q.is_route;

-- name: lock_fleet :exec
-- One registration at a time: two with the same name, or for the last place, must see each other.
select pg_advisory_xact_lock(1885695604);

-- name: namesake :maybe
-- The worker that has this name: whether it was revoked, and for how many seconds more it counts as alive.
select w.id, w.revoked_at is not null as is_revoked,
    extract(epoch from w.heard_at + $2::interval - millpond.clock())::float8 as alive_seconds
from millpond.workers w where w.worker = $1 and w.fleet is not null for update;

-- name: alive :one
-- How many workers of the fleet have been heard from within this time.
select count(*) as workers from millpond.workers w
where w.fleet is not null and w.revoked_at is null and w.heard_at > millpond.clock() - $1::interval;

-- name: add :exec
with present as (select millpond.clock() as at),
added as (
    insert into millpond.workers (
        id, worker, digest, hint, slots, capabilities, fleet, address, registered_at, heard_at, approved_at
    )
    select $1, $2, $3, $4, $5::smallint, $6::jsonb, $7, $8, p.at, p.at, case when $9::boolean then p.at end from present p
    returning id
)
insert into millpond.worker_routes (route, worker_id)
select distinct r.route, a.id from added a cross join unnest($10::text[]) as r(route);

-- name: remove :maybe
with unbound as (delete from millpond.worker_routes r where r.worker_id = $1)
delete from millpond.workers w where w.id = $1 returning w.id, w.worker;

-- name: find :many
-- The workers with these digests; an old digest counts until its time is up.
select w.digest, w.id, w.worker, w.slots, w.approved_at is not null as is_approved,
    w.draining_at is not null as is_draining, w.revoked_at is not null as is_revoked, null::float8 as seconds_left,
    array(select r.route from millpond.worker_routes r where r.worker_id = w.id order by r.route) as routes
from millpond.workers w where w.digest = any($1::bytea[])
union all
select w.old_digest, w.id, w.worker, w.slots, w.approved_at is not null,
    w.draining_at is not null, w.revoked_at is not null, extract(epoch from w.old_until - millpond.clock())::float8,
    array(select r.route from millpond.worker_routes r where r.worker_id = w.id order by r.route)
from millpond.workers w where w.old_digest = any($1::bytea[]) and w.old_until > millpond.clock();

-- name: hear :exec
-- Stores which workers were heard from, their addresses, and whether they polled. A worker that is being leased a job
-- at the moment is skipped until the next time.
update millpond.workers w
set heard_at = millpond.clock(), address = i.address,
    polled_at = case when i.has_polled then millpond.clock() else w.polled_at end
from unnest($1::text[], $2::text[], $3::boolean[]) as i(id, address, has_polled)
where w.id = i.id and w.id = any(array(
    select w.id from millpond.workers w where w.id = any($1::text[]) order by w.id for update skip locked
));

-- name: beat :many
-- Extends the leases of these workers; returns which of their jobs are held, and which must stop.
with extended as (
    update millpond.leases l
    set expires_at = millpond.clock() + $4::interval
    from (select distinct i.token, i.worker from unnest($2::uuid[], $3::text[]) as i(token, worker)) i
    where l.token = any($2::uuid[]) and l.token = i.token and l.worker = i.worker and l.expires_at > millpond.clock()
    returning l.token, l.worker
)
select d.job_id, d.lease_token as token, e.worker, d.cancel_at is not null as is_canceling
from extended e
join unnest($1::uuid[], $2::uuid[], $3::text[]) as i(job_id, token, worker) on i.token = e.token and i.worker = e.worker
join millpond.dispatches d on d.job_id = any($1::uuid[]) and d.job_id = i.job_id and d.lease_token = i.token;

-- name: holders :many
-- The workers that hold these jobs with these lease tokens now, and the epochs.
select d.job_id, d.lease_token as token, l.worker, d.tenant, d.epoch, d.cancel_at is not null as is_canceling
from unnest($1::uuid[], $2::uuid[]) as i(job_id, token)
join millpond.dispatches d on d.job_id = any($1::uuid[]) and d.job_id = i.job_id and d.lease_token = i.token
join millpond.leases l on l.token = any($2::uuid[]) and l.token = i.token
where l.expires_at > millpond.clock();

-- name: tokens_of :many
-- The leases of a worker.
select l.token from millpond.leases l where l.worker = $1 and l.worker like 'worker\_%' and length(l.worker) = 33;

-- name: was_ended :maybe
-- Whether this worker ended this job with this lease token and outcome in the last day, according to the audit.
select a.tenant from millpond.audit a
where a.actor = $1 and a.id >= millpond.first_id(millpond.clock() - interval '1 day') and a.subject = $2
    and a.action in ('job.completed', 'job.failed') and a.data ->> 'lease_token' = $3 and a.data ->> 'outcome' = $4
limit 1;

-- name: list :many
-- The workers by name, with what each holds; only one worker, if an id is given.
select w.id, w.worker, w.fleet is not null as is_fleet, w.hint, w.slots, w.capabilities, w.fleet, w.address, w.registered_at,
    w.heard_at, w.approved_at, w.draining_at, w.revoked_at, w.unready_at, w.unready_reason,
    w.heard_at > millpond.clock() - coalesce(w.silence, $2::interval) as is_alive,
    array(select r.route from millpond.worker_routes r where r.worker_id = w.id order by r.route) as routes, w.queues,
    coalesce(h.leases, 0) as leases, coalesce(h.jobs, 0) as jobs, h.granted_at, h.expires_at, w.polled_at
from millpond.workers w
left join lateral (
    select count(distinct l.token) as leases, count(*) as jobs, max(l.granted_at) as granted_at, min(l.expires_at) as expires_at
    from millpond.leases l
    cross join unnest(l.job_ids) as j(job_id)
    cross join lateral (
        select from millpond.dispatches d where d.job_id = j.job_id and d.lease_token = l.token limit 1
    ) d
    where l.worker = w.id and l.worker like 'worker\_%' and length(l.worker) = 33
) h on true
where $1::text is null or w.id = $1
order by w.worker, w.id
limit $3;

-- name: lock :maybe
select w.id, w.worker, w.fleet is not null as is_fleet, w.slots, w.approved_at is not null as is_approved, w.draining_at is not null as is_draining,
    w.revoked_at is not null as is_revoked
from millpond.workers w where w.id = $1 for update;

-- name: approve :exec
-- Also allows a revoked worker again.
update millpond.workers w set approved_at = coalesce(w.approved_at, millpond.clock()), revoked_at = null where w.id = $1;

-- name: revoke :exec
update millpond.workers w set revoked_at = coalesce(w.revoked_at, millpond.clock()), old_digest = null, old_until = null
where w.id = $1;

-- name: drain :exec
update millpond.workers w set draining_at = coalesce(w.draining_at, millpond.clock()) where w.id = $1;

-- name: resume :exec
update millpond.workers w set draining_at = null where w.id = $1;

-- name: set_readiness :maybe
-- Stores why a worker takes no jobs, or that it is ready ($2 is null). Nothing is written if that is known.
update millpond.workers w
set unready_reason = $2::text, unready_at = case when $2::text is not null then coalesce(w.unready_at, millpond.clock()) end
where w.id = $1 and w.unready_reason is distinct from $2::text
returning w.worker;

-- name: set_resources :exec
-- Stores which resources a worker has loaded, among its capabilities.
update millpond.workers w
set capabilities = coalesce(w.capabilities, '{}') || jsonb_build_object('resources', to_jsonb($2::text[]))
where w.id = $1;

-- name: rotate :exec
update millpond.workers w
set digest = $2, hint = $3,
    old_digest = case when $4::interval is not null then w.digest end, old_until = millpond.clock() + $4::interval
where w.id = $1;

-- name: unassign :exec
delete from millpond.worker_routes r where r.worker_id = $1;

-- name: assign :exec
insert into millpond.worker_routes (route, worker_id) select distinct r.route, $1 from unnest($2::text[]) as r(route);

-- name: astray :many
-- Leases of workers that have left or were revoked: a process stopped before it gave them back.
select l.token from millpond.leases l
where l.worker like 'worker\_%' and length(l.worker) = 33
    and not exists (select from millpond.workers w where w.id = l.worker and w.revoked_at is null)
limit $1;

-- name: forget :many
-- Deletes workers that have been silent for $1; revoked ones, whose names are blocked until then, after $2; and lost
-- direct workers as soon as another one has their name.
with forgotten as (
    delete from millpond.workers w
    where (
            w.heard_at < millpond.clock() - case when w.revoked_at is null then $1::interval else $2::interval end
            or w.heard_at < millpond.clock() - w.silence and exists (
                select from millpond.workers n
                where n.worker = w.worker and n.fleet is null and n.registered_at > w.heard_at
            )
        )
        and not exists (
            select from millpond.leases l where l.worker = w.id and l.worker like 'worker\_%' and length(l.worker) = 33
        )
    returning w.id, w.worker
),
unbound as (
    delete from millpond.worker_routes r using forgotten f where r.worker_id = f.id
)
select f.id, f.worker from forgotten f;
