-- Inserts ended jobs of the past weeks, with the rows that the engine writes: $1 jobs, numbered from $2, of $3 in all, over $4 days.
with born as (
    select n, millpond.clock() - interval '1 minute' - (n::float8 / $3::bigint) * $4::integer * interval '1 day' as at
    from generate_series($2::bigint, $2::bigint + $1::bigint - 1) n
),
job as materialized (
    select n, at, (substr(millpond.first_id(at)::text, 1, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid as id,
        'tenant-' || n % 10 as tenant, 'account-' || n % 1000 as account, 'kind-' || n / 10 % 4 as kind,
        case when n % 51 = 0 then 'canceled' when n % 13 = 0 then 'failed' else 'succeeded' end as state,
        (n % 97) * interval '40 milliseconds' as wait, (n % 89) * (n % 13) * interval '50 milliseconds' as run,
        case when n % 13 = 0 and n % 51 <> 0 then jsonb_build_object(
            'code', 'error_' || n / 13 % 3, 'message', format('Step %s of %s failed', (array['a', 'b'])[1 + n / 39 % 2], n)
        ) end as error
    from born
),
made as (
    insert into millpond.jobs (
        id, tenant, account, kind, lifecycle, queue, state, phase, outcome, priority, epoch, events, price, captured,
        progress, created_at, started_at, finished_at, input, output, error, fingerprint
    )
    select id, tenant, account, kind, 'standard', kind, state, 'ended', state, 0, 1, 3, 5, case state when 'succeeded' then 5 else 0 end,
        1, at, at + wait, at + wait + run, jsonb_build_object('sequence', n), '{}', error,
        case when error is not null then millpond.fingerprint(kind, 'failed', error) end
    from job
)
insert into millpond.events (job_id, seq, at, type, state, tenant)
select id, e.seq, at, e.type, e.state, tenant
from job cross join lateral (values (1, 'submitted', 'queued'), (2, 'started', 'running'), (3, state, state)) as e(seq, type, state)
where n % 20 = 0;
