-- Jobs: the requests of clients, and their results. Database: tenant.
-- Invariants: state changes only through millpond.transition (and its guard); the events of a job are numbered 1..n
-- without a gap; a job that has ended has its hold settled in the same commit.
--
-- The functions set three planner settings, because they have one plan for calls with one item and with a thousand, on
-- an empty database and on one with millions of jobs. Every table is reached through `= any(ids)` or a lateral look-up,
-- both of which can only be index scans, and all else is hashed.

-- function: submit_batch
-- Inserts jobs with their idempotency keys, first events, dispatches and holds: all of them or none. If one job cannot be
-- accepted, nothing is written (PS003), and millpond.judge then returns which one and why.
-- A column with the same value for all jobs may be given as one value. The payers are the accounts, each once, ordered by
-- name, with the sum and number of their jobs. For each job, `payer` is the index of its payer, `nth` its position among
-- the payer's holds, and `spent` the sum of the payer's prices up to and including it. The result is the available
-- balance of each payer.
-- Balances are first checked without a lock. millpond.charge comes last, takes the locks and checks again, so the lock
-- shared by all jobs of an account is held only during the charge. The statements are plain on purpose: starting one
-- costs more than running it, and joins cost most.
-- If the queue is in another database (`is_remote`), the dispatches are recorded as owed (see remote.sql). Jobs with a
-- webhook URL of their own are few, and their URLs are one value (`hooks`). All jobs of a call belong to the same batch,
-- and have the same parent, if any. Without payers, the caller has already reserved what the jobs may cost.
create or replace function millpond.submit_batch(
    is_fair boolean, is_remote boolean, job_ids uuid[], tenants text[], accounts text[], kinds text[], lifecycles text[], queues text[],
    initial_states text[], entry_states text[], prices integer[], inputs jsonb[], scopes text[], keys text[], requests jsonb[],
    priorities smallint[], run_ats timestamptz[], lifetimes interval[], retries uuid[], payers integer[], nths integer[],
    spents bigint[], payer_tenants text[], payer_accounts text[], sums bigint[], counts integer[], holds integer[],
    hooks jsonb default null, tags jsonb[] default null, budgets integer[] default null, batch_id uuid default null,
    parent_id uuid default null, depth smallint default null
) returns table (available bigint[], created_at timestamptz)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    size integer := cardinality(job_ids);
    hops boolean := initial_states is distinct from entry_states;
    apart integer := greatest(  -- a column with the same value for all jobs counts as one
        cardinality(tenants), cardinality(kinds), cardinality(initial_states), cardinality(entry_states),
        cardinality(prices), cardinality(run_ats)
    );
    keyed integer;
    amounts bigint[] := prices;
begin
    if exists (select from unnest(kinds) as i(kind) where not exists (select from millpond.kinds k where k.kind = i.kind)) then
        raise exception 'the kind is not registered' using errcode = 'PS004';
    end if;
    if not millpond.can_pay(payer_tenants, payer_accounts, sums, counts) then
        raise exception 'an account cannot pay for its jobs' using errcode = 'PS003';
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
        amounts := prices;
        scopes := millpond.spread(scopes, size);
        priorities := millpond.spread(priorities, size);
        run_ats := millpond.spread(run_ats, size);
        lifetimes := millpond.spread(lifetimes, size);
        payers := millpond.spread(payers, size);
        budgets := millpond.spread(budgets, size);
    end if;

    if keys is not null then
        insert into millpond.idempotency (tenant, scope, key, job_id, request, created_at, expires_at)
        select i.tenant, i.scope, i.key, i.job_id, i.request, present, greatest(i.run_at, present) + i.lifetime
        from unnest(tenants, scopes, keys, job_ids, requests, run_ats, lifetimes)
            as i(tenant, scope, key, job_id, request, run_at, lifetime)
        where i.key is not null
        order by i.key, i.scope, i.tenant  -- so two batches with the same keys cannot deadlock
        on conflict do nothing;
        get diagnostics keyed = row_count;
        if keyed <> cardinality(array_remove(keys, null)) then
            raise exception 'an idempotency key is taken' using errcode = 'PS003';
        end if;
    end if;

    insert into millpond.jobs (
        id, tenant, account, kind, lifecycle, queue, state, phase, priority, events, price,
        created_at, run_at, expires_at, retry_of, input, tags, batch_id, parent_id, depth
    )
    select i.job_id, i.tenant, i.account, i.kind, i.lifecycle, i.queue,
        case when i.run_at > present then i.initial_state else i.entry_state end,
        case when i.run_at > present then 'waiting' else 'ready' end,
        i.priority, case when i.run_at > present or i.entry_state = i.initial_state then 1 else 2 end, i.price,
        present, i.run_at, greatest(i.run_at, present) + i.lifetime, i.retry_of, i.input, i.tags,
        submit_batch.batch_id, submit_batch.parent_id, coalesce(submit_batch.depth, case when i.budget is not null then 0 end)
    from unnest(
        job_ids, tenants, accounts, kinds, lifecycles, queues, initial_states, entry_states, prices, inputs, priorities, run_ats,
        lifetimes, retries, tags, budgets
    ) as i(
        job_id, tenant, account, kind, lifecycle, queue, initial_state, entry_state, price, input, priority, run_at, lifetime, retry_of,
        tags, budget
    );
    if budgets is not null then
        insert into millpond.budgets (job_id, run, tenant, amount)
        select i.job_id, 1, i.tenant, i.budget from unnest(job_ids, tenants, budgets) as i(job_id, tenant, budget)
        where i.budget is not null;
        amounts := millpond.amounts(prices, budgets, size);
    end if;

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
        insert into millpond.hooks (job_id, tenant, url, receiver, secret, events, decides)
        select i.job_id, i.tenant, i.url, i.receiver, decode(i.secret, 'base64'), i.events, i.decides
        from jsonb_to_recordset(submit_batch.hooks)
            as i(job_id uuid, tenant text, url text, receiver text, secret text, events text[], decides boolean);
    end if;
    if hooks is not null or exists (select from millpond.subscriptions s where s.event = any('{submitted,queued}')) then
        perform millpond.announce('submitted', job_ids, 1, false);
        perform millpond.announce('queued', job_ids, 2, false);
    end if;

    if apart = 1 then
        insert into millpond.counter_changes (at, tenant, kind, event, to_state, to_phase, n, price)
        values (
            millpond.minute(present), tenants[1], kinds[1], 'submitted',
            case when run_ats[1] > present then initial_states[1] else entry_states[1] end,
            case when run_ats[1] > present then 'waiting' else 'ready' end, size, prices[1]::bigint * size
        );
    else
        insert into millpond.counter_changes (at, tenant, kind, event, to_state, to_phase, n, price)
        select millpond.minute(present), i.tenant, i.kind, 'submitted',
            case when i.run_at > present then i.initial_state else i.entry_state end,
            case when i.run_at > present then 'waiting' else 'ready' end, count(*), sum(i.price)
        from unnest(tenants, kinds, initial_states, entry_states, prices, run_ats)
            as i(tenant, kind, initial_state, entry_state, price, run_at)
        group by 2, 3, 5, 6;
    end if;

    if is_remote then
        perform millpond.owe(present, job_ids);
    else
        perform millpond.enqueue(is_fair, present, job_ids, tenants, accounts, kinds, queues, priorities, run_ats, lifetimes);
    end if;

    return query
    select millpond.charge(job_ids, tenants, accounts, amounts, payers, nths, spents, payer_tenants, payer_accounts, sums, counts, holds), present;
end $$;

-- function: submit_and_notify
-- Submits jobs, commits, and only then sends the notification, all in one round trip. All commits wait for each other
-- while a transaction with a NOTIFY is written. The second transaction has nothing to write, and does not wait for the
-- disk.
create or replace procedure millpond.submit_and_notify(
    topics text, is_fair boolean, job_ids uuid[], tenants text[], accounts text[], kinds text[], lifecycles text[], queues text[],
    initial_states text[], entry_states text[], prices integer[], inputs jsonb[], scopes text[], keys text[], requests jsonb[],
    priorities smallint[], run_ats timestamptz[], lifetimes interval[], retries uuid[], payers integer[], nths integer[],
    spents bigint[], payer_tenants text[], payer_accounts text[], sums bigint[], counts integer[], holds integer[], hooks jsonb,
    inout available bigint[], inout created_at timestamptz, tags jsonb[] default null, budgets integer[] default null
)
language plpgsql as $$
begin
    select s.available, s.created_at into available, created_at
    from millpond.submit_batch(
        is_fair, false, job_ids, tenants, accounts, kinds, lifecycles, queues, initial_states, entry_states, prices, inputs, scopes, keys,
        requests, priorities, run_ats, lifetimes, retries, payers, nths, spents, payer_tenants, payer_accounts, sums, counts, holds, hooks, tags,
        budgets
    ) s;
    commit;
    perform set_config('synchronous_commit', 'off', true), pg_notify('millpond', topics);
end $$;

-- function: spread
-- Expands a column of one value to `size` values; returns any other column unchanged.
create or replace function millpond.spread(given anyarray, size integer) returns anyarray
language sql immutable parallel safe as $$
    select case when cardinality(given) = 1 and size > 1 then array_fill(given[1], array[size]) else given end
$$;

-- function: judge
-- What can prevent the acceptance of a batch, for each item in order: whether its key is taken, and the balance and
-- limit of its account. An account that does not exist yet has no credits and no limit.
create or replace function millpond.judge(tenants text[], accounts text[], scopes text[], keys text[], size integer)
returns table (is_replay boolean, has_no_account boolean, available bigint, active integer, active_max integer)
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

-- function: transition
-- The only function that changes the state of jobs. It applies a lifecycle event to each job, writes the job's event,
-- announces it to subscribers and, where the job ends, settles its hold. It applies to all jobs or none: a job whose
-- state has no transition for the event is an error. Counter changes are written in the same statement (see
-- counters.sql). `was` is the phase that all of them are in, where the caller knows it; otherwise it is looked up. Most
-- columns are null for most events. They are read by index: for a single job, unnesting them would cost more than its
-- event.
create or replace function millpond.transition(
    event text, phase text, job_ids uuid[], epochs integer[] default null, attempts smallint[] default null,
    outputs jsonb[] default null, errors jsonb[] default null, captures integer[] default null, memos jsonb[] default null,
    answers jsonb[] default null, notes jsonb[] default null, was text default null, waits text[] default null
) returns table (
    job_id uuid, tenant text, account text, kind text, queue text, priority smallint, from_state text, state text,
    outcome text, seq integer, epoch integer, attempts_ smallint, run smallint, price integer, captured integer,
    progress real, stage text, input jsonb, memo jsonb, answer jsonb, created_at timestamptz, expires_at timestamptz, parent_id uuid, depth smallint
)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    starts boolean := transition.event = 'started';
    ends boolean := transition.phase = 'ended';
    succeeds boolean := transition.event = 'succeeded';
    renews boolean := transition.event = 'retried';
    fails boolean := transition.event in ('failed', 'expired', 'blocked');
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
    with changed as materialized (
        update millpond.jobs j
        set state = m.to_state,
            phase = transition.phase,
            events = j.events + 1,
            noted = case when starts then 0 else j.noted end,
            run = j.run + renews::int,
            epoch = coalesce(epochs[i.n::int], j.epoch),
            attempts = coalesce(transition.attempts[i.n::int], j.attempts),
            output = case when renews then null else coalesce(outputs[i.n::int], j.output) end,
            error = case when renews or succeeds then null else coalesce(errors[i.n::int], j.error) end,
            fingerprint = case when fails then millpond.fingerprint(j.kind, transition.event, coalesce(errors[i.n::int], j.error)) end,
            memo = case when renews then null else coalesce(memos[i.n::int], j.memo) end,
            answer = case when renews then null else coalesce(answers[i.n::int], j.answer) end,
            progress = case when succeeds then 1 when renews then 0 else j.progress end,
            stage = case when renews then null else j.stage end,
            started_at = case when starts then coalesce(j.started_at, greatest(present, j.created_at))
                when renews then null else j.started_at end,
            finished_at = case when ends then greatest(present, j.created_at, j.started_at) end,
            cancel_requested_at = case when renews then null else j.cancel_requested_at end,
            waits_for = waits[i.n::int],
            captured = case when ends then least(j.price, coalesce(captures[i.n::int], case when succeeds then j.price else 0 end)) end
        from unnest(job_ids) with ordinality as i(job_id, n), millpond.lifecycle_transitions m
        where j.id = any(job_ids) and j.id >= low and j.id <= high and i.job_id = j.id
            and m.lifecycle = j.lifecycle and m.from_state = j.state and m.event = transition.event
        returning j.id, j.tenant, j.account, j.kind, j.queue, j.priority, m.from_state, j.state, j.outcome, j.events,
            j.epoch, j.attempts, j.run, j.price, j.captured, j.progress, j.stage,
            case when starts then j.input end as input, case when starts then j.memo end as memo,
            case when starts then j.answer end as answer, j.created_at, j.expires_at, j.parent_id, j.depth,
            notes[i.n::int] as note,
            coalesce(was, phases[i.n::int]) as from_phase,
            case
                when ends then j.finished_at - j.started_at
                when starts and j.epoch = 1 then j.started_at - greatest(j.created_at, j.run_at)
            end as length
    ),
    counted as (
        insert into millpond.counter_changes (
            at, tenant, kind, event, from_state, from_phase, to_state, to_phase, outcome, n, price, captured, bucket
        )
        select millpond.minute(present), tenant, kind, transition.event, from_state, from_phase, state, transition.phase, outcome,
            count(*), sum(price), sum(captured), bucket
        from (  -- ordered: setting up a sort costs less than a hash, and usually there is one job to count
            select tenant, kind, from_state, from_phase, state, outcome, price, captured,
                case when length is not null then millpond.bucket(length) end as bucket
            from changed order by bucket, tenant, kind, from_state, from_phase, state, outcome
        ) m
        group by bucket, tenant, kind, from_state, from_phase, state, outcome
    ),
    logged as (
        insert into millpond.events (job_id, seq, at, type, state, tenant, data)
        select id, events, present, transition.event, state, tenant, note from changed
    )
    select id, tenant, account, kind, queue, priority, from_state, state, outcome, events, epoch, attempts, run, price,
        captured, progress, stage, input, memo, answer, created_at, expires_at, parent_id, depth
    from changed;

    get diagnostics done = row_count;
    if done <> cardinality(job_ids) then
        raise exception 'transition denied: % in %', transition.event, (
            select string_agg(format('%s (%s)', j.id, j.state), ', ') from millpond.jobs j
            where j.id = any(job_ids) and not exists (
                select from millpond.lifecycle_transitions m
                where m.lifecycle = j.lifecycle and m.from_state = j.state and m.event = transition.event
            )
        ) using errcode = 'PS001';
    end if;
    if coalesce(was = transition.phase, transition.phase = any(phases)) then
        -- The guard assumes that an unchanged phase was forgotten, and sets the one that the new state implies.
        update millpond.jobs j set phase = transition.phase where j.id = any(job_ids) and j.id >= low and j.id <= high and j.phase <> transition.phase;
    end if;
    if exists (select from millpond.subscriptions s where s.event = transition.event)
        or exists (select from millpond.hooks h where h.job_id = any(job_ids)) then
        perform millpond.announce(transition.event, job_ids, null, ends);
    end if;
    if fails then
        perform millpond.count_failures(present, transition.event, job_ids);
    end if;
    if ends then
        perform millpond.settle(job_ids);
    end if;
end $$;

-- function: cancel
-- Verdicts: 'canceled' (it had not started, and has ended now), 'asked' (its worker is asked to stop it, and it is
-- ended after the grace), 'firm' (its stage refuses cancels), 'unavailable' (its lifecycle has no transition for it),
-- 'ended', 'absent'.
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
-- The tenant database's half of a cancel. `dispatch_phase` is the phase of the job's dispatch; null if it has none.
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
        select from millpond.lifecycle_transitions m
        where m.lifecycle = job.lifecycle and m.from_state = job.state and m.event = 'canceled'
    ) then
        return query select 'unavailable', job.state, job.stage, job.kind, job.state, job.price, job.captured;
    elsif exists (select from millpond.kinds k where k.kind = job.kind and job.stage = any(k.firm_stages)) then
        return query select 'firm', job.state, job.stage, job.kind, job.state, job.price, job.captured;
    elsif dispatch_phase in ('waiting', 'ready', 'parked', 'delivering') then
        return query select 'canceled', m.state, m.stage, m.kind, m.from_state, m.price, m.captured
        from millpond.transition('canceled', 'ended', array[job.id]) m;
    else
        if not is_asked then
            perform millpond.write(job.id, 'cancel_requested', null, true);
        end if;
        return query select 'asked', job.state, job.stage, job.kind, job.state, job.price, job.captured;
    end if;
end $$;

-- function: write
-- Appends an event that does not change the state. The caller holds the lock on the job's row.
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
-- Answers a parked job. Verdicts: 'answered'; 'repeated' (it was given the same answer before); 'unavailable' (it is
-- not parked, or has another answer); 'absent'.
create or replace function millpond.answer(tenant text, job_id uuid, answer jsonb)
returns table (verdict text, state text, queue text, kind text, from_state text)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    dispatch millpond.dispatches;
    applied record;
begin
    select d.* into dispatch from millpond.dispatches d
    where d.job_id = answer.job_id and d.tenant = answer.tenant for update;
    select a.* into applied from millpond.answer_job(
        answer.tenant, answer.job_id, answer.answer, dispatch.phase = 'parked' and dispatch.wakes_at > millpond.clock()
    ) a;
    perform millpond.make_ready(array[answer.job_id]) where applied.verdict = 'answered';
    return query select applied.verdict, applied.state, applied.queue, applied.kind, applied.from_state;
end $$;

-- function: answer_job
-- The tenant database's half of an answer. `is_waited_for` is whether the job's dispatch waits for one.
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
    elsif is_waited_for and job.waits_for is null then
        return query select 'answered', m.state, m.queue, m.kind, m.from_state
        from millpond.transition('answered', 'ready', array[job.id], answers => array[answer_job.answer]) m;
    elsif job.answer = answer_job.answer then
        return query select 'repeated', job.state, job.queue, job.kind, job.state;
    else
        return query select 'unavailable', job.state, job.queue, job.kind, job.state;
    end if;
end $$;

-- function: revive
-- Retries an ended job in place, if its lifecycle has a transition for it: a new run with its own hold.
-- Verdicts: 'revived', 'short' (of credits), 'capped' (too many active jobs), 'unavailable', 'absent'.
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
        -- Epochs increase over all runs, so a former worker of the job is never mistaken for the current one.
        update millpond.dispatches d set epoch = job.epoch where d.job_id = job.id;
    end if;
    return query select answer.verdict, answer.state, answer.available, answer.price, answer.expires_at;
end $$;

-- function: revive_job
-- The tenant database's half of a retry in place. The end of a job of a batch is counted, and cannot be undone.
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
    budget integer;
    cost bigint;
begin
    perform millpond.keep_partitions();
    select j.* into job from millpond.jobs j where j.id = revive_job.job_id and j.tenant = revive_job.tenant for update;
    if job.id is null then
        return query select 'absent', null::text, null::bigint, null::integer, null::timestamptz, present;
        return;
    elsif job.batch_id is not null or not exists (
        select from millpond.lifecycle_transitions m
        where m.lifecycle = job.lifecycle and m.from_state = job.state and m.event = 'retried'
    ) then
        return query select 'unavailable', job.state, null::bigint, job.price, job.expires_at, present;
        return;
    end if;

    select b.amount into budget from millpond.budgets b where b.job_id = job.id and b.run = job.run;
    cost := job.price + coalesce(budget, 0);
    select a.* into wallet from millpond.accounts a
    where a.tenant = job.tenant and a.account = job.account for update;
    if wallet.available < cost then
        return query select 'short', job.state, wallet.available, cost::integer, job.expires_at, present;
        return;
    elsif wallet.active >= wallet.active_max then
        return query select 'capped', job.state, wallet.available, job.price, job.expires_at, present;
        return;
    end if;

    update millpond.accounts a
    set available = a.available - cost, held = a.held + cost, active = a.active + 1, entries = a.entries + (cost > 0)::int
    where a.tenant = job.tenant and a.account = job.account;
    if cost > 0 then
        insert into millpond.entries (
            tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
        ) values (
            job.tenant, job.account, wallet.entries + 1, present, 'hold', -cost, cost, 0,
            wallet.available - cost, wallet.held + cost, job.id, job.run + 1
        );
    end if;
    insert into millpond.budgets (job_id, run, tenant, amount) select job.id, job.run + 1, job.tenant, budget where budget is not null;
    if millpond.is_withheld(job.outcome, job.error) then
        perform millpond.withhold_artifacts(job.id);
    end if;
    perform millpond.transition('retried', 'waiting', array[job.id], attempts => array[0::smallint]);
    update millpond.jobs j set expires_at = deadline where j.id = job.id;
    perform millpond.transition('queued', 'ready', array[job.id])
    from millpond.kinds k where k.kind = job.kind and k.entry_state <> k.initial_state;
    update millpond.jobs j set phase = 'ready' where j.id = job.id and j.phase <> 'ready' returning j.state into readied;
    if found then
        insert into millpond.counter_changes (at, tenant, kind, event, from_state, from_phase, to_state, to_phase, n, price)
        values (millpond.minute(present), job.tenant, job.kind, 'queued', readied, 'waiting', readied, 'ready', 1, job.price);
    end if;
    return query select 'revived', j.state, wallet.available - cost, job.price, deadline, present
    from millpond.jobs j where j.id = job.id;
end $$;

-- function: prioritize
-- Changes the priority of a job that has not started, and with it its position in the queue.
-- Verdicts: 'changed', 'same', 'started' (it is no longer waiting or ready), 'ended', 'absent'.
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
-- The tenant database's half of a change of priority. `dispatch_phase` is the phase of the job's dispatch; null if it
-- has none.
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

-- function: transition_to
-- An operator's transition to a state, by the lifecycle's transition that leads there; the dispatch follows. 'started'
-- and 'retried' are excluded: only a claim starts a job, and only a retry revives one.
-- Verdicts: 'transitioned', 'denied', 'absent'.
create or replace function millpond.transition_to(tenant text, job_id uuid, to_state text)
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
    where d.job_id = transition_to.job_id and d.tenant = transition_to.tenant for update;
    select s.* into answer from millpond.transition_job_to(
        transition_to.tenant, transition_to.job_id, transition_to.to_state, dispatch.job_id is not null, dispatch.cancel_at is not null
    ) s;
    perform millpond.transition_dispatch_to(transition_to.job_id, answer.phase, answer.forgets) where answer.verdict = 'transitioned';
    return query select answer.verdict, answer.from_state, answer.state, answer.outcome;
end $$;

-- function: transition_job_to
-- The tenant database's half of an operator's transition. `is_queued` is whether the job has a dispatch, `is_asked`
-- whether its cancel was requested. Returns the new phase of the dispatch, and whether the dispatch must drop the
-- requested cancel (`forgets`): the new state has no transition for it, so it could never be enforced.
create or replace function millpond.transition_job_to(
    tenant text, job_id uuid, to_state text, is_queued boolean, is_asked boolean
) returns table (verdict text, from_state text, state text, outcome text, phase text, forgets boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    job millpond.jobs;
    event text;
    aim text;
    forgets boolean;
begin
    select j.* into job from millpond.jobs j where j.id = transition_job_to.job_id and j.tenant = transition_job_to.tenant for update;
    if job.id is null then
        return query select 'absent', null::text, null::text, null::text, null::text, false;
        return;
    end if;

    select m.event, s.phase into event, aim
    from millpond.lifecycle_transitions m
    join millpond.lifecycle_states s on s.lifecycle = m.lifecycle and s.state = m.to_state
    where m.lifecycle = job.lifecycle and m.from_state = job.state and m.to_state = transition_job_to.to_state
        and m.from_state <> m.to_state and m.event not in ('started', 'retried')
    order by m.event = s.outcome desc, m.event limit 1;
    if event is null or not is_queued or (aim = 'parked' and job.expires_at is null) then
        return query select 'denied', job.state, job.state, null::text, null::text, false;
        return;
    end if;

    aim := case when aim in ('ended', 'parked', 'delivering') then aim else 'ready' end;
    forgets := is_asked and aim <> 'ended' and not exists (
        select from millpond.lifecycle_transitions m
        where m.lifecycle = job.lifecycle and m.from_state = transition_job_to.to_state and m.event = 'canceled'
    );
    update millpond.jobs j set cancel_requested_at = null where j.id = job.id and forgets;
    return query select 'transitioned', m.from_state, m.state, m.outcome, aim, forgets
    from millpond.transition(event, aim, array[job.id]) m;
end $$;

-- function: apply_due
-- Applies a lifecycle event to the jobs for which it is due, up to `row_limit` at a time (see is_due). Ending a
-- job revokes its lease.
create or replace function millpond.apply_due(event text, row_limit integer)
returns table (
    job_id uuid, tenant text, kind text, queue text, from_state text, state text, outcome text, price integer, captured integer
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    starts boolean := apply_due.event in ('queued', 'resumed');
    ids uuid[];
begin
    select array_agg(d.job_id) into ids from (
        select d.job_id from millpond.dispatches d
        where d.wakes_at <= present and not d.is_remote
            and millpond.is_due(apply_due.event, d, present)
        order by d.wakes_at limit row_limit for update skip locked
    ) d;
    if ids is null then
        return;
    elsif starts then
        perform millpond.make_ready(ids);
    else
        perform millpond.discard(ids);
    end if;
    return query
    select m.job_id, m.tenant, m.kind, m.queue, m.from_state, m.state, m.outcome, m.price, m.captured
    from millpond.transition(
        apply_due.event, case when starts then 'ready' else 'ended' end, ids,
        was => case apply_due.event when 'queued' then 'waiting' when 'resumed' then 'parked' end
    ) m;
end $$;

-- function: lock_attempt
-- For statements of products: the job, locked, while this attempt holds its lease; otherwise no row. A statement that
-- writes from this row writes only for the attempt that holds the job.
create or replace function millpond.lock_attempt(job_id uuid, tenant text, epoch integer)
returns table (id uuid, account text, created_at timestamptz)
language sql volatile as $$
    select j.id, j.account, j.created_at from millpond.jobs j
    where j.id = lock_attempt.job_id and j.tenant = lock_attempt.tenant and j.epoch = lock_attempt.epoch
        and j.phase = 'leased'
    for update
$$;

-- function: final_state
-- For statements of products: the state in which a job has ended; null if it has not ended or is not known. The job
-- does not end before the caller's transaction does.
create or replace function millpond.final_state(job_id uuid, tenant text) returns text
language sql volatile as $$
    with job as materialized (
        select j.state, j.phase from millpond.jobs j
        where j.id = final_state.job_id and j.tenant = final_state.tenant for share
    )
    select f.state from job f where f.phase = 'ended'
$$;

-- function: on_end
-- For migrations of products: calls a trigger function for each job of a lifecycle that ends, in the same transaction.
-- The function reads the job as `new`, and may write only tables of its product, in the same database. If it raises an
-- error, the job does not end.
create or replace function millpond.on_end(lifecycle text, called regproc) returns void
language plpgsql as $$
begin
    execute format(
        $trigger$
        create or replace trigger %I after update of phase on millpond.jobs
        for each row when (new.phase = 'ended' and new.lifecycle = %L) execute function %s()
        $trigger$, (select p.proname from pg_proc p where p.oid = called), lifecycle, called
    );
end $$;

-- name: submit :one
select available, created_at
from millpond.submit_batch(
    is_remote => $1, is_fair => $2, job_ids => $3::uuid[], tenants => $4::text[], accounts => $5::text[],
    kinds => $6::text[], lifecycles => $7::text[], queues => $8::text[], initial_states => $9::text[],
    entry_states => $10::text[], prices => $11::integer[], inputs => $12::jsonb[], scopes => $13::text[],
    keys => $14::text[], requests => $15::jsonb[], priorities => $16::smallint[], run_ats => $17::timestamptz[],
    lifetimes => $18::interval[], retries => $19::uuid[], payers => $20::integer[], nths => $21::integer[],
    spents => $22::bigint[], payer_tenants => $23::text[], payer_accounts => $24::text[], sums => $25::bigint[],
    counts => $26::integer[], holds => $27::integer[], hooks => $28::jsonb, tags => $29::jsonb[], budgets => $30::integer[]
);

-- name: submit_and_notify :one
call millpond.submit_and_notify(
    topics => $1, is_fair => $2, job_ids => $3::uuid[], tenants => $4::text[], accounts => $5::text[],
    kinds => $6::text[], lifecycles => $7::text[], queues => $8::text[], initial_states => $9::text[],
    entry_states => $10::text[], prices => $11::integer[], inputs => $12::jsonb[], scopes => $13::text[],
    keys => $14::text[], requests => $15::jsonb[], priorities => $16::smallint[], run_ats => $17::timestamptz[],
    lifetimes => $18::interval[], retries => $19::uuid[], payers => $20::integer[], nths => $21::integer[],
    spents => $22::bigint[], payer_tenants => $23::text[], payer_accounts => $24::text[], sums => $25::bigint[],
    counts => $26::integer[], holds => $27::integer[], hooks => $28::jsonb, tags => $29::jsonb[], budgets => $30::integer[],
    available => null::bigint[], created_at => null::timestamptz
);

-- name: judge :many
select is_replay, has_no_account, available, active, active_max
from millpond.judge($1::text[], $2::text[], $3::text[], $4::text[], $5);

-- name: present :many
-- Which of these jobs were inserted, when the answer to their submit was lost.
select j.id as job_id, j.tenant, j.account, j.kind, j.state, j.phase, j.price, j.created_at, j.expires_at,
    h.available_after as available
from millpond.jobs j
left join millpond.entries h on h.job_id = j.id and h.run = 1 and h.type = 'hold'
where j.id = any($1::uuid[]);

-- fragment: fields
-- The columns of JobFields, in its order.
id, tenant, account, kind, lifecycle, queue, state, phase, outcome, priority, run, epoch, attempts, events, price, captured,
    progress::numeric::float8 as progress, stage, created_at, run_at, expires_at, started_at, finished_at,
    cancel_requested_at, retry_of, batch_id, parent_id, depth, waits_for, tags

-- name: read :maybe
select {jobs.fields}, input, memo, answer, output, error
from millpond.jobs where id = $1 and tenant = $2;

-- name: read_many :many
select {jobs.fields}, input, memo, answer, output, error
from millpond.jobs
where id = any($1::uuid[]) and id >= millpond.least_id($1::uuid[]) and id <= millpond.greatest_id($1::uuid[]);

-- name: list :many
-- The newest first, below an id; the filters are optional.
select {jobs.fields}, input, memo, answer, output, error
from millpond.jobs
where tenant = $1 and account = $2 and id < $3
    and ($4::text is null or kind = $4) and ($5::text is null or state = $5) and ($6::text is null or phase = $6)
order by id desc
limit $7;

-- name: transition_to :one
select verdict, from_state, state, outcome from millpond.transition_to($1, $2, $3);

-- name: cancel :one
select verdict, state, stage, kind, from_state, price, captured from millpond.cancel($1, $2, $3::interval);

-- name: prioritize :one
select verdict, state, queue, before from millpond.prioritize($1, $2, $3::smallint);

-- name: answer :one
select verdict, state, queue, kind, from_state from millpond.answer($1, $2, $3::jsonb);

-- name: revive :one
select verdict, state, available, price, expires_at from millpond.revive($1, $2, $3::interval);

-- name: apply_due :many
select job_id, tenant, kind, queue, from_state, state, outcome, price, captured from millpond.apply_due($1, $2);

-- name: memo :maybe
-- The memo that the job's code has stored.
select j.memo from millpond.jobs j where j.id = $1 and j.tenant = $2;
