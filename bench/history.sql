-- Inserts ended jobs, with the rows that the engine writes: $1 jobs, numbered from $2, all created this week.
with born as (
    select n, millpond.first_id(millpond.week(millpond.clock()) + n * interval '50 milliseconds') as start,
        gen_random_uuid() as random
    from generate_series($2::bigint, $2::bigint + $1::bigint - 1) n
),
job as materialized (
    select n, (substr(start::text, 1, 14) || '7' || substr(random::text, 16))::uuid as id,
        millpond.week(millpond.clock()) + n * interval '50 milliseconds' as at
    from born
),
made as (
    insert into millpond.jobs (
        id, tenant, account, kind, lifecycle, queue, state, phase, outcome, priority, epoch, events, price, captured,
        progress, created_at, started_at, finished_at, input, output
    )
    select id, 'bench', 'history-' || n % 1000, 'noop', 'standard', 'noop', 'succeeded', 'ended', 'succeeded', 0, 1, 3, 5, 5,
        1, at, at, at, jsonb_build_object('sequence', n, 'padding', repeat('x', 160)), '{}'
    from job
),
logged as (
    insert into millpond.events (job_id, seq, at, type, state, tenant)
    select id, e.seq, at, e.type, e.state, 'bench'
    from job cross join (values (1, 'submitted', 'queued'), (2, 'started', 'running'), (3, 'succeeded', 'succeeded')) as e(seq, type, state)
),
keyed as (
    insert into millpond.idempotency (tenant, scope, key, job_id, created_at)
    select 'bench', 'history-' || n % 1000, 'order-' || n, id, at from job
)
insert into millpond.entries (
    tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
)
select 'bench', 'history-' || n % 1000, 2 * (n / 1000) + e.nth, at, e.type, e.available, e.held, e.outside, 0, 0, id, 1
from job cross join (values (1, 'hold', -5, 5, 0), (2, 'capture', 0, -5, 5)) as e(nth, type, available, held, outside);
