-- Ledger: credits. Home: tenant.
-- Invariants: an account equals the sum of its entries; what is held equals its open holds; each hold is settled
-- once, captured and released adding up to it. Holds and settlements are written with their jobs (see jobs.sql).

-- function: post
-- Credits come in ('grant') or are put right ('adjust'). A reference makes it happen once, however often it is asked
-- for. Verdicts: 'posted', 'repeated' (with what was posted then), 'mismatch' (the reference has another amount),
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
        return query select case when earlier.available = amount then 'repeated' else 'mismatch' end,
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
