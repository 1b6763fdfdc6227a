-- Counters: the numbers of jobs, without counting jobs. Database: tenant.
-- Invariants: a counter change commits with the transition that it records, and is merged and removed in one
-- transaction. So merged and unmerged changes always add up to what counting the jobs would give.

-- function: minute
create or replace function millpond.minute(instant timestamptz) returns timestamptz
language sql immutable strict parallel safe as $$
    select date_bin(interval '1 minute', instant, timestamptz '2024-01-01 00:00:00+00')
$$;

-- function: bucket
-- The bucket of a duration on a logarithmic scale: two buckets double it. It is written so that the planner can inline
-- it; a call would cost a statement more than all other counters.
create or replace function millpond.bucket(length interval) returns smallint
language sql immutable parallel safe as $$
    select floor(2.885390081777927 * ln(greatest(0, date_part('epoch', length)) * 1000 + 1))::smallint
$$;

-- function: histogram
-- A sparse histogram of durations: for each bucket that is not empty, 64 times its number of durations, plus the
-- bucket. The last bucket contains everything longer, too. A minute of a tenant fills one or two buckets; zeros would
-- be most of the table.
create or replace function millpond.histogram(buckets smallint[], numbers bigint[]) returns bigint[]
language plpgsql immutable parallel safe as $$
begin
    if cardinality(buckets) = 1 then
        return array[numbers[1] * 64 + least(buckets[1], 63)];
    end if;
    return (
        select array_agg(i.n * 64 + i.bucket order by i.bucket)
        from (
            select least(i.bucket, 63) as bucket, sum(i.n)::bigint as n
            from unnest(buckets, numbers) as i(bucket, n) group by least(i.bucket, 63)
        ) i
    );
end $$;

-- function: add_histograms
-- The sum of two histograms.
create or replace function millpond.add_histograms(one bigint[], other bigint[]) returns bigint[]
language sql immutable parallel safe as $$
    select case
        when one is null or other is null then coalesce(one, other)
        else array(select sum(i >> 6)::bigint * 64 + (i & 63) from unnest(one || other) i group by i & 63 order by i & 63)
    end
$$;

-- function: fingerprint
-- Identifies failures that differ only in numbers, ids, quoted text, paths and addresses. A short quoted word is mostly
-- the name of a field, and a number after `HTTP`, `status`, `code` and the like says what happened: these are kept,
-- between marks that later replacements do not match across.
create or replace function millpond.fingerprint(kind text, event text, error jsonb) returns text
language plpgsql immutable parallel safe as $$
declare
    gist text := btrim(regexp_replace(left(coalesce(error ->> 'message', ''), 1000), '\s+', ' ', 'g'));
    mark text := chr(3);
begin
    gist := regexp_replace(gist, '(https?://)([^\s/?#"''<>@]*@)?([^\s/?#"''<>]+)[^\s"''<>]*', '\1\3/~', 'g');
    gist := regexp_replace(gist, '[\w.%+-]{1,64}@[\w-]+(\.[\w-]+)+', '~', 'g');
    gist := regexp_replace(gist, '(?<!\w)["`'']([A-Za-z_]{1,20})["`''](?!\w)', mark || '\1' || mark, 'g');
    gist := regexp_replace(gist, '"[^"]*"|`[^`]*`|\y''[^'']*''(?!\w)|(?<!\w)''[^'']*''(?!\w)', '~', 'g');
    gist := regexp_replace(gist, '\meyJ[\w-]{7,}(\.[\w-]+)*', '~', 'g');
    gist := regexp_replace(gist, '\m[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\M', '~', 'gi');
    gist := regexp_replace(gist, '(?<![\w~/])(~|\.{1,2}|[A-Za-z]:)?([/\\][\w.@~+-]+){2,}', '~', 'g');
    gist := regexp_replace(
        gist, '(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{10,}(?![A-Za-z0-9])', '~', 'g'
    );
    gist := regexp_replace(gist, '\m(0x)?(?=[0-9a-f]*[0-9])[0-9a-f]{6,}\M', '~', 'gi');
    gist := regexp_replace(
        gist, '\m(http(/[0-9.]+)?|status|code|exit|signal|errno)([ :=]{1,3})(\d)(\d?)(\d?)(?!\w|[.,]\d)',
        '\1\3' || mark || '\4' || mark || '\5' || mark || '\6', 'gi'
    );
    gist := regexp_replace(gist, '(?<!\u0003)\d+([.,:_-]\d+)*', '~', 'g');
    return left(encode(sha256(convert_to(
        concat_ws(chr(31), kind, coalesce(error ->> 'code', event), left(gist, 300)), 'UTF8'
    )), 'hex'), 16);
end $$;

-- function: count_failures
-- Writes counter changes for jobs that have just failed. Part of millpond.transition: same transaction.
create or replace function millpond.count_failures(present timestamptz, event text, job_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    insert into millpond.counter_changes (at, tenant, kind, event, n, price, captured, fingerprint, code, message, sample)
    select millpond.minute(present), j.tenant, j.kind, count_failures.event, count(*), sum(j.price), sum(j.captured),
        j.fingerprint, (array_agg(coalesce(j.error ->> 'code', count_failures.event)))[1],
        (array_agg(left(j.error ->> 'message', 500)))[1], (array_agg(j.id))[1]
    from millpond.jobs j
    where j.id = any(count_failures.job_ids) and j.id >= low and j.id <= high
    group by j.tenant, j.kind, j.fingerprint;
end $$;

-- function: gathered
-- The unmerged changes, with equal ones added up: there may be very many if no service runs.
create or replace function millpond.gathered() returns setof millpond.counter_changes
language sql stable as $$
    select t.at, t.tenant, t.kind, t.event, t.from_state, t.from_phase, t.to_state, t.to_phase, t.outcome,
        sum(t.n)::integer, sum(t.price)::bigint, sum(t.captured)::bigint, t.bucket, t.fingerprint, min(t.code),
        min(t.message), (array_agg(t.sample) filter (where t.sample is not null))[1]
    from millpond.counter_changes t
    group by t.at, t.tenant, t.kind, t.event, t.from_state, t.from_phase, t.to_state, t.to_phase, t.outcome, t.bucket,
        t.fingerprint
$$;

-- function: counted
-- What the changes add to the counts of jobs.
create or replace function millpond.counted(given millpond.counter_changes[]) returns setof millpond.counts
language sql stable as $$
    select c.tenant, c.kind, c.state, c.phase, sum(c.n)::bigint, sum(c.held)::bigint
    from unnest(given) t
    cross join lateral (values
        (t.tenant, t.kind, t.to_state, t.to_phase, t.n, case when t.to_phase = 'ended' then 0 else t.price end),
        (t.tenant, t.kind, t.from_state, t.from_phase, -t.n, case when t.from_phase = 'ended' then 0 else -t.price end)
    ) as c(tenant, kind, state, phase, n, held)
    where c.state is not null
    group by c.tenant, c.kind, c.state, c.phase
$$;

-- function: flowed
-- What the changes add to the flows of minutes or hours: by tenant and kind, by tenant, by kind, and in total.
create or replace function millpond.flowed(given millpond.counter_changes[], step interval) returns setof millpond.flows
language sql stable as $$
    select step, coalesce(t.tenant, ''), coalesce(t.kind, ''), t.at,
        coalesce(sum(t.n) filter (where t.event = 'submitted'), 0)::integer,
        coalesce(sum(t.n) filter (where t.outcome = 'succeeded'), 0)::integer,
        coalesce(sum(t.n) filter (where t.outcome in ('failed', 'blocked')), 0)::integer,
        coalesce(sum(t.n) filter (where t.outcome = 'canceled'), 0)::integer,
        coalesce(sum(t.n) filter (where t.outcome = 'expired'), 0)::integer,
        coalesce(sum(t.n) filter (where t.event in ('requeued', 'retried')), 0)::integer,
        coalesce(sum(t.captured), 0)::bigint,
        millpond.histogram(
            array_agg(t.bucket) filter (where t.bucket is not null and t.event = 'started'),
            array_agg(t.n::bigint) filter (where t.bucket is not null and t.event = 'started')
        ),
        millpond.histogram(
            array_agg(t.bucket) filter (where t.bucket is not null and t.outcome is not null),
            array_agg(t.n::bigint) filter (where t.bucket is not null and t.outcome is not null)
        )
    from (
        select t.tenant, t.kind, date_bin(step, t.at, timestamptz '2024-01-01 00:00:00+00') as at, t.event, t.outcome, t.n,
            t.captured, t.bucket
        from unnest(given) t
        where t.event in ('submitted', 'started', 'requeued', 'retried') or t.outcome is not null
    ) t
    group by grouping sets ((t.at, t.tenant, t.kind), (t.at, t.tenant), (t.at, t.kind), (t.at))
$$;

-- function: lasted
-- How long the jobs of these changes waited and ran, by kind.
create or replace function millpond.lasted(given millpond.counter_changes[]) returns setof millpond.lengths
language sql stable as $$
    select t.kind,
        millpond.histogram(
            array_agg(t.bucket) filter (where t.event = 'started'),
            array_agg(t.n::bigint) filter (where t.event = 'started')
        ),
        millpond.histogram(
            array_agg(t.bucket) filter (where t.outcome is not null),
            array_agg(t.n::bigint) filter (where t.outcome is not null)
        )
    from unnest(given) t
    where t.bucket is not null
    group by t.kind
$$;

-- function: failed
-- What the changes add to the failure flows of minutes or hours: by tenant, and in total.
create or replace function millpond.failed(given millpond.counter_changes[], step interval) returns setof millpond.failure_flows
language sql stable as $$
    select step, coalesce(t.tenant, ''), t.fingerprint, t.at, sum(t.n)::bigint, sum(t.price - t.captured)::bigint
    from (
        select t.tenant, t.fingerprint, date_bin(step, t.at, timestamptz '2024-01-01 00:00:00+00') as at, t.n, t.price,
            t.captured
        from unnest(given) t where t.fingerprint is not null
    ) t
    group by grouping sets ((t.at, t.tenant, t.fingerprint), (t.at, t.fingerprint))
$$;

-- function: seen
-- The failures in these changes.
create or replace function millpond.seen(given millpond.counter_changes[]) returns setof millpond.failures
language sql stable as $$
    select distinct on (t.fingerprint, t.tenant) t.fingerprint, t.tenant, t.kind, t.code, coalesce(t.message, ''),
        min(t.at) over failure, max(t.at) over failure, t.sample
    from unnest(given) t where t.fingerprint is not null
    window failure as (partition by t.fingerprint, t.tenant)
    order by t.fingerprint, t.tenant, t.at desc
$$;

-- function: capped
-- The same changes, with at most `row_limit` new fingerprints in a day for each tenant, kind and code: failures beyond
-- that share one fingerprint. Without this, messages that never repeat would have a row each. All are counted in the
-- sums, and jobs keep their own fingerprints.
create or replace function millpond.capped(given millpond.counter_changes[], row_limit integer) returns millpond.counter_changes[]
language plpgsql stable as $$
declare
    beyond text[];
begin
    with fresh as (
        select t.tenant, t.kind, t.code, t.fingerprint,
            row_number() over (partition by t.tenant, t.kind, t.code order by min(t.at), t.fingerprint) as n
        from unnest(given) t
        where t.fingerprint is not null and not exists (
            select from millpond.failures f where f.fingerprint = t.fingerprint and f.tenant = t.tenant
        )
        group by t.tenant, t.kind, t.code, t.fingerprint
    ),
    known as (
        select g.tenant, g.kind, g.code, (
            select count(*) from millpond.failures f
            where f.tenant = g.tenant and f.kind = g.kind and f.code = g.code
                and f.first_at > millpond.clock() - interval '1 day'
        ) as n
        from (select distinct f.tenant, f.kind, f.code from fresh f) g
    )
    select array_agg(f.tenant || ' ' || f.fingerprint) into beyond
    from fresh f join known k on k.tenant = f.tenant and k.kind = f.kind and k.code = f.code
    where f.n + k.n > row_limit;
    if beyond is null then
        return given;
    end if;
    return array(
        select row(
            t.at, t.tenant, t.kind, t.event, t.from_state, t.from_phase, t.to_state, t.to_phase, t.outcome, t.n, t.price,
            t.captured, t.bucket, case
                when b.failure is null then t.fingerprint
                else 'others' || left(encode(sha256(convert_to(concat_ws(chr(31), t.kind, t.code), 'UTF8')), 'hex'), 10)
            end, t.code, t.message, t.sample
        )::millpond.counter_changes
        from unnest(given) t left join unnest(beyond) as b(failure) on b.failure = t.tenant || ' ' || t.fingerprint
    );
end $$;

-- function: merge_counter_changes
-- Merges at most `row_limit` changes, and returns how many. In each database one call runs at a time; others return 0
-- at once. It does not wait for transactions that write changes, and they do not wait for it.
create or replace function millpond.merge_counter_changes(row_limit integer, failures_row_limit integer default 200) returns integer
language plpgsql as $$
declare
    given millpond.counter_changes[];
begin
    if not pg_try_advisory_xact_lock(1885695605) then
        return 0;
    end if;
    with gone as (
        delete from millpond.counter_changes t where t.ctid = any(array(select t.ctid from millpond.counter_changes t limit row_limit)) returning t
    )
    select array_agg(g.t) into given from gone g;
    if given is null then
        return 0;
    end if;
    given := millpond.capped(given, failures_row_limit);
    insert into millpond.counts as c (tenant, kind, state, phase, n, held)
    select g.tenant, g.kind, g.state, g.phase, g.n, g.held from millpond.counted(given) g where g.n <> 0 or g.held <> 0
    on conflict (tenant, kind, state, phase) do update set n = c.n + excluded.n, held = c.held + excluded.held;
    perform millpond.merge_flows(given, interval '1 minute');
    perform millpond.merge_flows(given, interval '1 hour');
    insert into millpond.lengths as d (kind, waits, runs)
    select g.kind, g.waits, g.runs from millpond.lasted(given) g
    on conflict (kind) do update
        set waits = millpond.add_histograms(d.waits, excluded.waits), runs = millpond.add_histograms(d.runs, excluded.runs);
    insert into millpond.failures as f (fingerprint, tenant, kind, code, message, first_at, last_at, sample)
    select g.fingerprint, g.tenant, g.kind, g.code, g.message, g.first_at, g.last_at, g.sample from millpond.seen(given) g
    on conflict (fingerprint, tenant) do update set message = excluded.message,
        first_at = least(f.first_at, excluded.first_at), last_at = greatest(f.last_at, excluded.last_at),
        sample = excluded.sample;
    return cardinality(given);
end $$;

-- function: merge_flows
-- Merges the changes into the rows of minutes, or of hours.
create or replace function millpond.merge_flows(given millpond.counter_changes[], step interval) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    insert into millpond.flows as f (
        step, tenant, kind, at, submitted, succeeded, failed, canceled, expired, retried, captured, waits, runs
    )
    select g.step, g.tenant, g.kind, g.at, g.submitted, g.succeeded, g.failed, g.canceled, g.expired, g.retried,
        g.captured, g.waits, g.runs
    from millpond.flowed(given, merge_flows.step) g
    on conflict (step, tenant, kind, at) do update set submitted = f.submitted + excluded.submitted,
        succeeded = f.succeeded + excluded.succeeded, failed = f.failed + excluded.failed,
        canceled = f.canceled + excluded.canceled, expired = f.expired + excluded.expired,
        retried = f.retried + excluded.retried, captured = f.captured + excluded.captured,
        waits = millpond.add_histograms(f.waits, excluded.waits), runs = millpond.add_histograms(f.runs, excluded.runs);
    insert into millpond.failure_flows as f (step, tenant, fingerprint, at, n, released)
    select g.step, g.tenant, g.fingerprint, g.at, g.n, g.released from millpond.failed(given, merge_flows.step) g
    on conflict (step, tenant, at, fingerprint) do update
        set n = f.n + excluded.n, released = f.released + excluded.released;
end $$;

-- function: order_recount
-- Orders a recount of the jobs that have not ended, after a delay in which statements that wrote no counter changes
-- come to their end.
create or replace function millpond.order_recount(delay interval) returns void
language sql as $$
    insert into millpond.recounts (due_at) select millpond.clock() + delay where exists (select from millpond.jobs)
$$;

-- function: recount
-- Recounts the jobs that have not ended, if a recount is due or a count is negative; returns how many counts were
-- wrong. All is read from one snapshot, and the changes that are unmerged in it are subtracted, because they are added
-- when they are merged.
create or replace function millpond.recount() returns integer
language plpgsql as $$
declare
    mended integer;
begin
    if not pg_try_advisory_xact_lock(1885695605) then
        return 0;
    end if;
    delete from millpond.recounts r where r.due_at <= millpond.clock();
    if not found and not exists (
        select from (
            select c.tenant, c.kind, c.state, c.phase, c.n, c.held from millpond.counts c
            union all
            select c.tenant, c.kind, c.state, c.phase, c.n, c.held
            from millpond.counted(array(select t from millpond.gathered() t where t.fingerprint is null)) c
        ) c
        where c.phase <> 'ended'
        group by c.tenant, c.kind, c.state, c.phase
        having sum(c.n) < 0 or sum(c.held) < 0
    ) then
        return 0;
    end if;
    with truth as (
        select j.tenant, j.kind, j.state, j.phase, count(*) as n, sum(j.price) as held
        from millpond.jobs j where j.phase <> 'ended' group by j.tenant, j.kind, j.state, j.phase
    ),
    unmerged as (
        select c.tenant, c.kind, c.state, c.phase, c.n, c.held
        from millpond.counted(array(select t from millpond.gathered() t where t.fingerprint is null)) c where c.phase <> 'ended'
    ),
    known as (select c.tenant, c.kind, c.state, c.phase from millpond.counts c where c.phase <> 'ended')
    insert into millpond.counts as c (tenant, kind, state, phase, n, held)
    select k.tenant, k.kind, k.state, k.phase, coalesce(t.n, 0) - coalesce(u.n, 0), coalesce(t.held, 0) - coalesce(u.held, 0)
    from (
        select tenant, kind, state, phase from truth union select tenant, kind, state, phase from unmerged
        union select tenant, kind, state, phase from known
    ) k
    left join truth t using (tenant, kind, state, phase)
    left join unmerged u using (tenant, kind, state, phase)
    on conflict (tenant, kind, state, phase) do update set n = excluded.n, held = excluded.held
    where (c.n, c.held) is distinct from (excluded.n, excluded.held);
    get diagnostics mended = row_count;
    return mended;
end $$;

-- name: merge :one
select millpond.merge_counter_changes($1) as merged;

-- name: relieve :one
-- Merges changes if at least $1 are unmerged: each read adds all of them up.
select case
    when (select count(*) from (select from millpond.counter_changes limit $1) t) >= $1 then millpond.merge_counter_changes($2)
    else 0
end as merged;

-- name: order_recount :exec
-- Makes a recount due in this transaction, once a running merge has ended.
select millpond.order_recount(interval '0'), pg_advisory_xact_lock(1885695605);

-- name: recount :one
select millpond.recount() as mended;

-- name: prune_flows :one
-- Deletes up to $3 old flows.
with gone as (
    delete from millpond.flows f where f.ctid = any(array(
        select f.ctid from millpond.flows f where f.step = $1::interval and f.at < millpond.clock() - $2::interval limit $3
    )) returning f.at
)
select count(*) as pruned from gone;

-- name: prune_failure_flows :one
with gone as (
    delete from millpond.failure_flows f where f.ctid = any(array(
        select f.ctid from millpond.failure_flows f
        where f.step = $1::interval and f.at < millpond.clock() - $2::interval limit $3
    )) returning f.at
)
select count(*) as pruned from gone;

-- name: prune_failures :one
-- Deletes up to $2 failures that have not occurred for $1.
with gone as (
    delete from millpond.failures f where f.ctid = any(array(
        select f.ctid from millpond.failures f where f.last_at < millpond.clock() - $1::interval limit $2
    )) returning f.last_at
)
select count(*) as pruned from gone;

-- name: counts :many
-- How many jobs of each kind are in each state, and what is held for them; of one tenant, or of all. For a job that a
-- budget pays for, its price is held. For the job with the budget, so is what is neither spent nor reserved for another.
select c.kind, c.state, c.phase, sum(c.n)::bigint as n, sum(c.held)::bigint as held
from (
    select c.kind, c.state, c.phase, c.n, c.held from millpond.counts c where $1::text is null or c.tenant = $1
    union all
    select c.kind, c.state, c.phase, c.n, c.held
    from millpond.counted(array(
        select t from millpond.gathered() t where t.fingerprint is null and ($1::text is null or t.tenant = $1)
    )) c
    union all
    select j.kind, j.state, j.phase, 0, b.amount - b.spent - b.reserved
    from millpond.budgets b
    cross join lateral (select j.kind, j.state, j.phase from millpond.jobs j where j.id = b.job_id limit 1) j
    where b.closed_at is null and ($1::text is null or b.tenant = $1)
) c
group by c.kind, c.state, c.phase
having sum(c.n) <> 0
order by c.kind, c.state, c.phase;

-- name: flows :many
-- The flows by point ($5), each of which is several steps ($1) long; of a tenant and a kind, or of all where they are
-- empty.
with flow as (
    select f.at, f.submitted, f.succeeded, f.failed, f.canceled, f.expired, f.retried, f.captured, f.waits, f.runs
    from millpond.flows f
    where f.step = $1::interval and f.tenant = $2 and f.kind = $3 and f.at >= $4::timestamptz
    union all
    select f.at, f.submitted, f.succeeded, f.failed, f.canceled, f.expired, f.retried, f.captured, f.waits, f.runs
    from millpond.flowed(array(
        select t from millpond.gathered() t
        where t.fingerprint is null and t.at >= $4::timestamptz and ($2 = '' or t.tenant = $2) and ($3 = '' or t.kind = $3)
    ), $1::interval) f
    where f.tenant = $2 and f.kind = $3
),
stretch as (
    select date_bin($5::interval, f.at, $4::timestamptz) as at, f.submitted, f.succeeded, f.failed, f.canceled, f.expired,
        f.retried, f.captured, f.waits, f.runs
    from flow f
),
length as (
    select b.at, array_agg(b.n * 64 + b.bucket) filter (where b.is_wait) as waits,
        array_agg(b.n * 64 + b.bucket) filter (where not b.is_wait) as runs
    from (
        select s.at, i.is_wait, i.one & 63 as bucket, sum(i.one >> 6)::bigint as n
        from stretch s
        cross join lateral (select true as is_wait, unnest(s.waits) as one union all select false, unnest(s.runs)) i
        group by s.at, i.is_wait, i.one & 63
    ) b
    group by b.at
)
select s.at, sum(s.submitted)::bigint as submitted, sum(s.succeeded)::bigint as succeeded, sum(s.failed)::bigint as failed,
    sum(s.canceled)::bigint as canceled, sum(s.expired)::bigint as expired, sum(s.retried)::bigint as retried,
    sum(s.captured)::bigint as captured, l.waits, l.runs
from stretch s
left join length l on l.at = s.at
group by s.at, l.waits, l.runs
order by s.at;

-- name: total :many
-- The total flow since $3, over all kinds; of a tenant, or of all if it is empty.
select coalesce(sum(f.submitted), 0)::bigint as submitted, coalesce(sum(f.succeeded), 0)::bigint as succeeded,
    coalesce(sum(f.failed), 0)::bigint as failed, coalesce(sum(f.canceled), 0)::bigint as canceled,
    coalesce(sum(f.expired), 0)::bigint as expired, coalesce(sum(f.retried), 0)::bigint as retried,
    coalesce(sum(f.captured), 0)::bigint as captured
from (
    select f.submitted, f.succeeded, f.failed, f.canceled, f.expired, f.retried, f.captured from millpond.flows f
    where f.step = $1::interval and f.tenant = $2 and f.kind = '' and f.at >= $3::timestamptz
    union all
    select f.submitted, f.succeeded, f.failed, f.canceled, f.expired, f.retried, f.captured
    from millpond.flowed(array(
        select t from millpond.gathered() t
        where t.fingerprint is null and t.at >= $3::timestamptz and ($2 = '' or t.tenant = $2)
    ), $1::interval) f
    where f.tenant = $2 and f.kind = ''
) f;

-- name: durations :many
-- How long jobs of each kind waited and ran since counting began, over all tenants.
select d.kind, d.waits, d.runs from millpond.lengths d
union all
select d.kind, d.waits, d.runs from millpond.lasted(array(select t from millpond.gathered() t where t.bucket is not null)) d;

-- name: spenders :many
-- The tenants from which the most credits were captured since $1.
select f.tenant, sum(f.captured)::bigint as captured, sum(f.jobs)::bigint as jobs
from (
    select f.tenant, f.captured, f.succeeded + f.failed + f.canceled + f.expired as jobs from millpond.flows f
    where f.step = interval '1 minute' and f.at >= $1::timestamptz and f.kind = '' and f.tenant <> ''
        and ($2::text is null or f.tenant = $2)
    union all
    select f.tenant, f.captured, f.succeeded + f.failed + f.canceled + f.expired
    from millpond.flowed(array(
        select t from millpond.gathered() t
        where t.fingerprint is null and t.at >= $1::timestamptz and ($2::text is null or t.tenant = $2)
    ), interval '1 minute') f
    where f.kind = '' and f.tenant <> ''
) f
group by f.tenant
having sum(f.captured) > 0
order by sum(f.captured) desc, f.tenant
limit $3;

-- name: failures :many
-- The most frequent failures since $3, with their numbers by point ($4); of one tenant, or of all if it is empty.
with given as (
    select array(
        select t from millpond.gathered() t
        where t.fingerprint is not null and t.at >= $3::timestamptz and ($2 = '' or t.tenant = $2)
    ) as changes
),
flow as materialized (
    select f.fingerprint, f.at, f.n, f.released from millpond.failure_flows f
    where f.step = $1::interval and f.tenant = $2 and f.at >= $3::timestamptz
    union all
    select f.fingerprint, f.at, f.n, f.released from given g, millpond.failed(g.changes, $1::interval) f where f.tenant = $2
),
known as (
    select f.fingerprint, f.tenant, f.kind, f.code, f.message, f.first_at, f.last_at, f.sample
    from millpond.failures f where f.fingerprint = any(array(select distinct f.fingerprint from flow f))
        and ($2 = '' or f.tenant = $2)
    union all
    select f.fingerprint, f.tenant, f.kind, f.code, f.message, f.first_at, f.last_at, f.sample
    from given g, millpond.seen(g.changes) f
),
failure as (
    select k.fingerprint, min(k.kind collate "C") as kind, min(k.first_at) as first_at, max(k.last_at) as last_at,
        count(distinct k.tenant) filter (where k.last_at >= $3::timestamptz) as tenants,
        (array_agg(k.code order by k.last_at desc))[1] as code, (array_agg(k.message order by k.last_at desc))[1] as message,
        (array_agg(k.sample order by k.last_at desc))[1] as sample
    from known k
    where $5::text is null or k.kind = $5
    group by k.fingerprint
),
row_limit as (
    select f.fingerprint, sum(f.n)::bigint as n, sum(f.released)::bigint as released
    from flow f join failure w on w.fingerprint = f.fingerprint
    group by f.fingerprint
    order by sum(f.n) desc, f.fingerprint
    limit $6
),
stretch as (
    select s.fingerprint, array_agg(s.at order by s.at) as ats, array_agg(s.n order by s.at) as ns
    from (
        select f.fingerprint, date_bin($4::interval, f.at, $3::timestamptz) as at, sum(f.n)::bigint as n
        from flow f join row_limit m on m.fingerprint = f.fingerprint
        group by 1, 2
    ) s
    group by s.fingerprint
)
select m.fingerprint, w.kind, w.code, w.message, m.n, w.first_at, w.last_at, w.tenants, m.released, w.sample, s.ats, s.ns
from row_limit m
join failure w on w.fingerprint = m.fingerprint
join stretch s on s.fingerprint = m.fingerprint
order by m.n desc, m.fingerprint;
