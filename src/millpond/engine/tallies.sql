-- Tallies: what is known of jobs without counting them. Home: tenant.
-- Invariants: a tally commits with what it tells of, and is folded and removed in one transaction. So what is folded and
-- what is not yet add up, at every moment, to what the jobs themselves would say.

-- function: minute
create or replace function millpond.minute(moment timestamptz) returns timestamptz
language sql immutable strict parallel safe as $$
    select date_bin(interval '1 minute', moment, timestamptz '2024-01-01 00:00:00+00')
$$;

-- function: bucket
-- A length of time on a logarithmic scale: two buckets double it. It is written so that the planner can put it in the
-- place of the call, which would cost a statement more than all else that is tallied.
create or replace function millpond.bucket(length interval) returns smallint
language sql immutable parallel safe as $$
    select floor(2.885390081777927 * ln(greatest(0, date_part('epoch', length)) * 1000 + 1))::smallint
$$;

-- function: histogram
-- How many lengths of time fall in each bucket, those that have some, the last with all that is longer: 64 times how many,
-- and the bucket. A minute of a tenant is a number or two; written out, its zeros would be most of the table.
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

-- function: pile
-- Two histograms as one.
create or replace function millpond.pile(one bigint[], other bigint[]) returns bigint[]
language sql immutable parallel safe as $$
    select case
        when one is null or other is null then coalesce(one, other)
        else array(select sum(i >> 6)::bigint * 64 + (i & 63) from unnest(one || other) i group by i & 63 order by i & 63)
    end
$$;

-- function: fingerprint
-- What failures have in common that differ in numbers, ids, quoted text, paths and addresses alone. A short quoted word is
-- mostly the name of a field, and a number that follows `HTTP`, `status`, `code` and the like says what happened: these
-- are kept, between marks that nothing after them looks through.
create or replace function millpond.fingerprint(kind text, moment text, error jsonb) returns text
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
        concat_ws(chr(31), kind, coalesce(error ->> 'code', moment), left(gist, 300)), 'UTF8'
    )), 'hex'), 16);
end $$;

-- function: tally_failures
-- Tallies how jobs have just failed. Part of millpond.move: same transaction. These tallies move no job.
create or replace function millpond.tally_failures(present timestamptz, moment text, job_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    insert into millpond.tallies (at, tenant, kind, moment, n, price, captured, fingerprint, code, message, sample)
    select millpond.minute(present), j.tenant, j.kind, tally_failures.moment, count(*), sum(j.price), sum(j.captured),
        j.fingerprint, (array_agg(coalesce(j.error ->> 'code', tally_failures.moment)))[1],
        (array_agg(left(j.error ->> 'message', 500)))[1], (array_agg(j.id))[1]
    from millpond.jobs j
    where j.id = any(tally_failures.job_ids) and j.id >= low and j.id <= high
    group by j.tenant, j.kind, j.fingerprint;
end $$;

-- function: gathered
-- The tallies that have not been folded, those that are alike as one: there may be a heap of them where no service runs.
create or replace function millpond.gathered() returns setof millpond.tallies
language sql stable as $$
    select t.at, t.tenant, t.kind, t.moment, t.from_state, t.from_phase, t.to_state, t.to_phase, t.outcome,
        sum(t.n)::integer, sum(t.price)::bigint, sum(t.captured)::bigint, t.bucket, t.fingerprint, min(t.code),
        min(t.message), (array_agg(t.sample) filter (where t.sample is not null))[1]
    from millpond.tallies t
    group by t.at, t.tenant, t.kind, t.moment, t.from_state, t.from_phase, t.to_state, t.to_phase, t.outcome, t.bucket,
        t.fingerprint
$$;

-- function: counted
-- What tallies change in the counts of jobs.
create or replace function millpond.counted(given millpond.tallies[]) returns setof millpond.counts
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
-- What tallies say of the minutes or hours they are of: each tenant and each kind, and all of them.
create or replace function millpond.flowed(given millpond.tallies[], step interval) returns setof millpond.flows
language sql stable as $$
    select step, coalesce(t.tenant, ''), coalesce(t.kind, ''), t.at,
        coalesce(sum(t.n) filter (where t.moment = 'submitted'), 0)::integer,
        coalesce(sum(t.n) filter (where t.outcome = 'succeeded'), 0)::integer,
        coalesce(sum(t.n) filter (where t.outcome in ('failed', 'blocked')), 0)::integer,
        coalesce(sum(t.n) filter (where t.outcome = 'canceled'), 0)::integer,
        coalesce(sum(t.n) filter (where t.outcome = 'expired'), 0)::integer,
        coalesce(sum(t.n) filter (where t.moment in ('requeued', 'retried')), 0)::integer,
        coalesce(sum(t.captured), 0)::bigint,
        millpond.histogram(
            array_agg(t.bucket) filter (where t.bucket is not null and t.moment = 'started'),
            array_agg(t.n::bigint) filter (where t.bucket is not null and t.moment = 'started')
        ),
        millpond.histogram(
            array_agg(t.bucket) filter (where t.bucket is not null and t.outcome is not null),
            array_agg(t.n::bigint) filter (where t.bucket is not null and t.outcome is not null)
        )
    from (
        select t.tenant, t.kind, date_bin(step, t.at, timestamptz '2024-01-01 00:00:00+00') as at, t.moment, t.outcome, t.n,
            t.captured, t.bucket
        from unnest(given) t
        where t.moment in ('submitted', 'started', 'requeued', 'retried') or t.outcome is not null
    ) t
    group by grouping sets ((t.at, t.tenant, t.kind), (t.at, t.tenant), (t.at, t.kind), (t.at))
$$;

-- function: lasted
-- How long the jobs that tallies tell of waited and ran, by kind.
create or replace function millpond.lasted(given millpond.tallies[]) returns setof millpond.lengths
language sql stable as $$
    select t.kind,
        millpond.histogram(
            array_agg(t.bucket) filter (where t.moment = 'started'),
            array_agg(t.n::bigint) filter (where t.moment = 'started')
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
-- What tallies say of failures in the minutes or hours they are of: of each tenant, and of all.
create or replace function millpond.failed(given millpond.tallies[], step interval) returns setof millpond.failure_flows
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
-- The failures that tallies tell of.
create or replace function millpond.seen(given millpond.tallies[]) returns setof millpond.failures
language sql stable as $$
    select distinct on (t.fingerprint, t.tenant) t.fingerprint, t.tenant, t.kind, t.code, coalesce(t.message, ''),
        min(t.at) over failure, max(t.at) over failure, t.sample
    from unnest(given) t where t.fingerprint is not null
    window failure as (partition by t.fingerprint, t.tenant)
    order by t.fingerprint, t.tenant, t.at desc
$$;

-- function: capped
-- The same tallies, in which failures that would be one too many new ones of a tenant, a kind and a code within a day have
-- one fingerprint. Messages that never repeat would else be a row each, and none is lost in the sums. Jobs keep their own.
create or replace function millpond.capped(given millpond.tallies[], most integer) returns millpond.tallies[]
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
    where f.n + k.n > most;
    if beyond is null then
        return given;
    end if;
    return array(
        select row(
            t.at, t.tenant, t.kind, t.moment, t.from_state, t.from_phase, t.to_state, t.to_phase, t.outcome, t.n, t.price,
            t.captured, t.bucket, case
                when b.failure is null then t.fingerprint
                else 'others' || left(encode(sha256(convert_to(concat_ws(chr(31), t.kind, t.code), 'UTF8')), 'hex'), 10)
            end, t.code, t.message, t.sample
        )::millpond.tallies
        from unnest(given) t left join unnest(beyond) as b(failure) on b.failure = t.tenant || ' ' || t.fingerprint
    );
end $$;

-- function: fold
-- Folds so many tallies at most, and tells how many; one at a time in a database, and nobody waits for his turn. Whoever
-- writes tallies is not waited for, and does not wait.
create or replace function millpond.fold(most integer, failures_most integer default 200) returns integer
language plpgsql as $$
declare
    given millpond.tallies[];
begin
    if not pg_try_advisory_xact_lock(1885695605) then
        return 0;
    end if;
    with gone as (
        delete from millpond.tallies t where t.ctid = any(array(select t.ctid from millpond.tallies t limit most)) returning t
    )
    select array_agg(g.t) into given from gone g;
    if given is null then
        return 0;
    end if;
    given := millpond.capped(given, failures_most);
    insert into millpond.counts as c (tenant, kind, state, phase, n, held)
    select g.tenant, g.kind, g.state, g.phase, g.n, g.held from millpond.counted(given) g where g.n <> 0 or g.held <> 0
    on conflict (tenant, kind, state, phase) do update set n = c.n + excluded.n, held = c.held + excluded.held;
    perform millpond.fold_flows(given, interval '1 minute');
    perform millpond.fold_flows(given, interval '1 hour');
    insert into millpond.lengths as d (kind, waits, runs)
    select g.kind, g.waits, g.runs from millpond.lasted(given) g
    on conflict (kind) do update
        set waits = millpond.pile(d.waits, excluded.waits), runs = millpond.pile(d.runs, excluded.runs);
    insert into millpond.failures as f (fingerprint, tenant, kind, code, message, first_at, last_at, sample)
    select g.fingerprint, g.tenant, g.kind, g.code, g.message, g.first_at, g.last_at, g.sample from millpond.seen(given) g
    on conflict (fingerprint, tenant) do update set message = excluded.message,
        first_at = least(f.first_at, excluded.first_at), last_at = greatest(f.last_at, excluded.last_at),
        sample = excluded.sample;
    return cardinality(given);
end $$;

-- function: fold_flows
-- Folds what tallies say of minutes, or of hours.
create or replace function millpond.fold_flows(given millpond.tallies[], step interval) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    insert into millpond.flows as f (
        step, tenant, kind, at, submitted, succeeded, failed, canceled, expired, retried, captured, waits, runs
    )
    select g.step, g.tenant, g.kind, g.at, g.submitted, g.succeeded, g.failed, g.canceled, g.expired, g.retried,
        g.captured, g.waits, g.runs
    from millpond.flowed(given, fold_flows.step) g
    on conflict (step, tenant, kind, at) do update set submitted = f.submitted + excluded.submitted,
        succeeded = f.succeeded + excluded.succeeded, failed = f.failed + excluded.failed,
        canceled = f.canceled + excluded.canceled, expired = f.expired + excluded.expired,
        retried = f.retried + excluded.retried, captured = f.captured + excluded.captured,
        waits = millpond.pile(f.waits, excluded.waits), runs = millpond.pile(f.runs, excluded.runs);
    insert into millpond.failure_flows as f (step, tenant, fingerprint, at, n, released)
    select g.step, g.tenant, g.fingerprint, g.at, g.n, g.released from millpond.failed(given, fold_flows.step) g
    on conflict (step, tenant, at, fingerprint) do update
        set n = f.n + excluded.n, released = f.released + excluded.released;
end $$;

-- function: order_recount
-- Has the jobs that have not ended counted anew, after so long: when statements that did not tally are surely over.
create or replace function millpond.order_recount(delay interval) returns void
language sql as $$
    insert into millpond.recounts (due_at) select millpond.clock() + delay where exists (select from millpond.jobs)
$$;

-- function: recount
-- Counts the jobs that have not ended, where it is due, or where there are less than none of some. All is seen as of one
-- moment, and the tallies that have not been folded at that moment are taken off: they are added when they are.
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
    unfolded as (
        select c.tenant, c.kind, c.state, c.phase, c.n, c.held
        from millpond.counted(array(select t from millpond.gathered() t where t.fingerprint is null)) c where c.phase <> 'ended'
    ),
    known as (select c.tenant, c.kind, c.state, c.phase from millpond.counts c where c.phase <> 'ended')
    insert into millpond.counts as c (tenant, kind, state, phase, n, held)
    select k.tenant, k.kind, k.state, k.phase, coalesce(t.n, 0) - coalesce(u.n, 0), coalesce(t.held, 0) - coalesce(u.held, 0)
    from (
        select tenant, kind, state, phase from truth union select tenant, kind, state, phase from unfolded
        union select tenant, kind, state, phase from known
    ) k
    left join truth t using (tenant, kind, state, phase)
    left join unfolded u using (tenant, kind, state, phase)
    on conflict (tenant, kind, state, phase) do update set n = excluded.n, held = excluded.held
    where (c.n, c.held) is distinct from (excluded.n, excluded.held);
    get diagnostics mended = row_count;
    return mended;
end $$;

-- name: fold :one
select millpond.fold($1) as folded;

-- name: relieve :one
-- Folds, where at least so many tallies lie about: whoever reads would add all of them up, each time.
select case
    when (select count(*) from (select from millpond.tallies limit $1) t) >= $1 then millpond.fold($2)
    else 0
end as folded;

-- name: order_recount :exec
-- Has jobs counted anew in this transaction, when whoever folds just now is done.
select millpond.order_recount(interval '0'), pg_advisory_xact_lock(1885695605);

-- name: recount :one
select millpond.recount() as mended;

-- name: prune_flows :one
-- Forgets so many minutes and hours that are old.
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
-- Forgets failures that have not happened for so long.
with gone as (
    delete from millpond.failures f where f.ctid = any(array(
        select f.ctid from millpond.failures f where f.last_at < millpond.clock() - $1::interval limit $2
    )) returning f.last_at
)
select count(*) as pruned from gone;

-- name: counts :many
-- How many jobs of each kind are in each state; of one tenant, or of all.
select c.kind, c.state, c.phase, sum(c.n)::bigint as n, sum(c.held)::bigint as held
from (
    select c.kind, c.state, c.phase, c.n, c.held from millpond.counts c where $1::text is null or c.tenant = $1
    union all
    select c.kind, c.state, c.phase, c.n, c.held
    from millpond.counted(array(
        select t from millpond.gathered() t where t.fingerprint is null and ($1::text is null or t.tenant = $1)
    )) c
) c
group by c.kind, c.state, c.phase
having sum(c.n) <> 0
order by c.kind, c.state, c.phase;

-- name: flows :many
-- What went through, in stretches that are each several steps long; of a tenant and a kind, or of all where they are empty.
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
-- What went through since then, over all kinds; of a tenant, or of all where it is empty.
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
-- How long jobs of each kind waited and ran, since this is counted, over all tenants.
select d.kind, d.waits, d.runs from millpond.lengths d
union all
select d.kind, d.waits, d.runs from millpond.lasted(array(select t from millpond.gathered() t where t.bucket is not null)) d;

-- name: spenders :many
-- The tenants of which most was captured since then.
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
-- The failures that happened most since then, with how often in each stretch; of one tenant, or of all where it is empty.
with given as (
    select array(
        select t from millpond.gathered() t
        where t.fingerprint is not null and t.at >= $3::timestamptz and ($2 = '' or t.tenant = $2)
    ) as tallies
),
flow as materialized (
    select f.fingerprint, f.at, f.n, f.released from millpond.failure_flows f
    where f.step = $1::interval and f.tenant = $2 and f.at >= $3::timestamptz
    union all
    select f.fingerprint, f.at, f.n, f.released from given g, millpond.failed(g.tallies, $1::interval) f where f.tenant = $2
),
known as (
    select f.fingerprint, f.tenant, f.kind, f.code, f.message, f.first_at, f.last_at, f.sample
    from millpond.failures f where f.fingerprint = any(array(select distinct f.fingerprint from flow f))
        and ($2 = '' or f.tenant = $2)
    union all
    select f.fingerprint, f.tenant, f.kind, f.code, f.message, f.first_at, f.last_at, f.sample
    from given g, millpond.seen(g.tallies) f
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
most as (
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
        from flow f join most m on m.fingerprint = f.fingerprint
        group by 1, 2
    ) s
    group by s.fingerprint
)
select m.fingerprint, w.kind, w.code, w.message, m.n, w.first_at, w.last_at, w.tenants, m.released, w.sample, s.ats, s.ns
from most m
join failure w on w.fingerprint = m.fingerprint
join stretch s on s.fingerprint = m.fingerprint
order by m.n desc, m.fingerprint;
