-- Remote: the halves of verbs for tenants with a database of their own. Each statement runs in one of the two
-- databases; remote.py describes the order in which their transactions commit. Database: both.
-- Invariants: the tenant commits first, so a job may be one verb ahead of its dispatch and never behind it. Every verb
-- first checks, under the locks of both, whether the two are in step.

-- function: owe
-- Stores, together with the jobs, that their dispatches must be made. Database: tenant.
create or replace function millpond.owe(present timestamptz, job_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    insert into millpond.owed (job_id, owed_at)
    select i.job_id, present from unnest(job_ids) as i(job_id)
    on conflict (job_id) do update set owed_at = excluded.owed_at;
end $$;

-- function: out_of_step
-- Locks jobs, and returns those that are not where their dispatches say; one without a dispatch must have ended.
-- Database: tenant.
create or replace function millpond.out_of_step(job_ids uuid[], phases text[], epochs integer[]) returns setof uuid
language plpgsql as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    return query
    select i.job_id
    from unnest(job_ids, phases, epochs) as i(job_id, phase, epoch)
    left join (
        select j.id, j.phase, j.epoch from millpond.jobs j
        where j.id = any(job_ids) and j.id >= low and j.id <= high order by j.id for update
    ) j on j.id = i.job_id
    where case
        when i.phase is null then j.phase <> 'ended'
        else (j.phase, j.epoch) is distinct from (i.phase, i.epoch)
    end;
end $$;

-- function: ensure
-- Makes the missing dispatches of jobs in another database; existing ones stay as they are. `limits` are the keys of each
-- job, which may be made of its input (see limit_keys). Database: central.
create or replace function millpond.ensure(
    job_ids uuid[], tenants text[], accounts text[], kinds text[], queues text[], phases text[], priorities smallint[],
    epochs integer[], attempts smallint[], run_ats timestamptz[], expires_ats timestamptz[], limits text[] default null
) returns setof text
language plpgsql as $$
#variable_conflict use_column
declare
    missing bigint[];
    turns bigint[];
begin
    if exists (select from unnest(ensure.kinds) as i(kind) where not exists (select from millpond.kinds k where k.kind = i.kind)) then
        raise exception 'the kind is not registered' using errcode = 'PS004';
    end if;
    missing := array(
        select i.n from unnest(ensure.job_ids) with ordinality as i(job_id, n)
        where not exists (select from millpond.dispatches d where d.job_id = i.job_id) order by i.n
    );
    if exists (select from millpond.kinds k where k.kind = any(ensure.kinds) and k.is_fair) then
        turns := millpond.take_turns(
            array(select i.kind from unnest(ensure.kinds) with ordinality as i(kind, n) where i.n = any(missing) order by i.n),
            array(select i.queue from unnest(ensure.queues) with ordinality as i(queue, n) where i.n = any(missing) order by i.n),
            array(select i.tenant from unnest(ensure.tenants) with ordinality as i(tenant, n) where i.n = any(missing) order by i.n)
        );
    end if;
    return query
    with made as (
        insert into millpond.dispatches (
            job_id, tenant, account, kind, queue, phase, rank, turn, epoch, attempts, run_at, expires_at, wakes_at, is_remote,
            limits
        )
        select i.job_id, i.tenant, i.account, i.kind, i.queue, i.phase, -i.priority, coalesce(m.turn, 0), i.epoch, i.attempts,
            case when i.phase = 'waiting' then coalesce(i.run_at, millpond.clock()) else i.run_at end, i.expires_at,
            case i.phase
                when 'waiting' then least(coalesce(i.run_at, millpond.clock()), i.expires_at)
                when 'parked' then least(i.run_at, i.expires_at)
                else i.expires_at
            end, true, string_to_array(i.keys, chr(31))
        from unnest(
            ensure.job_ids, tenants, accounts, kinds, queues, phases, priorities, epochs, attempts, run_ats, expires_ats,
            ensure.limits
        ) with ordinality as i(
            job_id, tenant, account, kind, queue, phase, priority, epoch, attempts, run_at, expires_at, keys, n
        )
        join unnest(missing, turns) as m(n, turn) on m.n = i.n
        on conflict (job_id) do nothing
        returning job_id, queue, rank, turn, phase
    ),
    lined as (
        insert into millpond.ready (queue, rank, turn, job_id)
        select queue, rank, turn, job_id from made where phase = 'ready'
    )
    select distinct queue from made where phase = 'ready';
end $$;

-- function: follow
-- Updates dispatches to the state of their jobs. The caller holds their locks. Without ranks, from a version that does
-- not know them, the ranks stay as they are. Database: central.
create or replace function millpond.follow(
    job_ids uuid[], phases text[], epochs integer[], attempts smallint[], asked boolean[], grace interval,
    ranks smallint[] default null, untils timestamptz[] default null
) returns setof text
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    pause interval := interval '5 seconds';  -- only its dispatch would have known how long it was to wait
begin
    delete from millpond.ready r
    using millpond.dispatches d
    where d.job_id = any(follow.job_ids)
        and r.queue = d.queue and r.rank = d.rank and r.turn = d.turn and r.job_id = d.job_id;
    return query
    with changed as (
        update millpond.dispatches d
        set phase = i.phase, epoch = i.epoch, attempts = i.attempts, rank = coalesce(i.rank, d.rank),
            lease_token = case when i.phase = 'leased' then d.lease_token end,
            run_at = case
                when i.phase = 'waiting' and d.phase <> 'waiting' then present + pause
                when i.phase = 'parked' then i.until
                else d.run_at
            end,
            cancel_at = case when i.asked then coalesce(d.cancel_at, present + grace) end,
            wakes_at = least(
                case  -- a deferred deadline stays deferred until the job is given back
                    when i.phase in ('ready', 'leased', 'parked') and d.wakes_at > d.expires_at then d.wakes_at
                    else d.expires_at
                end,
                case when i.asked then coalesce(d.cancel_at, present + grace) end,
                case when i.phase = 'waiting' then case when d.phase = 'waiting' then d.run_at else present + pause end end,
                case when i.phase = 'parked' then i.until end
            )
        from unnest(follow.job_ids, phases, epochs, follow.attempts, asked, ranks, untils)
            as i(job_id, phase, epoch, attempts, asked, rank, until)
        where d.job_id = any(follow.job_ids) and i.job_id = d.job_id
        returning d.queue, d.rank, d.turn, d.job_id, d.phase
    ),
    lined as (
        insert into millpond.ready (queue, rank, turn, job_id)
        select queue, rank, turn, job_id from changed where phase = 'ready'
    )
    select distinct queue from changed where phase = 'ready';
end $$;

-- function: unlease
-- Undoes leases that this same transaction has granted, and deletes those without any other job. Database: central.
create or replace function millpond.unlease(job_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    with back as (
        update millpond.dispatches d
        set phase = 'ready', lease_token = null, epoch = d.epoch - 1
        where d.job_id = any(unlease.job_ids)
        returning d.queue, d.rank, d.turn, d.job_id
    ),
    closed as (
        delete from millpond.leases l
        where l.token = any(array(select d.lease_token from millpond.dispatches d where d.job_id = any(unlease.job_ids)))
            and l.job_ids <@ unlease.job_ids
    )
    insert into millpond.ready (queue, rank, turn, job_id)
    select queue, rank, turn, job_id from back;
end $$;

-- name: ensure :many
select queue
from millpond.ensure(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::smallint[], $8::integer[], $9::smallint[],
    $10::timestamptz[], $11::timestamptz[], $12::text[]
) as queue;

-- name: limit_keys :many
-- The keys of the limits of jobs. Database: tenant.
select job_id, keys as limits from millpond.limit_keys_of_jobs($1::uuid[]);

-- name: paid :exec
-- Stores that the dispatches of these jobs are made. Database: tenant.
delete from millpond.owed where job_id = any($1::uuid[]);

-- name: owing :many
-- Which of these jobs still need their dispatch. Database: tenant.
select job_id from millpond.owed where job_id = any($1::uuid[]);

-- name: owed :many
-- Jobs whose dispatch has been owed for longer than this, the oldest first. Database: tenant.
select job_id from millpond.owed where owed_at < millpond.clock() - $1::interval order by owed_at limit $2;

-- name: refused :many
-- The event by which each of these jobs, which will never have a dispatch, can be ended. Database: tenant.
select j.id as job_id, case when m.event is null then 'expired' else 'failed' end as event
from (
    select j.id, j.lifecycle, j.state from millpond.jobs j where j.id = any($1::uuid[]) and j.phase <> 'ended'
    order by j.id for update
) j
left join millpond.lifecycle_transitions m on m.lifecycle = j.lifecycle and m.from_state = j.state and m.event = 'failed';

-- name: fence :many
-- Locks the dispatches of these tenants' jobs, and returns their state. Database: central.
select job_id, phase, epoch, attempts, cancel_at is not null as is_asked, rank,
    coalesce(phase = 'parked' and wakes_at > millpond.clock(), false) as is_waited_for
from millpond.dispatches where job_id = any($1::uuid[]) and tenant = any($2::text[]) and is_remote
order by job_id for update;

-- name: truth :many
-- Locks jobs of these tenants, and returns everything that their dispatches are made of. Database: tenant.
select id as job_id, tenant, account, kind, queue, phase, priority, epoch, attempts, run_at, expires_at,
    cancel_requested_at is not null as is_asked, -priority as rank,
    array_to_string(millpond.limit_keys_of(kind, tenant, account, input, tags), chr(31)) as limits,
    case
        when phase = 'parked' and waits_for in ('time', 'question') then (
            select s.due_at from millpond.steps s
            where s.job_id = j.id and s.run = j.run and s.type in ('sleep', 'question') and s.done_at is null
            order by s.at desc limit 1
        )
    end as until
from millpond.jobs j
where id = any($1::uuid[]) and id >= millpond.least_id($1::uuid[]) and id <= millpond.greatest_id($1::uuid[])
    and tenant = any($2::text[])
order by id for update;

-- name: out_of_step :many
select job_id from millpond.out_of_step($1::uuid[], $2::text[], $3::integer[]) as job_id;

-- name: raise_epochs :exec
-- Raises the epochs of jobs that are behind their dispatches, as after a restore of an older state. Database: tenant.
update millpond.jobs j set epoch = i.epoch
from unnest($1::uuid[], $2::integer[]) as i(job_id, epoch)
where j.id = any($1::uuid[]) and i.job_id = j.id and j.epoch < i.epoch;

-- name: follow :many
select queue
from millpond.follow(
    $1::uuid[], $2::text[], $3::integer[], $4::smallint[], $5::boolean[], $6::interval, $7::smallint[], $8::timestamptz[]
) as queue;

-- name: fitting_jobs :many
select job_id from unnest(millpond.fitting_jobs($1::uuid[], $2::bigint[], $3)) as job_id;

-- name: audit_leased :exec
select millpond.audit_leased($1::uuid[], $2::uuid[], $3::text[]);

-- name: discard :exec
select millpond.discard($1::uuid[]);

-- name: make_ready :exec
select millpond.make_ready($1::uuid[]);

-- name: unlease :exec
select millpond.unlease($1::uuid[]);

-- name: withdraw :many
select job_id from millpond.withdraw($1, $2::uuid[], $3::uuid[], $4::text[]);

-- name: give_back :many
select g.job_id, g.fate, g.phase, g.attempts, millpond.requeue_note($1, g.counted, i.error) as note
from millpond.give_back($1, $2, $3::uuid[], $4::uuid[], $5::interval[], $6::text[], $7::jsonb[]) g
join unnest($3::uuid[], $7::jsonb[]) as i(job_id, error) on i.job_id = g.job_id;

-- name: park_dispatches :many
select job_id from millpond.park_dispatches($1::uuid[], $2::uuid[], $3::timestamptz[]);

-- name: keep :many
select job_id from millpond.keep($1::uuid[], $2::uuid[]);

-- name: proceed_jobs :many
select job_id, tenant, kind, from_state, state
from millpond.proceed_jobs($1::uuid[], $2::uuid[], $3::jsonb[], $4::jsonb[]);

-- name: deciding :one
-- Which of these jobs have succeeded only when a delivery to their URL has succeeded. Database: tenant.
select millpond.deciding($1::uuid[]) as job_ids;

-- name: start_delivery :many
select job_id from millpond.start_delivery($1::uuid[], $2::uuid[], $3::text[], $4::uuid[]);

-- name: deliver_jobs :many
select job_id, tenant, kind, from_state, state, price, captured
from millpond.deliver_jobs($1::uuid[], $2::jsonb[], $3::integer[]);

-- name: end_delivery :many
select job_id from millpond.end_delivery($1::uuid[]);

-- name: conclude_jobs :many
select job_id, tenant, kind, from_state, state, price, captured from millpond.conclude_jobs($1, $2::uuid[]);

-- name: held :many
select job_id, token, epoch, is_canceling from millpond.held($1::uuid[], $2::uuid[]);

-- name: transition :many
select job_id, tenant, account, kind, queue, priority, from_state, state, outcome, seq, epoch, attempts_ as attempts, run,
    price, captured, progress, stage, input, memo, answer, created_at, expires_at, parent_id, depth
from millpond.transition(
    $1, $2, $3::uuid[], epochs => $4::integer[], attempts => $5::smallint[], outputs => $6::jsonb[], errors => $7::jsonb[],
    captures => $8::integer[], memos => $9::jsonb[], answers => $10::jsonb[], notes => $11::jsonb[]
);

-- name: note_jobs :many
select job_id, token, is_canceling, seq
from millpond.note_jobs(
    $1::uuid[], $2::uuid[], $3::integer[], $4::integer[], $5::text[], $6::real[], $7::text[], $8::jsonb[]
);

-- name: emit_chunks :many
select job_id, token, verdict, is_canceling, last
from millpond.emit_chunks($1::uuid[], $2::uuid[], $3::integer[], $4::integer[], $5::text[], $6);

-- name: cancel_jobs :many
select job_id, tenant, kind, from_state, state, price, captured from millpond.cancel_jobs($1::uuid[]);

-- name: cancel_job :one
select verdict, state, stage, kind, from_state, price, captured from millpond.cancel_job($1, $2, $3, $4);

-- name: cancel_dispatch :exec
select millpond.cancel_dispatch($1, $2, $3::interval);

-- name: prioritize_job :one
select verdict, state, queue, before from millpond.prioritize_job($1, $2, $3::smallint, $4);

-- name: prioritize_dispatch :exec
select millpond.prioritize_dispatch($1, $2::smallint);

-- name: refund_job :one
select verdict, given, available, captured, refunded, at, reference, why
from millpond.refund_job($1, $2, $3::bigint, $4::text, $5::text, $6::integer);

-- name: audit_refunded :exec
select millpond.audit_refunded($1, $2, $3, $4, $5, $6, $7);

-- name: answer_job :one
select verdict, state, queue, kind, from_state from millpond.answer_job($1, $2, $3::jsonb, $4);

-- name: transition_job_to :one
select verdict, from_state, state, outcome, phase, forgets from millpond.transition_job_to($1, $2, $3, $4, $5);

-- name: transition_dispatch_to :exec
select millpond.transition_dispatch_to($1, $2, $3);

-- name: revive_job :one
select verdict, state, available, price, expires_at, revived_at from millpond.revive_job($1, $2, $3::interval);

-- name: owe :exec
select millpond.owe($1, $2::uuid[]);

-- name: claim :many
-- Claims jobs of this database and of remote tenants, the latter without the data of their own database.
select job_id, token, tenant, account, kind, queue, rank, turn, from_state, state, epoch, attempts, run, seq, price,
    progress, stage, input, memo, answer, created_at, expires_at, parent_id, depth
from millpond.claim(
    $1::text[], $2::smallint[], $3::smallint[], $4::bigint[], $5::uuid[],
    $6::integer[], $7::uuid[], $8::text[], $9::interval, $10::text[], $11::text[]
);

-- name: due :many
-- Locks the dispatches of these tenants for which an event is due. Database: central.
select d.job_id, d.phase, d.epoch
from millpond.dispatches d
where d.is_remote and d.tenant = any($2::text[]) and d.wakes_at <= millpond.clock()
    and millpond.is_due($1, d, millpond.clock())
order by d.wakes_at limit $3 for update skip locked;

-- name: lapsed :many
-- Expired leases that hold, or held, jobs in other databases, with the jobs that they still hold, except those of
-- tenants that cannot be reached. Database: central.
select l.token, l.worker, d.job_id, d.tenant, d.epoch
from (
    select l.token, l.worker, l.job_ids from millpond.leases l
    cross join lateral (
        select count(*) as held, count(*) filter (where not d.tenant = any($2::text[])) as reachable
        from millpond.dispatches d where d.job_id = any(l.job_ids) and d.lease_token = l.token
    ) d
    where l.is_remote and l.expires_at <= millpond.clock() and (d.reachable > 0 or d.held = 0)
    order by l.expires_at limit $1
) l
left join lateral (
    select d.job_id, d.tenant, d.epoch from millpond.dispatches d
    where d.job_id = any(l.job_ids) and d.lease_token = l.token and not d.tenant = any($2::text[])
) d on true;

-- name: held_by :many
-- The jobs that a lease holds. Database: central.
select l.token, l.worker, d.job_id, d.tenant, d.epoch
from millpond.leases l
cross join lateral (
    select d.job_id, d.tenant, d.epoch from millpond.dispatches d where d.job_id = any(l.job_ids) and d.lease_token = l.token
) d
where l.token = $1;

-- name: take_back :many
-- Requeues jobs of this database that a lease is to hold no longer. Database: both.
select job_id, tenant, kind, queue, from_state, state, fate, price, captured
from millpond.requeue($1, false, $2::uuid[], $3::uuid[], null, $4::jsonb[]);

-- name: dispatches :many
-- A page of the dispatches of these tenants' jobs, in the order of their ids, with the fields that both databases have.
-- Database: central.
select d.job_id, d.tenant, d.account, d.kind, d.queue, d.phase, d.rank, d.epoch, d.attempts, d.expires_at,
    d.cancel_at is not null as is_asked
from millpond.dispatches d
where d.is_remote and d.tenant = any($1::text[]) and d.job_id > $2
order by d.job_id limit $3;

-- name: live :many
-- A page of the jobs of these tenants that have not ended, with the same fields. Database: tenant.
select j.id as job_id, j.tenant, j.account, j.kind, j.queue, j.phase, -j.priority as rank, j.epoch, j.attempts,
    j.expires_at, j.cancel_requested_at is not null as is_asked
from millpond.jobs j
where j.tenant = any($1::text[]) and j.phase <> 'ended' and j.id > $2
order by j.id limit $3;

-- name: some :many
-- The same for these jobs, except those that have ended. Database: tenant.
select j.id as job_id, j.tenant, j.account, j.kind, j.queue, j.phase, -j.priority as rank, j.epoch, j.attempts,
    j.expires_at, j.cancel_requested_at is not null as is_asked
from millpond.jobs j
where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
    and j.phase <> 'ended';

-- name: walk :many
-- The next $2 jobs after an id, and whether they have ended. Database: tenant.
select id as job_id, phase = 'ended' as is_ended from millpond.jobs where id > $1 order by id limit $2;

-- name: dispatched :many
-- Which of these jobs have a dispatch. Database: central.
select job_id from millpond.dispatches where job_id = any($1::uuid[]);
