-- Batches: jobs that are awaited together, among them the children of jobs. Database: tenant.
-- Invariant: a batch counts its jobs that have ended, in the commits in which they end. The commit of the last one
-- resumes the parent. Locks are taken in this order: dispatch and job of a child, its batch, dispatch and job of the
-- parent, accounts, budgets.

-- function: spawn
-- Submits children of a leased job: the jobs of a step from `first` on, up to `total`. The columns after `fails_fast`
-- are those of millpond.submit_batch. Tags of the parent are inherited, and so is its deadline, unless the children are
-- detached. The nearest ancestor with a budget pays; without one, the account.
-- Verdicts: 'spawned'; 'repeated' (they were spawned before); 'lost' (the job is no longer held in this epoch); 'early'
-- (not all children before `first` are submitted); 'changed' (the batch has another total); 'deep', 'wide' and 'large'
-- (limits of the tree); 'cycle' (a child has the kind and input of an ancestor); 'tagged' (too many tags with those
-- inherited); 'short' (of budget, of which `available` is left). For dispatches in another database, the deadlines of the
-- children are returned.
create or replace function millpond.spawn(
    parent uuid, epoch integer, name text, "position" integer, batch_id uuid, total integer, first integer,
    is_detached boolean, fails_fast boolean, is_fair boolean, is_remote boolean, job_ids uuid[], tenants text[],
    accounts text[], kinds text[], lifecycles text[], queues text[], initial_states text[], entry_states text[],
    prices integer[], inputs jsonb[], scopes text[], keys text[], requests jsonb[], priorities smallint[],
    run_ats timestamptz[], lifetimes interval[], retries uuid[], payers integer[], nths integer[], spents bigint[],
    payer_tenants text[], payer_accounts text[], sums bigint[], counts integer[], holds integer[], hooks jsonb,
    tags jsonb[], budgets integer[]
) returns table (verdict text, available bigint, created_at timestamptz, deadlines timestamptz[])
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    size integer := cardinality(job_ids);
    job record;
    batch millpond.batches;
    root uuid;
    payer uuid;
    amounts bigint[] := millpond.amounts(prices, budgets, size);
    remaining bigint;
    wrong text;
begin
    select j.id, j.tenant, j.account, j.run, j.parent_id, j.batch_id, j.expires_at, j.tags, coalesce(j.depth, 0) as depth, j.depth is null as is_first
    into job from millpond.jobs j
    where j.id = parent and j.epoch = spawn.epoch and j.phase = 'leased' for update;
    if job.id is null then
        return query select 'lost', null::bigint, present, null::timestamptz[];
        return;
    end if;
    select b.* into batch from millpond.steps s
    cross join lateral (select b.* from millpond.batches b where b.id = s.batch_id limit 1) b
    where s.job_id = job.id and s.run = job.run and s.name = spawn.name;
    if coalesce(batch.submitted, 0) > first or batch.id is null and exists (
        select from millpond.steps s where s.job_id = job.id and s.run = job.run and s.name = spawn.name
    ) then
        return query select 'repeated', null::bigint, present, null::timestamptz[];
        return;
    end if;

    root := job.id;
    if job.parent_id is not null then
        select b.root_id into root from millpond.batches b where b.id = job.batch_id;
    end if;
    if batch.id is null then
        batch.before := coalesce((
            select b.before + b.total from millpond.batches b
            where b.parent_id = job.id and b.run = job.run order by b.id desc limit 1
        ), 0);
    end if;
    tags := millpond.inherit(job.tags, tags, size);
    wrong := case
        when first > coalesce(batch.submitted, 0) then 'early'
        when total <> batch.total then 'changed'
        when job.depth >= 10 then 'deep'
        when batch.before + total > 10000 then 'wide'
        when (select bool_or((select count(*) from jsonb_object_keys(t)) > 16) from unnest(tags) as t) then 'tagged'
        when millpond.is_cycle(job.id, kinds, inputs) then 'cycle'
    end;
    perform from millpond.trees t where t.root_id = root and t.jobs + size > 100000 for update;
    wrong := case when wrong is not null then wrong when found then 'large' end;
    if wrong is null then
        select r.payer_id, r.remaining into payer, remaining from millpond.reserve(job.id, job.run, job_ids, amounts) r;
        wrong := case when remaining < 0 then 'short' end;
    end if;
    if wrong is not null then
        return query select wrong, -1 - remaining, present, null::timestamptz[];
        return;
    end if;

    insert into millpond.trees as t (root_id, tenant, jobs) values (root, job.tenant, size)
    on conflict (root_id) do update set jobs = t.jobs + excluded.jobs;
    if batch.id is null then
        insert into millpond.batches (
            id, tenant, account, name, parent_id, run, root_id, before, is_detached, fails_fast, total, submitted, created_at
        ) values (
            spawn.batch_id, job.tenant, job.account, spawn.name, job.id, job.run, root, batch.before, spawn.is_detached,
            spawn.fails_fast, spawn.total, size, present
        );
        insert into millpond.steps (job_id, run, name, tenant, position, type, at, batch_id)
        values (job.id, job.run, spawn.name, job.tenant, spawn.position, 'children', present, spawn.batch_id);
    else
        update millpond.batches b set submitted = b.submitted + size where b.id = batch.id;
        batch_id := batch.id;
    end if;
    if job.is_first then
        update millpond.jobs j set depth = 0 where j.id = job.id;
    end if;
    if job.expires_at is not null and not spawn.is_detached then
        lifetimes := array(
            select greatest(least(i.lifetime, job.expires_at - greatest(i.run_at, present)), interval '1 second')
            from unnest(millpond.spread(lifetimes, size), millpond.spread(run_ats, size)) as i(lifetime, run_at)
        );
        if cardinality(lifetimes) = 0 then
            lifetimes := array_fill(greatest(job.expires_at - present, interval '1 second'), array[size]);
        end if;
    end if;

    return query
    select 'spawned', coalesce(remaining, s.available[1]), s.created_at, case
        when is_remote then array(
            select greatest(i.run_at, s.created_at) + i.lifetime
            from unnest(millpond.spread(lifetimes, size), millpond.spread(run_ats, size)) with ordinality as i(lifetime, run_at, n) order by i.n
        )
    end
    from millpond.submit_batch(
        is_fair, is_remote, job_ids, tenants, accounts, kinds, lifecycles, queues, initial_states, entry_states, prices, inputs, scopes,
        keys, requests, priorities, run_ats, lifetimes, retries,
        payers, nths, spents,
        case when payer is null then payer_tenants else '{}' end, case when payer is null then payer_accounts else '{}' end,
        sums, case when payer is null then array_fill(0, array[cardinality(counts)]) else counts end, holds, hooks, tags,
        budgets, batch_id, job.id, (job.depth + 1)::smallint
    ) s;
end $$;

-- function: inherit
-- The tags of children: those of the parent, and their own, which take precedence. Null if none has tags.
create or replace function millpond.inherit(inherited jsonb, tags jsonb[], size integer) returns jsonb[]
language sql immutable as $$
    select case
        when inherited is null then tags
        when tags is null then array_fill(inherited, array[size])
        else array(select inherited || coalesce(i.own, '{}') from unnest(tags) with ordinality as i(own, n) order by i.n)
    end
$$;

-- function: is_cycle
-- Whether one of these children would have the kind and the input of its parent or of another ancestor.
create or replace function millpond.is_cycle(parent uuid, kinds text[], inputs jsonb[]) returns boolean
language sql stable as $$
    with recursive line as (
        select j.id, j.parent_id, j.kind, j.input from millpond.jobs j where j.id = parent
        union all
        select j.id, j.parent_id, j.kind, j.input from line l cross join lateral (
            select j.id, j.parent_id, j.kind, j.input from millpond.jobs j where j.id = l.parent_id limit 1
        ) j
    )
    select exists (
        select from line l
        join unnest(millpond.spread(kinds, cardinality(inputs)), inputs) as i(kind, input) on i.kind = l.kind and i.input = l.input
    )
$$;

-- function: end_members
-- Part of the end of jobs, in the same commit: their batches count them, the ends of clients' batches are announced,
-- parents that wait for them are resumed, and parents among them that leave children behind are stored, so that a service
-- cancels the children.
create or replace function millpond.end_members(job_ids uuid[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
    batch_ids uuid[];
    parents uuid[];
    over uuid[];
begin
    batch_ids := array(
        select distinct j.batch_id from millpond.jobs j
        where j.id = any(job_ids) and j.id >= low and j.id <= high and j.batch_id is not null
    );
    if cardinality(batch_ids) > 1 then
        perform from millpond.batches b where b.id = any(batch_ids) order by b.id for update;
    end if;
    if cardinality(batch_ids) > 0 then
        with counted as (
            update millpond.batches b
            set ended = b.ended + m.ended, succeeded = b.succeeded + m.succeeded, canceled = b.canceled + m.canceled,
                failed = b.failed + m.ended - m.succeeded - m.canceled, captured = b.captured + m.captured,
                ended_at = case when b.ended + m.ended = b.total then present end
            from (
                select j.batch_id, count(*) as ended, count(*) filter (where j.outcome = 'succeeded') as succeeded,
                    count(*) filter (where j.outcome = 'canceled') as canceled,
                    sum(case when j.parent_id is null then j.captured + coalesce((
                        select u.spent from millpond.budgets u where u.job_id = j.id and u.run = j.run
                    ), 0) end) as captured
                from millpond.jobs j
                where j.id = any(job_ids) and j.id >= low and j.id <= high and j.batch_id is not null
                group by j.batch_id
            ) m
            where b.id = any(batch_ids) and b.id = m.batch_id
            returning b.id, b.parent_id, b.run, b.parent_id is null and b.ended_at is not null as is_over,
                b.is_awaited and (b.ended_at is not null or b.fails_fast and b.failed + b.canceled > 0) as resumes
        )
        select array_agg(c.parent_id) filter (where p.is_current), array_agg(c.id) filter (where c.is_over)
        into parents, over from counted c
        left join lateral (  -- not a later run
            select true as is_current from millpond.jobs p where p.id = c.parent_id and p.run = c.run limit 1
        ) p on c.resumes;
    end if;
    if over is not null then
        perform millpond.announce_batches(over);
    end if;
    if exists (
        select from unnest(job_ids) as i(job_id) cross join lateral (
            select from millpond.batches b where b.parent_id = i.job_id and b.ended_at is null and not b.is_detached limit 1
        ) b
    ) then
        insert into millpond.orphans (job_id, tenant, at)
        select j.id, j.tenant, present from millpond.jobs j
        cross join lateral (
            select from millpond.batches b where b.parent_id = j.id and b.ended_at is null and not b.is_detached limit 1
        ) b
        where j.id = any(job_ids) and j.id >= low and j.id <= high
        order by j.id on conflict do nothing;
    end if;
    if parents is not null then
        update millpond.batches b set is_awaited = false
        where b.id = any(batch_ids) and b.is_awaited and b.parent_id = any(parents);
        perform millpond.resume(parents);
    end if;
end $$;

-- name: spawn :one
select verdict, available, created_at, deadlines
from millpond.spawn(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, is_remote => $10, is_fair => $11, job_ids => $12::uuid[], tenants => $13::text[],
    accounts => $14::text[], kinds => $15::text[], lifecycles => $16::text[], queues => $17::text[],
    initial_states => $18::text[], entry_states => $19::text[], prices => $20::integer[], inputs => $21::jsonb[],
    scopes => $22::text[], keys => $23::text[], requests => $24::jsonb[], priorities => $25::smallint[],
    run_ats => $26::timestamptz[], lifetimes => $27::interval[], retries => $28::uuid[], payers => $29::integer[],
    nths => $30::integer[], spents => $31::bigint[], payer_tenants => $32::text[], payer_accounts => $33::text[],
    sums => $34::bigint[], counts => $35::integer[], holds => $36::integer[], hooks => $37::jsonb, tags => $38::jsonb[],
    budgets => $39::integer[]
);

-- name: read :maybe
select {batches.fields} from millpond.batches b where b.id = $1 and b.tenant = $2;

-- name: of_parent :many
-- The batches of a job, the oldest first.
select {batches.fields} from millpond.batches b where b.parent_id = $1 and b.tenant = $2 and b.id > $3 order by b.id limit $4;

-- fragment: fields
b.id, b.tenant, b.account, b.name, b.parent_id, b.run, b.is_detached, b.fails_fast, b.total, b.submitted, b.ended, b.succeeded,
    b.failed, b.canceled, b.created_at, b.ended_at, b.price, b.captured, b.canceled_at, b.tags

-- name: results :many
-- The jobs of a batch in order, with their results, after an id.
-- The page ends with the job with which the JSON has reached 4 MiB.
select j.id as job_id, j.kind, j.outcome, j.output, j.error
from (
    select j.id, j.kind, j.outcome, j.output, j.error,
        sum(coalesce(octet_length(j.output::text), 0) + coalesce(octet_length(j.error::text), 0)) over (
            order by j.id rows between unbounded preceding and 1 preceding
        ) as size_before
    from (
        select j.id, j.kind, j.outcome, j.output, j.error from millpond.jobs j
        where j.batch_id = $1 and j.id > $2
        order by j.id limit $3
    ) j
) j
where coalesce(j.size_before, 0) < 4 * 1024 * 1024
order by j.id;

-- name: children_of :many
-- The ids of a job's children after one of them, batch by batch, the oldest first, and how many there are up to the
-- limit. The page ends with the child with which the JSON has reached 4 MiB.
select c.job_id, c.found
from (
    select c.*, count(*) over () as found,
        sum(c.size) over (order by c.batch_id, c.job_id rows between unbounded preceding and 1 preceding) as size_before
    from (
        select b.id as batch_id, j.id as job_id, octet_length(j.input::text) + coalesce(octet_length(j.output::text), 0)
            + coalesce(octet_length(j.error::text), 0) as size
        from (
            select (select j.batch_id from millpond.jobs j where j.id = $3 and j.parent_id = $1) as batch_id
        ) at
        cross join lateral (
            select b.id from millpond.batches b
            where b.parent_id = $1 and b.tenant = $2 and b.id >= coalesce(at.batch_id, '00000000-0000-0000-0000-000000000000')
            order by b.id
        ) b
        cross join lateral (
            select j.id, j.input, j.output, j.error from millpond.jobs j
            where j.batch_id = b.id
                and j.id > case when b.id > at.batch_id then '00000000-0000-0000-0000-000000000000' else $3 end
            order by j.id limit $4
        ) j
        order by b.id, j.id limit $4
    ) c
) c
where coalesce(c.size_before, 0) < 4 * 1024 * 1024
order by c.batch_id, c.job_id;

-- name: parents :many
-- Those of these jobs that have children.
select i.job_id from unnest($1::uuid[]) as i(job_id)
cross join lateral (select from millpond.batches b where b.parent_id = i.job_id and b.tenant = $2 limit 1) b;

-- name: parents_of :many
-- The parents of those of these jobs that are children.
select distinct j.parent_id as job_id from millpond.jobs j
where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
    and j.tenant = $2 and j.parent_id is not null;

-- name: counted :one
-- How many children a job has, and how they ended.
select coalesce(sum(b.submitted), 0)::integer as submitted, coalesce(sum(b.ended), 0)::integer as ended,
    coalesce(sum(b.succeeded), 0)::integer as succeeded, coalesce(sum(b.failed), 0)::integer as failed,
    coalesce(sum(b.canceled), 0)::integer as canceled
from millpond.batches b where b.parent_id = $1 and b.tenant = $2;

-- name: last :maybe
-- The greatest id in the batch of a step, if there is one yet.
select (
    select j.id from millpond.jobs j where j.batch_id = s.batch_id order by j.id desc limit 1
) as job_id
from millpond.jobs p
join millpond.steps s on s.job_id = p.id and s.run = p.run and s.name = $2
where p.id = $1;

-- name: members :many
-- The jobs of a batch in order, after an id.
select {jobs.fields}, input, memo, answer, output, error
from millpond.jobs where batch_id = $1 and id > $2 and tenant = $4
order by id limit $3;

-- name: ready_queues :many
-- The queues of those of these jobs that are ready.
select distinct j.queue from millpond.jobs j
where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[]) and j.phase = 'ready';

-- name: orphans :many
-- Jobs that ended before their children, the oldest first.
select o.job_id, o.tenant from millpond.orphans o where o.at <= millpond.clock() order by o.at, o.job_id limit $1;

-- name: children :many
-- Children that have not ended and are not detached, of which no cancel was requested. If their parent runs again, its
-- present run keeps its children.
select j.id as job_id
from millpond.batches b
cross join lateral (
    select from millpond.jobs p where p.id = b.parent_id and (p.phase = 'ended' or p.run > b.run) limit 1
) p
cross join lateral (
    select j.id from millpond.jobs j
    where j.batch_id = b.id and j.phase <> 'ended' and j.cancel_requested_at is null order by j.id limit $2
) j
where b.parent_id = $1 and b.ended_at is null and not b.is_detached
order by j.id limit $2;

-- name: drop_orphans :many
-- Deletes jobs all of whose children have ended or are detached; the others are looked at again later.
-- A batch of which not all jobs were submitted has no end, so its jobs are counted.
with over as (
    delete from millpond.orphans o
    where o.job_id = any($1::uuid[]) and not exists (
        select from millpond.batches b where b.parent_id = o.job_id and b.ended < b.submitted and not b.is_detached
    )
    returning o.job_id
),
later as (
    update millpond.orphans o set at = millpond.clock() + interval '5 seconds'
    where o.job_id = any($1::uuid[]) and exists (
        select from millpond.batches b where b.parent_id = o.job_id and b.ended < b.submitted and not b.is_detached
    )
)
select job_id from over;
