-- Chunks: the text that running jobs emit, in pieces, until soon after their end. Database: tenant.
-- Invariants: the chunks of an attempt are numbered 1..n without a gap. `after` is the number of the job's last event at
-- the time; the job is locked until the chunk is committed, so (after, number) is the order in which the events and
-- chunks of a job were committed, and no chunk follows the end of its attempt. A job has chunks of one attempt only.

-- function: emit
-- Writes chunks of running jobs, and returns a verdict for each job that is held: 'written'; 'repeated' if all its chunks
-- were written before; 'gap' if a number is missing; 'full' if the attempt would have emitted more than `size_max` bytes;
-- 'gated' if its kind has a gate. Except for the first two, no chunk of the job is written. `last` is the number of its
-- last chunk.
create or replace function millpond.emit(
    job_ids uuid[], tokens uuid[], numbers integer[], texts text[], size_max integer
) returns table (job_id uuid, token uuid, verdict text, is_canceling boolean, last integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    epochs integer[];
begin
    select array_agg(h.epoch order by i.n) into epochs
    from unnest(emit.job_ids, tokens) with ordinality as i(job_id, token, n)
    left join millpond.held(emit.job_ids, tokens) h on h.job_id = i.job_id and h.token = i.token;
    return query
    select c.job_id, c.token, c.verdict, c.is_canceling, c.last
    from millpond.emit_chunks(emit.job_ids, tokens, epochs, numbers, texts, size_max) c;
end $$;

-- function: emit_chunks
-- The tenant database's half. `epochs` are those of the leases that still hold; a chunk without one is skipped. A job
-- that was leased again meanwhile has another epoch. The first chunk of an attempt comes after an event of its own, by
-- which readers notice that there is text, and replaces the chunks of earlier attempts.
create or replace function millpond.emit_chunks(
    job_ids uuid[], tokens uuid[], epochs integer[], numbers integer[], texts text[], size_max integer
) returns table (job_id uuid, token uuid, verdict text, is_canceling boolean, last integer)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
    ids uuid[];
    held_epochs integer[];
    seqs integer[];
    tenants text[];
    states text[];
    asked boolean[];
    gated boolean[];
begin
    -- Locked by a statement of its own, so that the next one sees what others have written while they held the locks.
    select array_agg(j.id), array_agg(j.epoch), array_agg(j.events), array_agg(j.tenant), array_agg(j.state),
        array_agg(j.is_canceling), array_agg(k.declaration ->> 'gate' is not null)
    into ids, held_epochs, seqs, tenants, states, asked, gated
    from (
        select j.id, j.kind, j.epoch, j.events, j.tenant, j.state, j.cancel_requested_at is not null as is_canceling
        from millpond.jobs j
        where j.id = any(emit_chunks.job_ids) and j.id >= low and j.id <= high and j.phase = 'leased'
        order by j.id for no key update
    ) j
    join millpond.kinds k on k.kind = j.kind;
    return query
    with locked as materialized (
        select o.*, coalesce(c.number, 0) as last, coalesce(c.total, 0) as total
        from unnest(ids, held_epochs, seqs, tenants, states, asked, gated)
            as o(job_id, epoch, seq, tenant, state, is_canceling, is_gated)
        left join lateral (
            select c.epoch, c.number, c.total from millpond.chunks c
            where c.job_id = o.job_id order by c.after desc, c.number desc limit 1
        ) c on c.epoch = o.epoch
    ),
    item as materialized (
        select distinct on (i.job_id, i.number) i.job_id, i.token, i.number, i.text
        from unnest(emit_chunks.job_ids, tokens, epochs, numbers, texts) with ordinality
            as i(job_id, token, epoch, number, text, n)
        join locked o on o.job_id = i.job_id and o.epoch = i.epoch
        order by i.job_id, i.number, i.n
    ),
    judged as materialized (
        select o.job_id, i.token, o.epoch, o.seq, o.tenant, o.state, o.is_canceling, o.last, o.total,
            case
                when o.is_gated then 'gated'
                when i.fresh = 0 then 'repeated'
                when i.first <> o.last + 1 or i.latest <> o.last + i.fresh then 'gap'
                when o.total + i.size > emit_chunks.size_max then 'full'
                else 'written'
            end as verdict,
            i.latest
        from locked o
        join (
            select i.job_id, i.token, count(*) filter (where i.number > o.last) as fresh,
                min(i.number) filter (where i.number > o.last) as first, max(i.number) as latest,
                sum(octet_length(i.text)) filter (where i.number > o.last) as size
            from item i join locked o on o.job_id = i.job_id
            group by i.job_id, i.token
        ) i on i.job_id = o.job_id
    ),
    begun as (
        update millpond.jobs j set events = j.events + 1
        from judged v
        where j.id = any(ids) and j.id >= low and j.id <= high and v.job_id = j.id
            and v.verdict = 'written' and v.last = 0
        returning j.id, j.events, v.epoch, v.tenant, v.state
    ),
    logged as (
        insert into millpond.events (job_id, seq, at, type, state, tenant)
        select b.id, b.events, present, 'text_started', b.state, b.tenant from begun b
    ),
    replaced as (
        delete from millpond.chunks c using begun b where c.job_id = b.id and c.epoch < b.epoch
    ),
    written as (
        insert into millpond.chunks (job_id, after, number, epoch, tenant, at, total, text)
        select v.job_id, coalesce(b.events, v.seq), i.number, v.epoch, v.tenant, present,
            v.total + sum(octet_length(i.text)) over (partition by i.job_id order by i.number), i.text
        from judged v
        join item i on i.job_id = v.job_id and i.number > v.last
        left join begun b on b.id = v.job_id
        where v.verdict = 'written'
    )
    select v.job_id, v.token, v.verdict, v.is_canceling, case when v.verdict = 'written' then v.latest else v.last end
    from judged v;
end $$;

-- name: emit :many
select job_id, token, verdict, is_canceling, last
from millpond.emit($1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5);

-- name: prune :one
-- Looks at the next $3 jobs with chunks after an id, and deletes the chunks of those that have ended at least this long
-- ago. Returns the number of these jobs, and the last id; null if there are no more. It steps from job to job, because a
-- job may have thousands of chunks.
with recursive emitting as (
    select (select c.job_id from millpond.chunks c where c.job_id > $2 order by c.job_id limit 1) as job_id, 1 as n
    union all
    select (select c.job_id from millpond.chunks c where c.job_id > e.job_id order by c.job_id limit 1), e.n + 1
    from emitting e where e.job_id is not null and e.n < $3
),
over as materialized (
    select e.job_id from emitting e
    cross join lateral (
        select from millpond.jobs j
        where j.id = e.job_id and j.phase = 'ended' and j.finished_at < millpond.clock() - $1::interval limit 1
    ) j
),
gone as (
    delete from millpond.chunks c where c.job_id = any(array(select o.job_id from over o))
)
select (select count(*) from over) as jobs, (select e.job_id from emitting e order by e.n desc limit 1) as last;
