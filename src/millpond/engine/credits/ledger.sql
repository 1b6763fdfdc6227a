-- Ledger: credits. Database: tenant.
-- Invariants: the balance of an account equals the sum of its entries; what is held equals its open holds; each hold is
-- settled once, and captured and released add up to it.

-- function: wallet
-- The current row of an account, by a read that starts at its newest version. Each charge leaves a dead row version
-- behind, and while an old snapshot is open vacuum cannot remove them: an ordinary look-up would scan all of them.
create or replace function millpond.wallet(tenant text, account text)
returns table (available bigint, held bigint, active integer, active_max integer, entries bigint)
language sql stable as $$
    select a.available, a.held, a.active, a.active_max, a.entries
    from millpond.accounts a
    where a.tenant = wallet.tenant and a.account >= wallet.account and a.account <= wallet.account
    order by a.account desc
    limit 1
$$;

-- function: can_pay
-- Whether accounts currently have the credits for jobs of these sums, and their limits allow jobs of these counts.
create or replace function millpond.can_pay(tenants text[], accounts text[], sums bigint[], counts integer[]) returns boolean
language plpgsql as $$
#variable_conflict use_column
begin
    return (
        select count(*) = cardinality(tenants)
            and bool_and(a.available >= w.sum and (a.active_max is null or w.count = 0 or a.active + w.count <= a.active_max))
        from unnest(tenants, accounts, sums, counts) as w(tenant, account, sum, count)
        cross join lateral millpond.wallet(w.tenant, w.account) a
    );
end $$;

-- function: charge
-- Makes the holds of jobs that were just inserted, under the locks of their accounts, and returns the balances that
-- remain. Refuses all jobs (PS003) if an account cannot pay for its own after all. The columns are those of
-- millpond.submit_batch, which calls it: same transaction. `amounts` are the prices with the budgets.
create or replace function millpond.charge(
    job_ids uuid[], tenants text[], accounts text[], amounts bigint[], payers integer[], nths integer[], spents bigint[],
    payer_tenants text[], payer_accounts text[], sums bigint[], counts integer[], holds integer[]
) returns bigint[]
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    places tid[];
    before bigint[];
    held bigint[];
    entries bigint[];
    fits boolean;
begin
    if cardinality(payer_tenants) = 0 then
        return '{}';
    end if;
    select array_agg(a.place), array_agg(a.available), array_agg(a.held), array_agg(a.entries),
        bool_and(a.available >= w.sum and (a.active_max is null or w.count = 0 or a.active + w.count <= a.active_max))
    into places, before, held, entries, fits
    from unnest(payer_tenants, payer_accounts, sums, counts) as w(tenant, account, sum, count)
    cross join lateral (  -- the newest version first, as in millpond.wallet
        select a.ctid as place, a.available, a.held, a.entries, a.active, a.active_max from millpond.accounts a
        where a.tenant = w.tenant and a.account >= w.account and a.account <= w.account
        order by a.account desc limit 1 for update
    ) a;
    if fits is not true or cardinality(places) <> cardinality(payer_tenants) then
        raise exception 'an account has changed' using errcode = 'PS003';
    end if;

    update millpond.accounts a
    set available = a.available - w.sum, held = a.held + w.sum, active = a.active + w.count, entries = a.entries + w.holds
    from unnest(places, sums, counts, charge.holds) as w(place, sum, count, holds)
    where a.ctid = any(places) and w.place = a.ctid;

    insert into millpond.entries (
        tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
    )
    select i.tenant, i.account, entries[i.payer] + i.nth, present, 'hold', -i.amount, i.amount, 0,
        before[i.payer] - i.spent, held[i.payer] + i.spent, i.job_id, 1
    from unnest(job_ids, tenants, accounts, amounts, payers, nths, spents)
        as i(job_id, tenant, account, amount, payer, nth, spent)
    where i.amount > 0;

    return array(select b.available - b.sum from unnest(before, sums) as b(available, sum));
end $$;

-- function: lock_wallets
-- Locks the accounts of jobs, in the order of their names as all callers do, and returns the positions (ctid) of their
-- rows.
create or replace function millpond.lock_wallets(tenants text[], accounts text[]) returns tid[]
language plpgsql as $$
#variable_conflict use_column
begin
    return array(
        select a.place
        from (
            select i.tenant, i.account from unnest(tenants, accounts) as i(tenant, account) group by 1, 2
            order by i.tenant collate "C", i.account collate "C"  -- in the order in which submits sort them
        ) w
        cross join lateral (  -- the newest version first, as in millpond.wallet
            select a.ctid as place from millpond.accounts a
            where a.tenant = w.tenant and a.account >= w.account and a.account <= w.account
            order by a.account desc limit 1 for update
        ) a
    );
end $$;

-- function: settle
-- Settles the holds of jobs that have just ended: captured credits leave the account, the rest is available again. Part
-- of millpond.transition: same transaction, same clock. What the end of a job means to its batch and its parent is done
-- first, because accounts are locked last. Jobs with budgets, and jobs that budgets pay for, are settled by budgets.sql.
create or replace function millpond.settle(job_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
    places tid[];
    tenants text[];
    accounts text[];
    composed uuid[];
    budgeted uuid[];
begin
    select array_agg(j.tenant), array_agg(j.account), array_agg(j.id) filter (where j.depth is not null)
    into tenants, accounts, composed
    from millpond.jobs j where j.id = any(job_ids) and j.id >= low and j.id <= high;
    if composed is not null then
        perform millpond.end_members(composed);
    end if;
    places := millpond.lock_wallets(tenants, accounts);
    if composed is not null then
        budgeted := millpond.budgeted(composed);
        if cardinality(budgeted) = cardinality(tenants) then
            perform millpond.settle_budgeted(budgeted);
            return;
        end if;
    end if;

    with settled as materialized (
        select j.id, j.tenant, j.account, j.price, j.captured, j.run, j.finished_at, a.ctid as place,
            a.available + sum(j.price - j.captured) over account as available_after,
            a.held - sum(j.price) over account as held_after,
            a.entries + count(*) filter (where j.price > 0) over account as seq, j.parent_id is null as is_counted
        from millpond.jobs j
        join millpond.accounts a on a.ctid = any(places) and a.tenant = j.tenant and a.account = j.account
        where j.id = any(job_ids) and j.id >= low and j.id <= high and (budgeted is null or j.id <> all(budgeted))
        window account as (partition by a.ctid order by j.id)
    ),
    repaid as (
        update millpond.accounts a
        set available = a.available + t.released, held = a.held - t.price,
            active = a.active - t.jobs, entries = a.entries + t.entries
        from (
            select place, sum(price - captured) as released, sum(price) as price, count(*) filter (where is_counted) as jobs,
                count(*) filter (where price > 0) as entries
            from settled group by place
        ) t
        where a.ctid = any(places) and a.ctid = t.place
    )
    insert into millpond.entries (
        tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
    )
    select tenant, account, seq, finished_at, case when captured > 0 then 'capture' else 'release' end,
        price - captured, -price, captured, available_after, held_after, id, run
    from settled where price > 0;
    if cardinality(budgeted) > 0 then  -- last, because it changes the places of the rows
        perform millpond.settle_budgeted(budgeted);
    end if;
end $$;

-- function: post
-- Adds credits ('grant') or corrects a balance ('adjust'). With a reference this happens once, however often it is
-- requested. Verdicts: 'posted', 'repeated' (with what was posted then), 'mismatch' (the reference was used for
-- something else), 'short' (an adjustment below zero).
create or replace function millpond.post(
    type text, tenant text, account text, amount bigint, reference text, reason text, job_id uuid default null
) returns table (verdict text, available bigint, held bigint, seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    wallet millpond.accounts;
    earlier millpond.entries;
begin
    insert into millpond.accounts (tenant, account) values (post.tenant, post.account) on conflict do nothing;
    select a.* into wallet from millpond.accounts a
    where a.tenant = post.tenant and a.account = post.account for update;
    select e.* into earlier from millpond.entries e
    where e.tenant = post.tenant and e.account = post.account and e.reference = post.reference;

    if earlier.seq is not null then
        return query select
            case
                when earlier.type = post.type and earlier.available = amount and earlier.job_id is not distinct from post.job_id
                then 'repeated' else 'mismatch'
            end,
            wallet.available, wallet.held, earlier.seq;
    elsif wallet.available + amount < 0 then
        return query select 'short', wallet.available, wallet.held, null::bigint;
    else
        update millpond.accounts a set available = a.available + amount, entries = a.entries + 1
        where a.tenant = wallet.tenant and a.account = wallet.account;
        insert into millpond.entries (
            tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, reference, reason
        ) values (
            wallet.tenant, wallet.account, wallet.entries + 1, millpond.clock(), post.type, amount, 0, -amount,
            wallet.available + amount, wallet.held, post.job_id, post.reference, post.reason
        );
        return query select 'posted', wallet.available + amount, wallet.held, wallet.entries + 1;
    end if;
end $$;

-- function: refund_job
-- The tenant database's half of a refund: returns credits that an ended job has cost, either `amount` or all that are
-- left. The job does not change: its end stays as it was reported. The lock on the account serializes refunds. Refunds
-- are identified by their references, which have a common prefix: a refund of the remainder has the same reference for
-- every caller, one of a part contains the caller's key, and one by a bulk operation contains that operation's. With
-- `seen_run`, what the job has cost up to the end of that run is refunded.
-- Verdicts: 'posted', 'repeated' (with the amount and the reason of that refund), 'mismatch' (the key was used for
-- another amount), 'spent' (less than that is left), 'running', 'passed' (it was run again since), 'absent'.
create or replace function millpond.refund_job(
    tenant text, job_id uuid, amount bigint, key text, reason text, seen_run integer default null
) returns table (
    verdict text, given bigint, available bigint, captured bigint, refunded bigint, at timestamptz, reference text, why text
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    owner text;
    phase text;
    run integer;
    start text := 'refund:' || millpond.typeid('job', refund_job.job_id);
    named text;
    paid bigint;
    back bigint;
    posted record;
    entry millpond.entries;
begin
    select j.account, j.phase, j.run into owner, phase, run from millpond.jobs j
    where j.id = refund_job.job_id and j.tenant = refund_job.tenant;
    named := concat_ws(':', start, coalesce(seen_run, run), refund_job.key);
    perform from millpond.accounts a where a.tenant = refund_job.tenant and a.account = owner for update;
    select e.* into entry from millpond.entries e
    where e.tenant = refund_job.tenant and e.account = owner and e.reference = named and e.type = 'adjust'
        and e.job_id = refund_job.job_id;
    if owner is null or entry.seq is null and (phase <> 'ended' or run <> seen_run) then
        return query select case when owner is null then 'absent' when run <> seen_run then 'passed' else 'running' end,
            0::bigint, 0::bigint, 0::bigint, 0::bigint, null::timestamptz, null::text, null::text;
        return;
    end if;

    select coalesce(sum(e.outside), 0) into paid from millpond.entries e
    where e.job_id = refund_job.job_id and e.type in ('capture', 'release') and e.run <= coalesce(seen_run, run);
    select coalesce(sum(e.available), 0) into back from millpond.entries e
    where e.tenant = refund_job.tenant and e.account = owner and e.reference > start and e.reference < start || ';'
        and e.type = 'adjust' and e.job_id = refund_job.job_id;
    amount := coalesce(amount, entry.available, paid - back);
    if entry.seq is null and (amount <= 0 or amount > paid - back) then
        return query select 'spent', amount, 0::bigint, paid, back, null::timestamptz, null::text, null::text;
        return;
    end if;

    select p.* into posted from millpond.post('adjust', refund_job.tenant, owner, amount, named, refund_job.reason, refund_job.job_id) p;
    return query
    select posted.verdict, amount, posted.available, paid, case posted.verdict when 'posted' then back + amount else back end,
        e.at, e.reference, e.reason
    from millpond.entries e where e.tenant = refund_job.tenant and e.account = owner and e.seq = posted.seq;
end $$;

-- function: refund
-- Refunds what an ended job has cost, and audits that in the same commit. Verdicts: see millpond.refund_job.
create or replace function millpond.refund(
    tenant text, job_id uuid, amount bigint, key text, reason text, actor text, seen_run integer default null
) returns table (verdict text, given bigint, available bigint, captured bigint, refunded bigint, at timestamptz)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    answer record;
begin
    select r.* into answer from millpond.refund_job(refund.tenant, refund.job_id, amount, key, refund.reason, seen_run) r;
    perform millpond.audit_refunded(
        actor, refund.tenant, refund.job_id, answer.given, refund.reason, answer.reference, answer.at
    )
    where answer.verdict = 'posted';
    return query
    select answer.verdict, answer.given, answer.available, answer.captured, answer.refunded, answer.at;
end $$;

-- function: default_cap
-- For statements of products: sets how many jobs an account may have active at once, unless it has a limit already.
create or replace function millpond.default_cap(tenant text, account text, active_max integer) returns void
language sql volatile as $$
    insert into millpond.accounts as a (tenant, account, active_max)
    values (default_cap.tenant, default_cap.account, default_cap.active_max)
    on conflict (tenant, account) do update set active_max = coalesce(a.active_max, excluded.active_max)
$$;

-- name: refund :one
select verdict, given, available, captured, refunded, at
from millpond.refund($1, $2, $3::bigint, $4::text, $5::text, $6::text, $7::integer);

-- name: post :one
select verdict, available, held, seq from millpond.post($1::text, $2::text, $3::text, $4::bigint, $5::text, $6::text);

-- name: balance :maybe
select tenant, account, available, held, active, active_max from millpond.accounts where tenant = $1 and account = $2;

-- name: entries :many
-- The newest first, below a sequence number.
select seq, at, type, available, held, outside, available_after, held_after, job_id, run, reference, reason
from millpond.entries
where tenant = $1 and account = $2 and seq < $3::bigint
order by seq desc
limit $4;

-- name: open_accounts :exec
insert into millpond.accounts (tenant, account)
select distinct i.tenant, i.account from unnest($1::text[], $2::text[]) as i(tenant, account)
order by 1, 2
on conflict do nothing;

-- name: set_cap :one
insert into millpond.accounts (tenant, account, active_max) values ($1, $2, $3::integer)
on conflict (tenant, account) do update set active_max = excluded.active_max
returning tenant, account, available, held, active, active_max;
