-- Jobs: what a customer asked for and what became of it. Home: tenant.
-- Invariants: state changes only through millpond.move (and its guard); the events of a job are numbered
-- 1..n without a gap; a job that has ended has its hold settled in the same commit.
--
-- The functions set three planner switches. They are called with one item and with a thousand, on an empty
-- database and on one of millions of jobs, and their plan is made once: every table is reached through
-- `= any(ids)` or a lateral look-up, both of which can only be index scans, and all else is hashed.

-- function: submit_batch
-- Takes jobs in: key, job, first events, dispatch and hold, all of them in one transaction or none. If one cannot be
-- accepted as things are, nothing is written (PS003); millpond.judge then tells which and why.
-- A column that is the same for all jobs may be given as one value. The payers are the accounts, each once and in the
-- order of their names, with what their jobs come to; `payer` says which of them pays for a job, `nth` the how manieth
-- of its holds this is and `spent` what its jobs cost up to this one. The answer is what each payer has left.
-- Whether they can pay is first seen without a lock; millpond.charge takes the locks last and looks again, so the lock
-- that all jobs of an account must take is held for no longer than the charge. The statements are plain on purpose: to
-- start one costs more than to run it, and most of all where it joins.
-- Where the queue is in another database (`is_away`), the dispatches are owed (see split.sql). The URLs that jobs are
-- submitted with are few, and come as one value (`hooks`).
create or replace function millpond.submit_batch(
    is_fair boolean, is_away boolean, job_ids uuid[], tenants text[], accounts text[], kinds text[], lifecycles text[], queues text[],
    initial_states text[], entry_states text[], prices integer[], inputs jsonb[], scopes text[], keys text[], requests jsonb[],
    priorities smallint[], run_ats timestamptz[], lifetimes interval[], retries uuid[], payers integer[], nths integer[],
    spents bigint[], payer_tenants text[], payer_accounts text[], sums bigint[], counts integer[], holds integer[],
    hooks jsonb default null
) returns table (available bigint[], created_at timestamptz)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    size integer := cardinality(job_ids);
    hops boolean := initial_states is distinct from entry_states;
    apart integer := greatest(  -- what is the same for all is tallied as one
        cardinality(tenants), cardinality(kinds), cardinality(initial_states), cardinality(entry_states),
        cardinality(prices), cardinality(run_ats)
    );
    keyed integer;
begin
    if exists (select from unnest(kinds) as i(kind) where not exists (select from millpond.kinds k where k.kind = i.kind)) then
        raise exception 'it was not made known to the database' using errcode = 'PS004';
    end if;
    if not millpond.can_pay(payer_tenants, payer_accounts, sums, counts) then
        raise exception 'an account cannot carry its jobs' using errcode = 'PS003';
    end if;
    if size > 1 then
        tenants := millpond.spread(tenants, size);
        accounts := millpond.spread(accounts, size);
        kinds := millpond.spread(kinds, size);
        lifecycles := millpond.spread(lifecycles, size);
        queues := millpond.spread(queues, size);
        initial_states := millpond.spread(initial_states, size);
        entry_states := millpond.spread(entry_states, size);
        prices := millpond.spread(prices, size);
        scopes := millpond.spread(scopes, size);
        priorities := millpond.spread(priorities, size);
        run_ats := millpond.spread(run_ats, size);
        lifetimes := millpond.spread(lifetimes, size);
        payers := millpond.spread(payers, size);
    end if;

    if keys is not null then
        insert into millpond.idempotency (tenant, scope, key, job_id, request, created_at, expires_at)
        select i.tenant, i.scope, i.key, i.job_id, i.request, present, greatest(i.run_at, present) + i.lifetime
        from unnest(tenants, scopes, keys, job_ids, requests, run_ats, lifetimes)
            as i(tenant, scope, key, job_id, request, run_at, lifetime)
        where i.key is not null
        order by i.key, i.scope, i.tenant  -- two batches with the same keys then wait for each other, and not in a ring
        on conflict do nothing;
        get diagnostics keyed = row_count;
        if keyed <> cardinality(array_remove(keys, null)) then
            raise exception 'an idempotency key is taken' using errcode = 'PS003';
        end if;
    end if;

    insert into millpond.jobs (
        id, tenant, account, kind, lifecycle, queue, state, phase, priority, events, price,
        created_at, run_at, expires_at, retry_of, input
    )
    select i.job_id, i.tenant, i.account, i.kind, i.lifecycle, i.queue,
        case when i.run_at > present then i.initial_state else i.entry_state end,
        case when i.run_at > present then 'waiting' else 'ready' end,
        i.priority, case when i.run_at > present or i.entry_state = i.initial_state then 1 else 2 end, i.price,
        present, i.run_at, greatest(i.run_at, present) + i.lifetime, i.retry_of, i.input
    from unnest(
        job_ids, tenants, accounts, kinds, lifecycles, queues, initial_states, entry_states, prices, inputs, priorities, run_ats,
        lifetimes, retries
    ) as i(
        job_id, tenant, account, kind, lifecycle, queue, initial_state, entry_state, price, input, priority, run_at, lifetime, retry_of
    );

    insert into millpond.events (job_id, seq, at, type, state, tenant)
    select i.job_id, 1, present, 'submitted', i.state, i.tenant
    from unnest(job_ids, tenants, initial_states) as i(job_id, tenant, state);
    if hops then
        insert into millpond.events (job_id, seq, at, type, state, tenant)
        select i.job_id, 2, present, 'queued', i.entry_state, i.tenant
        from unnest(job_ids, tenants, initial_states, entry_states, run_ats) as i(job_id, tenant, initial_state, entry_state, run_at)
        where i.entry_state <> i.initial_state and (i.run_at is null or i.run_at <= present);
    end if;

    if hooks is not null then
        insert into millpond.hooks (job_id, tenant, url, receiver, secret, moments, decides)
        select i.job_id, i.tenant, i.url, i.receiver, decode(i.secret, 'base64'), i.moments, i.decides
        from jsonb_to_recordset(submit_batch.hooks)
            as i(job_id uuid, tenant text, url text, receiver text, secret text, moments text[], decides boolean);
    end if;
    if hooks is not null or exists (select from millpond.subscriptions s where s.moment = any('{submitted,queued}')) then
        perform millpond.announce('submitted', job_ids, 1, false);
        perform millpond.announce('queued', job_ids, 2, false);
    end if;

    if apart = 1 then
        insert into millpond.tallies (at, tenant, kind, moment, to_state, to_phase, n, price)
        values (
            millpond.minute(present), tenants[1], kinds[1], 'submitted',
            case when run_ats[1] > present then initial_states[1] else entry_states[1] end,
            case when run_ats[1] > present then 'waiting' else 'ready' end, size, prices[1]::bigint * size
        );
    else
        insert into millpond.tallies (at, tenant, kind, moment, to_state, to_phase, n, price)
        select millpond.minute(present), i.tenant, i.kind, 'submitted',
            case when i.run_at > present then i.initial_state else i.entry_state end,
            case when i.run_at > present then 'waiting' else 'ready' end, count(*), sum(i.price)
        from unnest(tenants, kinds, initial_states, entry_states, prices, run_ats)
            as i(tenant, kind, initial_state, entry_state, price, run_at)
        group by 2, 3, 5, 6;
    end if;

    if is_away then
        perform millpond.owe(present, job_ids);
    else
        perform millpond.enqueue(is_fair, present, job_ids, tenants, accounts, kinds, queues, priorities, run_ats, lifetimes);
    end if;

    return query
    select millpond.charge(job_ids, tenants, accounts, prices, payers, nths, spents, payer_tenants, payer_accounts, sums, counts, holds), present;
end $$;

-- function: submit_and_ring
-- Takes jobs in, commits, and only then rings for them, all in one trip. A NOTIFY makes the commits of everybody wait
-- for each other while its transaction is being written; the second one has nothing to write and waits for no disk.
create or replace procedure millpond.submit_and_ring(
    topics text, is_fair boolean, job_ids uuid[], tenants text[], accounts text[], kinds text[], lifecycles text[], queues text[],
    initial_states text[], entry_states text[], prices integer[], inputs jsonb[], scopes text[], keys text[], requests jsonb[],
    priorities smallint[], run_ats timestamptz[], lifetimes interval[], retries uuid[], payers integer[], nths integer[],
    spents bigint[], payer_tenants text[], payer_accounts text[], sums bigint[], counts integer[], holds integer[], hooks jsonb,
    inout available bigint[], inout created_at timestamptz
)
language plpgsql as $$
begin
    select s.available, s.created_at into available, created_at
    from millpond.submit_batch(
        is_fair, false, job_ids, tenants, accounts, kinds, lifecycles, queues, initial_states, entry_states, prices, inputs, scopes, keys,
        requests, priorities, run_ats, lifetimes, retries, payers, nths, spents, payer_tenants, payer_accounts, sums, counts, holds, hooks
    ) s;
    commit;
    perform set_config('synchronous_commit', 'off', true), pg_notify('millpond', topics);
end $$;

-- function: spread
-- A column of one value as a column of many.
create or replace function millpond.spread(given anyarray, size integer) returns anyarray
language sql immutable parallel safe as $$
    select case when cardinality(given) = 1 and size > 1 then array_fill(given[1], array[size]) else given end
$$;

-- function: judge
-- What may stand in the way of a batch that was not accepted, item by item, in order: whether its key is taken, and
-- what its account has. One that does not exist yet has nothing, not even a limit.
create or replace function millpond.judge(tenants text[], accounts text[], scopes text[], keys text[], size integer)
returns table (is_replay boolean, is_stranger boolean, available bigint, active integer, active_max integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    tenants := millpond.spread(tenants, size);
    accounts := millpond.spread(accounts, size);
    scopes := millpond.spread(scopes, size);

    return query
    with item as materialized (
        select i.* from unnest(tenants, accounts, scopes, keys) with ordinality as i(tenant, account, scope, key, n)
    ),
    wallet as materialized (
        select w.* from (select distinct tenant, account from item) i
        cross join lateral (
            select a.tenant, a.account, a.available, a.active, a.active_max from millpond.accounts a
            where a.tenant = i.tenant and a.account = i.account limit 1
        ) w
    )
    select k.job_id is not null, w.tenant is null, coalesce(w.available, 0), coalesce(w.active, 0), w.active_max
    from item i
    left join wallet w on w.tenant = i.tenant and w.account = i.account
    left join lateral (
        select k.job_id from millpond.idempotency k
        where k.tenant = i.tenant and k.scope = i.scope and k.key = i.key limit 1
    ) k on true
    order by i.n;
end $$;

-- function: move
-- The one door: takes each job through the moment it has come to, writes its event, announces it to whom it is news
-- and, where that ends it, settles its hold. All of them or none: a job whose state has no arrow for the moment is an error.
-- What was moved is tallied in the same statement (see tallies.sql). `was` is the phase that all of them are in, where
-- the caller knows it; else it is looked up. Most columns are none, for most moments: they are read by number, as each to
-- be unnested would cost a single job more than its event.
create or replace function millpond.move(
    moment text, phase text, job_ids uuid[], epochs integer[], attempts smallint[], outputs jsonb[], errors jsonb[],
    captures integer[], memos jsonb[], answers jsonb[], notes jsonb[], was text default null
) returns table (
    job_id uuid, tenant text, account text, kind text, queue text, priority smallint, from_state text, state text,
    outcome text, seq integer, epoch integer, attempts_ smallint, run smallint, price integer, captured integer,
    progress real, stage text, input jsonb, memo jsonb, answer jsonb, created_at timestamptz, expires_at timestamptz
)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    starts boolean := move.moment = 'started';
    ends boolean := move.phase = 'ended';
    succeeds boolean := move.moment = 'succeeded';
    renews boolean := move.moment = 'retried';
    fails boolean := move.moment in ('failed', 'expired', 'blocked');
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
    done integer;
    phases text[];
begin
    if was is null then
        select array_agg(j.phase order by i.n) into phases
        from unnest(job_ids) with ordinality as i(job_id, n)
        left join (
            select j.id, j.phase from millpond.jobs j where j.id = any(job_ids) and j.id >= low and j.id <= high
        ) j on j.id = i.job_id;
    end if;
    return query
    with moved as materialized (
        update millpond.jobs j
        set state = m.to_state,
            phase = move.phase,
            events = j.events + 1,
            noted = case when starts then 0 else j.noted end,
            run = j.run + renews::int,
            epoch = coalesce(epochs[i.n::int], j.epoch),
            attempts = coalesce(move.attempts[i.n::int], j.attempts),
            output = case when renews then null else coalesce(outputs[i.n::int], j.output) end,
            error = case when renews or succeeds then null else coalesce(errors[i.n::int], j.error) end,
            fingerprint = case when fails then millpond.fingerprint(j.kind, move.moment, coalesce(errors[i.n::int], j.error)) end,
            memo = case when renews then null else coalesce(memos[i.n::int], j.memo) end,
            answer = case when renews then null else coalesce(answers[i.n::int], j.answer) end,
            progress = case when succeeds then 1 when renews then 0 else j.progress end,
            stage = case when renews then null else j.stage end,
            started_at = case when starts then coalesce(j.started_at, greatest(present, j.created_at))
                when renews then null else j.started_at end,
            finished_at = case when ends then greatest(present, j.created_at, j.started_at) end,
            cancel_requested_at = case when renews then null else j.cancel_requested_at end,
            captured = case when ends then least(j.price, coalesce(captures[i.n::int], case when succeeds then j.price else 0 end)) end
        from unnest(job_ids) with ordinality as i(job_id, n), millpond.lifecycle_moves m
        where j.id = any(job_ids) and j.id >= low and j.id <= high and i.job_id = j.id
            and m.lifecycle = j.lifecycle and m.from_state = j.state and m.moment = move.moment
        returning j.id, j.tenant, j.account, j.kind, j.queue, j.priority, m.from_state, j.state, j.outcome, j.events,
            j.epoch, j.attempts, j.run, j.price, j.captured, j.progress, j.stage,
            case when starts then j.input end as input, case when starts then j.memo end as memo,
            case when starts then j.answer end as answer, j.created_at, j.expires_at, notes[i.n::int] as note,
            coalesce(was, phases[i.n::int]) as from_phase,
            case
                when ends then j.finished_at - j.started_at
                when starts and j.epoch = 1 then j.started_at - greatest(j.created_at, j.run_at)
            end as length
    ),
    tallied as (
        insert into millpond.tallies (
            at, tenant, kind, moment, from_state, from_phase, to_state, to_phase, outcome, n, price, captured, bucket
        )
        select millpond.minute(present), tenant, kind, move.moment, from_state, from_phase, state, move.phase, outcome,
            count(*), sum(price), sum(captured), bucket
        from (  -- in order: to make ready for a sort costs less than for a hash, and most often there is one job to tally
            select tenant, kind, from_state, from_phase, state, outcome, price, captured,
                case when length is not null then millpond.bucket(length) end as bucket
            from moved order by bucket, tenant, kind, from_state, from_phase, state, outcome
        ) m
        group by bucket, tenant, kind, from_state, from_phase, state, outcome
    ),
    logged as (
        insert into millpond.events (job_id, seq, at, type, state, tenant, data)
        select id, events, present, move.moment, state, tenant, note from moved
    )
    select id, tenant, account, kind, queue, priority, from_state, state, outcome, events, epoch, attempts, run, price,
        captured, progress, stage, input, memo, answer, created_at, expires_at
    from moved;

    get diagnostics done = row_count;
    if done <> cardinality(job_ids) then
        raise exception 'move denied: % in %', move.moment, (
            select string_agg(format('%s (%s)', j.id, j.state), ', ') from millpond.jobs j
            where j.id = any(job_ids) and not exists (
                select from millpond.lifecycle_moves m
                where m.lifecycle = j.lifecycle and m.from_state = j.state and m.moment = move.moment
            )
        ) using errcode = 'PS001';
    end if;
    if coalesce(was = move.phase, move.phase = any(phases)) then
        -- The guard takes a phase that stays for one that was forgotten, and puts in what the new state implies.
        update millpond.jobs j set phase = move.phase where j.id = any(job_ids) and j.id >= low and j.id <= high and j.phase <> move.phase;
    end if;
    if exists (select from millpond.subscriptions s where s.moment = move.moment)
        or exists (select from millpond.hooks h where h.job_id = any(job_ids)) then
        perform millpond.announce(move.moment, job_ids, null, ends);
    end if;
    if fails then
        perform millpond.tally_failures(present, move.moment, job_ids);
    end if;
    if ends then
        perform millpond.settle(job_ids);
    end if;
end $$;

-- function: cancel
-- Verdicts: 'canceled' (it had not started: ended now), 'asked' (its worker is told, and cut off after the grace),
-- 'firm' (its stage refuses), 'unavailable' (its lifecycle has no way), 'ended', 'absent'.
create or replace function millpond.cancel(tenant text, job_id uuid, grace interval)
returns table (verdict text, state text, stage text, kind text, from_state text, price integer, captured integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    dispatch millpond.dispatches;
    answer record;
begin
    select d.* into dispatch from millpond.dispatches d
    where d.job_id = cancel.job_id and d.tenant = cancel.tenant for update;
    select c.* into answer
    from millpond.cancel_job(cancel.tenant, cancel.job_id, dispatch.phase, dispatch.cancel_at is not null) c;
    perform millpond.cancel_dispatch(cancel.job_id, answer.verdict, grace);
    return query select answer.verdict, answer.state, answer.stage, answer.kind, answer.from_state, answer.price, answer.captured;
end $$;

-- function: cancel_job
-- The tenant's half of a cancel; the queue says in which phase the job's dispatch is, if it has one.
create or replace function millpond.cancel_job(tenant text, job_id uuid, dispatch_phase text, is_asked boolean)
returns table (verdict text, state text, stage text, kind text, from_state text, price integer, captured integer)
language plpgsql as $$
#variable_conflict use_column
declare
    job millpond.jobs;
begin
    select j.* into job from millpond.jobs j
    where j.id = cancel_job.job_id and j.tenant = cancel_job.tenant for update;

    if job.id is null then
        return query select 'absent', null::text, null::text, null::text, null::text, null::integer, null::integer;
    elsif dispatch_phase is null then
        return query select 'ended', job.state, job.stage, job.kind, job.state, job.price, job.captured;
    elsif not exists (
        select from millpond.lifecycle_moves m
        where m.lifecycle = job.lifecycle and m.from_state = job.state and m.moment = 'canceled'
    ) then
        return query select 'unavailable', job.state, job.stage, job.kind, job.state, job.price, job.captured;
    elsif exists (select from millpond.kinds k where k.kind = job.kind and job.stage = any(k.firm_stages)) then
        return query select 'firm', job.state, job.stage, job.kind, job.state, job.price, job.captured;
    elsif dispatch_phase in ('waiting', 'ready', 'parked', 'delivering') then
        return query select 'canceled', m.state, m.stage, m.kind, m.from_state, m.price, m.captured
        from millpond.move('canceled', 'ended', array[job.id], null, null, null, null, null, null, null, null) m;
    else
        if not is_asked then
            perform millpond.write(job.id, 'cancel_requested', null, true);
        end if;
        return query select 'asked', job.state, job.stage, job.kind, job.state, job.price, job.captured;
    end if;
end $$;

-- function: write
-- Appends an event that changes no state. The caller holds the job's row.
create or replace function millpond.write(job_id uuid, type text, data jsonb, asks_cancel boolean) returns void
language sql as $$
    with counted as (
        update millpond.jobs j
        set events = j.events + 1,
            cancel_requested_at = case when asks_cancel then millpond.clock() else j.cancel_requested_at end
        where j.id = write.job_id
        returning j.id, j.events, j.state, j.tenant
    )
    insert into millpond.events (job_id, seq, at, type, state, tenant, data)
    select id, events, millpond.clock(), write.type, state, tenant, write.data from counted
$$;

-- function: answer
-- Gives a parked job what it waits for. Verdicts: 'answered'; 'repeated' (the same answer came before);
-- 'unavailable' (it is not parked, or has another answer); 'absent'.
create or replace function millpond.answer(tenant text, job_id uuid, answer jsonb)
returns table (verdict text, state text, queue text, kind text, from_state text)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    dispatch millpond.dispatches;
    told record;
begin
    select d.* into dispatch from millpond.dispatches d
    where d.job_id = answer.job_id and d.tenant = answer.tenant for update;
    select a.* into told from millpond.answer_job(
        answer.tenant, answer.job_id, answer.answer, dispatch.phase = 'parked' and dispatch.wakes_at > millpond.clock()
    ) a;
    perform millpond.make_ready(array[answer.job_id]) where told.verdict = 'answered';
    return query select told.verdict, told.state, told.queue, told.kind, told.from_state;
end $$;

-- function: answer_job
-- The tenant's half of an answer; the queue says whether the job waits for one.
create or replace function millpond.answer_job(tenant text, job_id uuid, answer jsonb, is_waited_for boolean)
returns table (verdict text, state text, queue text, kind text, from_state text)
language plpgsql as $$
#variable_conflict use_column
declare
    job millpond.jobs;
begin
    select j.* into job from millpond.jobs j where j.id = answer_job.job_id and j.tenant = answer_job.tenant;

    if job.id is null then
        return query select 'absent', null::text, null::text, null::text, null::text;
    elsif is_waited_for then
        return query select 'answered', m.state, m.queue, m.kind, m.from_state
        from millpond.move(
            'answered', 'ready', array[job.id], null, null, null, null, null, null, array[answer_job.answer], null
        ) m;
    elsif job.answer = answer_job.answer then
        return query select 'repeated', job.state, job.queue, job.kind, job.state;
    else
        return query select 'unavailable', job.state, job.queue, job.kind, job.state;
    end if;
end $$;

-- function: revive
-- Retries an ended job in place, where its lifecycle has an arrow for it: a new run with its own hold.
-- Verdicts: 'revived', 'short', 'capped', 'unavailable', 'absent'.
create or replace function millpond.revive(tenant text, job_id uuid, lifetime interval)
returns table (verdict text, state text, available bigint, price integer, expires_at timestamptz)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    answer record;
    job millpond.jobs;
    is_fair boolean;
begin
    select r.* into answer from millpond.revive_job(revive.tenant, revive.job_id, lifetime) r;
    if answer.verdict = 'revived' then
        select j.* into job from millpond.jobs j where j.id = revive.job_id;
        select k.is_fair into is_fair from millpond.kinds k where k.kind = job.kind;
        perform millpond.enqueue(
            is_fair, answer.revived_at, array[job.id], array[job.tenant], array[job.account], array[job.kind],
            array[job.queue], array[job.priority], null, array[revive.lifetime]
        );
        -- Epochs only grow, over all runs: an old worker must never be taken for the new one.
        update millpond.dispatches d set epoch = job.epoch where d.job_id = job.id;
    end if;
    return query select answer.verdict, answer.state, answer.available, answer.price, answer.expires_at;
end $$;

-- function: revive_job
-- The tenant's half of a retry in place.
create or replace function millpond.revive_job(tenant text, job_id uuid, lifetime interval)
returns table (
    verdict text, state text, available bigint, price integer, expires_at timestamptz, revived_at timestamptz
)
language plpgsql as $$
#variable_conflict use_column
declare
    job millpond.jobs;
    wallet millpond.accounts;
    readied text;
    present timestamptz := millpond.clock();
    deadline timestamptz := present + lifetime;
begin
    perform millpond.keep_partitions();
    select j.* into job from millpond.jobs j where j.id = revive_job.job_id and j.tenant = revive_job.tenant for update;
    if job.id is null then
        return query select 'absent', null::text, null::bigint, null::integer, null::timestamptz, present;
        return;
    elsif not exists (
        select from millpond.lifecycle_moves m
        where m.lifecycle = job.lifecycle and m.from_state = job.state and m.moment = 'retried'
    ) then
        return query select 'unavailable', job.state, null::bigint, job.price, job.expires_at, present;
        return;
    end if;

    select a.* into wallet from millpond.accounts a
    where a.tenant = job.tenant and a.account = job.account for update;
    if wallet.available < job.price then
        return query select 'short', job.state, wallet.available, job.price, job.expires_at, present;
        return;
    elsif wallet.active >= wallet.active_max then
        return query select 'capped', job.state, wallet.available, job.price, job.expires_at, present;
        return;
    end if;

    update millpond.accounts a
    set available = a.available - job.price, held = a.held + job.price, active = a.active + 1,
        entries = a.entries + (job.price > 0)::int
    where a.tenant = job.tenant and a.account = job.account;
    if job.price > 0 then
        insert into millpond.entries (
            tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
        ) values (
            job.tenant, job.account, wallet.entries + 1, present, 'hold', -job.price, job.price, 0,
            wallet.available - job.price, wallet.held + job.price, job.id, job.run + 1
        );
    end if;
    if millpond.is_withheld(job.outcome, job.error) then
        perform millpond.withhold_artifacts(job.id);
    end if;
    perform millpond.move('retried', 'waiting', array[job.id], null, array[0::smallint], null, null, null, null, null, null);
    update millpond.jobs j set expires_at = deadline where j.id = job.id;
    perform millpond.move('queued', 'ready', array[job.id], null, null, null, null, null, null, null, null)
    from millpond.kinds k where k.kind = job.kind and k.entry_state <> k.initial_state;
    update millpond.jobs j set phase = 'ready' where j.id = job.id and j.phase <> 'ready' returning j.state into readied;
    if found then
        insert into millpond.tallies (at, tenant, kind, moment, from_state, from_phase, to_state, to_phase, n, price)
        values (millpond.minute(present), job.tenant, job.kind, 'queued', readied, 'waiting', readied, 'ready', 1, job.price);
    end if;
    return query select 'revived', j.state, wallet.available - job.price, job.price, deadline, present
    from millpond.jobs j where j.id = job.id;
end $$;

-- function: prioritize
-- Gives a job that waits for its turn another priority, and with it another place in the line.
-- Verdicts: 'changed', 'same', 'started' (it has had its turn), 'ended', 'absent'.
create or replace function millpond.prioritize(tenant text, job_id uuid, priority smallint)
returns table (verdict text, state text, queue text, before smallint)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    dispatch millpond.dispatches;
    answer record;
begin
    select d.* into dispatch from millpond.dispatches d
    where d.job_id = prioritize.job_id and d.tenant = prioritize.tenant for update;
    select p.* into answer
    from millpond.prioritize_job(prioritize.tenant, prioritize.job_id, prioritize.priority, dispatch.phase) p;
    perform millpond.prioritize_dispatch(prioritize.job_id, prioritize.priority)
    where answer.verdict in ('changed', 'same');
    return query select answer.verdict, answer.state, answer.queue, answer.before;
end $$;

-- function: prioritize_job
-- The tenant's half of another priority; the queue says in which phase the job's dispatch is, if it has one.
create or replace function millpond.prioritize_job(tenant text, job_id uuid, priority smallint, dispatch_phase text)
returns table (verdict text, state text, queue text, before smallint)
language plpgsql as $$
#variable_conflict use_column
declare
    job record;
begin
    select j.id, j.state, j.queue, j.priority into job from millpond.jobs j
    where j.id = prioritize_job.job_id and j.tenant = prioritize_job.tenant for update;
    if job.id is null then
        return query select 'absent', null::text, null::text, null::smallint;
    elsif dispatch_phase is null or dispatch_phase not in ('waiting', 'ready') then
        return query select case when dispatch_phase is null then 'ended' else 'started' end, job.state, job.queue, job.priority;
    elsif job.priority = prioritize_job.priority then
        return query select 'same', job.state, job.queue, job.priority;
    else
        update millpond.jobs j set priority = prioritize_job.priority where j.id = job.id;
        perform millpond.write(
            job.id, 'prioritized', jsonb_build_object('from', job.priority, 'to', prioritize_job.priority), false
        );
        return query select 'changed', job.state, job.queue, job.priority;
    end if;
end $$;

-- function: shift
-- An operator's move to a state, by the arrow that leads there, with the queue kept in step. Starting a job is a
-- worker's claim and reviving one is a retry: neither is done here.
-- Verdicts: 'moved', 'denied', 'absent'.
create or replace function millpond.shift(tenant text, job_id uuid, to_state text)
returns table (verdict text, from_state text, state text, outcome text)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    dispatch millpond.dispatches;
    answer record;
begin
    select d.* into dispatch from millpond.dispatches d
    where d.job_id = shift.job_id and d.tenant = shift.tenant for update;
    select s.* into answer from millpond.shift_job(
        shift.tenant, shift.job_id, shift.to_state, dispatch.job_id is not null, dispatch.cancel_at is not null
    ) s;
    perform millpond.shift_dispatch(shift.job_id, answer.phase, answer.forgets) where answer.verdict = 'moved';
    return query select answer.verdict, answer.from_state, answer.state, answer.outcome;
end $$;

-- function: shift_job
-- The tenant's half of an operator's move; the queue says whether the job stands in it and must stop. Tells the
-- phase that its dispatch must come to, and whether that must forget an asked-for cancel: no arrow leads to it any
-- more, so it could never be enforced.
create or replace function millpond.shift_job(
    tenant text, job_id uuid, to_state text, is_queued boolean, is_asked boolean
) returns table (verdict text, from_state text, state text, outcome text, phase text, forgets boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    job millpond.jobs;
    moment text;
    aim text;
    forgets boolean;
begin
    select j.* into job from millpond.jobs j where j.id = shift_job.job_id and j.tenant = shift_job.tenant for update;
    if job.id is null then
        return query select 'absent', null::text, null::text, null::text, null::text, false;
        return;
    end if;

    select m.moment, s.phase into moment, aim
    from millpond.lifecycle_moves m
    join millpond.lifecycle_states s on s.lifecycle = m.lifecycle and s.state = m.to_state
    where m.lifecycle = job.lifecycle and m.from_state = job.state and m.to_state = shift_job.to_state
        and m.from_state <> m.to_state and m.moment not in ('started', 'retried')
    order by m.moment = s.outcome desc, m.moment limit 1;
    if moment is null or not is_queued or (aim = 'parked' and job.expires_at is null) then
        return query select 'denied', job.state, job.state, null::text, null::text, false;
        return;
    end if;

    aim := case when aim in ('ended', 'parked', 'delivering') then aim else 'ready' end;
    forgets := is_asked and aim <> 'ended' and not exists (
        select from millpond.lifecycle_moves m
        where m.lifecycle = job.lifecycle and m.from_state = shift_job.to_state and m.moment = 'canceled'
    );
    update millpond.jobs j set cancel_requested_at = null where j.id = job.id and forgets;
    return query select 'moved', m.from_state, m.state, m.outcome, aim, forgets
    from millpond.move(moment, aim, array[job.id], null, null, null, null, null, null, null, null) m;
end $$;

-- function: expire
-- Ends the jobs whose deadline has passed, whatever they are doing, up to `most` at a time.
create or replace function millpond.expire(most integer)
returns table (job_id uuid, tenant text, kind text, from_state text, state text, outcome text, price integer, captured integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    ids uuid[];
begin
    select array_agg(d.job_id) into ids from (
        select d.job_id from millpond.dispatches d
        where d.wakes_at <= present and d.expires_at <= present and not d.is_away
        order by d.wakes_at limit most for update skip locked
    ) d;
    if ids is null then
        return;
    end if;
    perform millpond.discard(ids);
    return query
    select m.job_id, m.tenant, m.kind, m.from_state, m.state, m.outcome, m.price, m.captured
    from millpond.move('expired', 'ended', ids, null, null, null, null, null, null, null, null) m;
end $$;

-- function: enforce
-- Cuts off the workers that did not heed a cancel within its grace: the lease is gone, the job ends canceled.
create or replace function millpond.enforce(most integer)
returns table (job_id uuid, tenant text, kind text, from_state text, state text, outcome text, price integer, captured integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    ids uuid[];
begin
    select array_agg(d.job_id) into ids from (
        select d.job_id from millpond.dispatches d
        where d.wakes_at <= present and d.cancel_at <= present and not d.is_away
        order by d.wakes_at limit most for update skip locked
    ) d;
    if ids is null then
        return;
    end if;
    perform millpond.discard(ids);
    return query
    select m.job_id, m.tenant, m.kind, m.from_state, m.state, m.outcome, m.price, m.captured
    from millpond.move('canceled', 'ended', ids, null, null, null, null, null, null, null, null) m;
end $$;

-- function: promote
-- Lets the jobs whose time has come join the line.
create or replace function millpond.promote(most integer)
returns table (job_id uuid, tenant text, kind text, queue text, from_state text, state text)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    ids uuid[];
begin
    select array_agg(d.job_id) into ids from (
        select d.job_id from millpond.dispatches d
        where d.wakes_at <= present and d.phase = 'waiting' and d.run_at <= present and not d.is_away
            and (d.expires_at is null or d.expires_at > present)
        order by d.wakes_at limit most for update skip locked
    ) d;
    if ids is null then
        return;
    end if;
    perform millpond.make_ready(ids);
    return query
    select m.job_id, m.tenant, m.kind, m.queue, m.from_state, m.state
    from millpond.move('queued', 'ready', ids, null, null, null, null, null, null, null, null, 'waiting') m;
end $$;

-- name: submit :one
select available, created_at
from millpond.submit_batch(
    $1, false, $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::integer[],
    $11::jsonb[], $12::text[], $13::text[], $14::jsonb[], $15::smallint[], $16::timestamptz[], $17::interval[], $18::uuid[],
    $19::integer[], $20::integer[], $21::bigint[], $22::text[], $23::text[], $24::bigint[], $25::integer[], $26::integer[],
    $27::jsonb
);

-- name: submit_and_ring :one
call millpond.submit_and_ring(
    $1, $2, $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::integer[],
    $12::jsonb[], $13::text[], $14::text[], $15::jsonb[], $16::smallint[], $17::timestamptz[], $18::interval[], $19::uuid[],
    $20::integer[], $21::integer[], $22::bigint[], $23::text[], $24::text[], $25::bigint[], $26::integer[], $27::integer[],
    $28::jsonb, null::bigint[], null::timestamptz
);

-- name: judge :many
select is_replay, is_stranger, available, active, active_max
from millpond.judge($1::text[], $2::text[], $3::text[], $4::text[], $5);

-- name: present :many
-- Which of these jobs were admitted after all, when the answer to their submit was lost.
select j.id as job_id, j.tenant, j.account, j.kind, j.state, j.phase, j.price, j.created_at, j.expires_at,
    h.available_after as available
from millpond.jobs j
left join millpond.entries h on h.job_id = j.id and h.run = 1 and h.type = 'hold'
where j.id = any($1::uuid[]);

-- name: read :maybe
select id, tenant, account, kind, lifecycle, queue, state, phase, outcome, priority, run, epoch, attempts, events, price,
    captured, progress, stage, created_at, run_at, expires_at, started_at, finished_at, cancel_requested_at, retry_of,
    input, memo, answer, output, error
from millpond.jobs where id = $1 and tenant = $2;

-- name: read_many :many
select id, tenant, account, kind, lifecycle, queue, state, phase, outcome, priority, run, epoch, attempts, events, price,
    captured, progress, stage, created_at, run_at, expires_at, started_at, finished_at, cancel_requested_at, retry_of,
    input, memo, answer, output, error
from millpond.jobs
where id = any($1::uuid[]) and id >= millpond.least_id($1::uuid[]) and id <= millpond.greatest_id($1::uuid[]);

-- name: list :many
-- The newest first, below an id; the filters are optional.
select id, tenant, account, kind, lifecycle, queue, state, phase, outcome, priority, run, epoch, attempts, events, price,
    captured, progress, stage, created_at, run_at, expires_at, started_at, finished_at, cancel_requested_at, retry_of,
    input, memo, answer, output, error
from millpond.jobs
where tenant = $1 and account = $2 and id < $3
    and ($4::text is null or kind = $4) and ($5::text is null or state = $5) and ($6::text is null or phase = $6)
order by id desc
limit $7;

-- name: shift :one
select verdict, from_state, state, outcome from millpond.shift($1, $2, $3);

-- name: cancel :one
select verdict, state, stage, kind, from_state, price, captured from millpond.cancel($1, $2, $3::interval);

-- name: prioritize :one
select verdict, state, queue, before from millpond.prioritize($1, $2, $3::smallint);

-- name: answer :one
select verdict, state, queue, kind, from_state from millpond.answer($1, $2, $3::jsonb);

-- name: revive :one
select verdict, state, available, price, expires_at from millpond.revive($1, $2, $3::interval);

-- name: expire :many
select job_id, tenant, kind, from_state, state, outcome, price, captured from millpond.expire($1);

-- name: enforce :many
select job_id, tenant, kind, from_state, state, outcome, price, captured from millpond.enforce($1);

-- name: promote :many
select job_id, tenant, kind, queue, from_state, state from millpond.promote($1);
