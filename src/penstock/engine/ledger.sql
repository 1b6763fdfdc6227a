-- Ledger: credits. Home: tenant.
-- Invariants: an account equals the sum of its entries; what is held equals its open holds; each hold is settled
-- once, captured and released adding up to it.

-- function: charge
-- Takes the holds of jobs that have just been admitted, in order, under the locks of their accounts. Refuses all
-- (PS003) if an account cannot carry them after all. Part of penstock.submit_batch: same transaction.
create or replace function penstock.charge(
    job_ids uuid[], tenants text[], accounts text[], prices integer[], wallets bigint[]
) returns table (tenant text, account text, available bigint)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    done integer;
begin
    if cardinality(wallets) > 1 then  -- in the order in which all others take them
        perform from penstock.accounts a where a.id = any(wallets) order by a.tenant, a.account for update;
    end if;

    return query
    with charged as materialized (
        update penstock.accounts a
        set available = a.available - t.price, held = a.held + t.price,
            active = a.active + t.jobs, entries = a.entries + t.holds
        from (
            select i.tenant, i.account, sum(i.price) as price, count(*) as jobs, count(*) filter (where i.price > 0) as holds
            from unnest(tenants, accounts, prices) as i(tenant, account, price) group by i.tenant, i.account
        ) t
        where a.id = any(wallets) and a.tenant = t.tenant and a.account = t.account
            and a.available >= t.price and (a.active_max is null or a.active + t.jobs <= a.active_max)
        returning a.tenant, a.account, a.available, a.held, a.entries, t.price, t.holds
    ),
    entered as (
        insert into penstock.entries (
            tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
        )
        select c.tenant, c.account, c.entries - c.holds + row_number() over account, penstock.clock(), 'hold', -i.price, i.price, 0,
            c.available + c.price - sum(i.price) over account, c.held - c.price + sum(i.price) over account, i.job_id, 1
        from unnest(job_ids, tenants, accounts, prices) with ordinality as i(job_id, tenant, account, price, n)
        join charged c on c.tenant = i.tenant and c.account = i.account
        where i.price > 0
        window account as (partition by c.tenant, c.account order by i.n)
    )
    select tenant, account, available from charged;

    get diagnostics done = row_count;
    if done <> cardinality(wallets) then
        raise exception 'an account has changed' using errcode = 'PS003';
    end if;
end $$;

-- function: settle
-- Settles the holds of jobs that have just ended: what was captured leaves the account, the rest is available again.
-- Part of penstock.move: same transaction, same clock.
create or replace function penstock.settle(job_ids uuid[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    low uuid := penstock.least_id(job_ids);
    high uuid := penstock.greatest_id(job_ids);
begin
    with ended as materialized (
        select j.id, j.tenant, j.account, j.price, j.captured, j.run, j.finished_at
        from penstock.jobs j where j.id = any(job_ids) and j.id >= low and j.id <= high
    ),
    wallet as materialized (
        select w.*
        from (select distinct tenant, account from ended order by tenant, account) e
        cross join lateral (
            select a.id, a.tenant, a.account, a.available, a.held, a.entries
            from penstock.accounts a where a.tenant = e.tenant and a.account = e.account for update
        ) w
    ),
    settled as materialized (
        select e.*, w.id as wallet_id,
            w.available + sum(price - captured) over account as available_after,
            w.held - sum(price) over account as held_after,
            w.entries + count(*) filter (where price > 0) over account as seq
        from ended e join wallet w on w.tenant = e.tenant and w.account = e.account
        window account as (partition by w.id order by e.id)
    ),
    repaid as (
        update penstock.accounts a
        set available = a.available + t.released, held = a.held - t.price,
            active = a.active - t.jobs, entries = a.entries + t.entries
        from (
            select wallet_id, sum(price - captured) as released, sum(price) as price, count(*) as jobs,
                count(*) filter (where price > 0) as entries
            from settled group by wallet_id
        ) t
        where a.id = any(array(select id from wallet)) and t.wallet_id = a.id
    )
    insert into penstock.entries (
        tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
    )
    select tenant, account, seq, finished_at, case when captured > 0 then 'capture' else 'release' end,
        price - captured, -price, captured, available_after, held_after, id, run
    from settled where price > 0;
end $$;

-- function: post
-- Credits come in ('grant') or are put right ('adjust'). A reference makes it happen once, however often it is asked
-- for. Verdicts: 'posted', 'repeated' (with what was posted then), 'mismatch' (the reference was used for something else),
-- 'short' (an adjustment below zero).
create or replace function penstock.post(
    type text, tenant text, account text, amount bigint, reference text, reason text
) returns table (verdict text, available bigint, held bigint, seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    wallet penstock.accounts;
    earlier penstock.entries;
begin
    insert into penstock.accounts (tenant, account) values (post.tenant, post.account) on conflict do nothing;
    select a.* into wallet from penstock.accounts a
    where a.tenant = post.tenant and a.account = post.account for update;
    select e.* into earlier from penstock.entries e
    where e.tenant = post.tenant and e.account = post.account and e.reference = post.reference;

    if earlier.seq is not null then
        return query select
            case when earlier.type = post.type and earlier.available = amount then 'repeated' else 'mismatch' end,
            wallet.available, wallet.held, earlier.seq;
    elsif wallet.available + amount < 0 then
        return query select 'short', wallet.available, wallet.held, null::bigint;
    else
        update penstock.accounts a set available = a.available + amount, entries = a.entries + 1 where a.id = wallet.id;
        insert into penstock.entries (
            tenant, account, seq, at, type, available, held, outside, available_after, held_after, reference, reason
        ) values (
            wallet.tenant, wallet.account, wallet.entries + 1, penstock.clock(), post.type, amount, 0, -amount,
            wallet.available + amount, wallet.held, post.reference, post.reason
        );
        return query select 'posted', wallet.available + amount, wallet.held, wallet.entries + 1;
    end if;
end $$;

-- name: post :one
select verdict, available, held, seq from penstock.post($1::text, $2::text, $3::text, $4::bigint, $5::text, $6::text);

-- name: balance :maybe
select tenant, account, available, held, active, active_max from penstock.accounts where tenant = $1 and account = $2;

-- name: entries :many
-- The newest first, below a sequence number.
select seq, at, type, available, held, outside, available_after, held_after, job_id, run, reference, reason
from penstock.entries
where tenant = $1 and account = $2 and seq < $3::bigint
order by seq desc
limit $4;

-- name: open_accounts :exec
insert into penstock.accounts (tenant, account)
select distinct i.tenant, i.account from unnest($1::text[], $2::text[]) as i(tenant, account)
order by 1, 2
on conflict do nothing;

-- name: set_cap :one
insert into penstock.accounts (tenant, account, active_max) values ($1, $2, $3::integer)
on conflict (tenant, account) do update set active_max = excluded.active_max
returning tenant, account, available, held, active, active_max;
