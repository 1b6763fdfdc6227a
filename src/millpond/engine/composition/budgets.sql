-- Budgets: what the descendants of a job may cost. Database: tenant.
-- Invariants: of a budget, spent + reserved never exceeds the amount; reserved is what the jobs that it pays for may
-- still cost; what they cost is captured from the hold of the first ancestor, in the commits in which they end. When a
-- budget is closed, the budget above it or the account takes over the jobs that have not ended.
-- Accounts are locked before budgets. All jobs of a tree have the same account, so its lock orders their ends.

-- function: amounts
-- What jobs may cost: their prices and their own budgets.
create or replace function millpond.amounts(prices integer[], budgets integer[], size integer) returns bigint[]
language sql immutable as $$
    select case
        when budgets is null and cardinality(prices) = 1 then array_fill(prices[1]::bigint, array[size])
        when budgets is null then prices::bigint[]
        else array(
            select i.price::bigint + coalesce(i.budget, 0)
            from unnest(millpond.spread(prices, size), millpond.spread(budgets, size)) with ordinality as i(price, budget, n) order by i.n
        )
    end
$$;

-- function: reserve
-- Reserves what children may cost in the budget of their parent or, if it has none, in the one that pays for the parent.
-- Without either, the account pays, and the payer is null. If too little is left, nothing is written, and `remaining` is
-- negative: -1 if nothing is left, -2 if one credit is left, and so on.
create or replace function millpond.reserve(parent uuid, run smallint, job_ids uuid[], amounts bigint[])
returns table (payer_id uuid, remaining bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    wanted bigint := (select coalesce(sum(a), 0) from unnest(amounts) as a);
    payer uuid;
    budget millpond.budgets;
begin
    loop
        select b.* into budget from millpond.budgets b
        where b.job_id = parent and b.run = reserve.run and b.closed_at is null for update;
        if budget.job_id is null then
            select r.payer_id into payer from millpond.reservations r where r.job_id = parent and r.captured is null;
            if payer is null then
                return query select null::uuid, null::bigint;
                return;
            end if;
            select b.* into budget from millpond.budgets b where b.job_id = payer and b.closed_at is null for update;
            continue when budget.job_id is null;  -- it was closed meanwhile: another one pays for the parent now
        end if;
        exit;
    end loop;
    if budget.amount - budget.spent - budget.reserved < wanted then
        return query select budget.job_id, -1 - (budget.amount - budget.spent - budget.reserved);
        return;
    end if;
    update millpond.budgets b set reserved = b.reserved + wanted where b.job_id = budget.job_id and b.run = budget.run;
    insert into millpond.reservations (job_id, tenant, payer_id, amount)
    select i.job_id, budget.tenant, budget.job_id, i.amount from unnest(job_ids, amounts) as i(job_id, amount);
    return query select budget.job_id, budget.amount - budget.spent - budget.reserved - wanted;
end $$;

-- function: budgeted
-- Those of these jobs that have an open budget, or that a budget pays for.
create or replace function millpond.budgeted(job_ids uuid[]) returns uuid[]
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
begin
    return array(
        select r.job_id from millpond.reservations r where r.job_id = any(job_ids) and r.captured is null
        union
        select b.job_id from millpond.budgets b where b.job_id = any(job_ids) and b.closed_at is null
    );
end $$;

-- function: settle_budgeted
-- The part of millpond.settle for such jobs; descendants are settled before their ancestors. The caller has locked the
-- accounts. Most are children without a budget of their own, paid for by one that is not a part of another: for them
-- there is a shorter way.
create or replace function millpond.settle_budgeted(job_ids uuid[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
    level record;
begin
    if not exists (select from millpond.budgets b where b.job_id = any(job_ids) and b.closed_at is null)
        and not exists (
            select from millpond.reservations r
            where r.captured is null and r.job_id = any(array(
                select p.payer_id from millpond.reservations p where p.job_id = any(job_ids) and p.captured is null
            ))
        )
    then
        perform millpond.settle_children(job_ids);
        return;
    end if;
    for level in
        select array_agg(j.id order by j.id) as ids from millpond.jobs j
        where j.id = any(job_ids) and j.id >= low and j.id <= high
        group by j.depth order by j.depth desc
    loop
        perform millpond.settle_level(level.ids);
    end loop;
end $$;

-- function: settle_children
-- Captures what children without budgets have cost from the holds of the jobs with the budgets.
create or replace function millpond.settle_children(job_ids uuid[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    with paid as materialized (
        update millpond.reservations r set captured = j.captured
        from millpond.jobs j
        where r.job_id = any(job_ids) and r.captured is null and j.id = any(job_ids) and j.id >= low and j.id <= high and j.id = r.job_id
        returning r.job_id, r.payer_id, r.amount, r.captured, j.tenant, j.account, j.run, j.finished_at
    ),
    charged as (
        update millpond.budgets b set spent = b.spent + s.spent, reserved = b.reserved - s.freed
        from (select payer_id, sum(captured) as spent, sum(amount) as freed from paid group by payer_id) s
        where b.job_id = any(array(select payer_id from paid)) and b.job_id = s.payer_id and b.closed_at is null
    ),
    wallet as materialized (
        select i.tenant, i.account, w.* from (select distinct tenant, account from paid where captured > 0) i
        cross join lateral (
            select a.ctid as place, a.held, a.available, a.entries from millpond.accounts a
            where a.tenant = i.tenant and a.account >= i.account and a.account <= i.account
            order by a.account desc limit 1
        ) w
    ),
    line as materialized (
        select p.*, w.place, w.available as available_after, w.held - sum(p.captured) over account as held_after,
            w.entries + count(*) over account as seq
        from paid p join wallet w on w.tenant = p.tenant and w.account = p.account
        where p.captured > 0
        window account as (partition by w.place order by p.job_id)
    ),
    taken as (
        update millpond.accounts a set held = a.held - t.captured, entries = a.entries + t.entries
        from (select place, sum(captured) as captured, count(*) as entries from line group by place) t
        where a.ctid = any(array(select place from wallet)) and a.ctid = t.place
    )
    insert into millpond.entries (
        tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
    )
    select tenant, account, seq, finished_at, 'capture', 0, -captured, captured, available_after, held_after, job_id, run
    from line;
end $$;

-- function: settle_level
-- Settles jobs none of which is an ancestor of another. Each captures what it has cost: from its own hold, the rest of
-- which is released, or from the hold of the ancestor whose budget pays for it. A budget that is closed hands the jobs
-- for which it still pays to the budget above it; the first one of a tree hands them to the account, as holds of their
-- own.
create or replace function millpond.settle_level(job_ids uuid[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    -- After this, no child is submitted at the cost of these budgets.
    perform from millpond.budgets b where b.job_id = any(job_ids) and b.closed_at is null order by b.job_id for update;

    with recursive ended as materialized (
        select j.id, j.tenant, j.account, j.run, j.price, j.captured, j.finished_at, j.parent_id is null as is_counted,
            r.payer_id, b.amount as budget, j.price + coalesce(b.amount - b.spent, 0) as held
        from millpond.jobs j
        left join millpond.reservations r on r.job_id = any(job_ids) and r.job_id = j.id and r.captured is null
        left join millpond.budgets b on b.job_id = any(job_ids) and b.job_id = j.id and b.run = j.run and b.closed_at is null
        where j.id = any(job_ids) and j.id >= low and j.id <= high
    ),
    left_over as materialized (  -- the jobs for which a closed budget still pays, with what they may still cost
        select e.id as payer_id, e.payer_id as heir_id, r.job_id, r.amount - coalesce(b.spent - b.moved, 0) as amount,
            b.spent is not null as has_budget
        from ended e
        cross join lateral (
            select r.job_id, r.amount from millpond.reservations r where r.payer_id = e.id and r.captured is null and e.budget is not null
        ) r
        left join lateral (
            select b.spent, b.moved from millpond.budgets b where b.job_id = r.job_id and b.closed_at is null limit 1
        ) b on true
    ),
    inherited as (
        update millpond.reservations r set payer_id = o.heir_id, amount = o.amount
        from left_over o where r.job_id = any(array(select job_id from left_over)) and r.job_id = o.job_id and o.heir_id is not null
    ),
    detached as (
        delete from millpond.reservations r
        where r.job_id = any(array(select job_id from left_over where heir_id is null))
    ),
    moved as (
        update millpond.budgets b set moved = b.spent
        where b.job_id = any(array(select job_id from left_over)) and b.closed_at is null
    ),
    closed as (
        update millpond.budgets b set closed_at = e.finished_at, reserved = 0
        from ended e where b.job_id = any(job_ids) and b.job_id = e.id and b.run = e.run and b.closed_at is null
    ),
    captured as (
        update millpond.reservations r set captured = e.captured
        from ended e where r.job_id = any(job_ids) and r.job_id = e.id and r.captured is null and e.payer_id is not null
    ),
    share as (  -- what each budget above has spent on these jobs, and what it reserves less
        select e.payer_id as job_id, e.captured::bigint as spent,
            e.held - coalesce((select sum(o.amount) from left_over o where o.payer_id = e.id), 0)::bigint as freed
        from ended e where e.payer_id is not null
        union all
        select r.payer_id, s.spent, s.spent
        from share s cross join lateral (
            select r.payer_id from millpond.reservations r where r.job_id = s.job_id and r.captured is null limit 1
        ) r
    ),
    charged as (
        update millpond.budgets b set spent = b.spent + s.spent, reserved = b.reserved - s.freed
        from (select job_id, sum(spent) as spent, sum(freed) as freed from share group by job_id) s
        where b.job_id = any(array(select job_id from share)) and b.job_id = s.job_id and b.closed_at is null
    ),
    line as materialized (  -- the entries, and for jobs without one their part in the number of active jobs
        select e.tenant, e.account, e.id as place, 0 as part, e.id as job_id, e.run, e.finished_at as at,
            case when e.captured > 0 then 'capture' else 'release' end as type,
            case when e.payer_id is null then e.held - e.captured else 0 end as available,
            case when e.payer_id is null then -e.held else -e.captured end as held, e.captured::bigint as outside,
            case when e.payer_id is null then e.price > 0 or e.budget is not null else e.captured > 0 end as is_entry,
            e.is_counted
        from ended e
        union all
        select e.tenant, e.account, e.id, 1, o.job_id, j.run, e.finished_at, 'hold', -o.amount, o.amount, 0,
            j.price > 0 or o.has_budget, false
        from left_over o
        join ended e on e.id = o.payer_id
        cross join lateral (select j.run, j.price from millpond.jobs j where j.id = o.job_id limit 1) j
        where o.heir_id is null
    ),
    balanced as materialized (
        select l.*, a.place as at_place,
            a.available + sum(l.available) over account as available_after,
            a.held + sum(l.held) over account as held_after,
            a.entries + count(*) filter (where l.is_entry) over account as seq
        from line l
        join (
            select i.tenant, i.account, w.* from (select distinct tenant, account from line) i
            cross join lateral (
                select a.ctid as place, a.available, a.held, a.entries from millpond.accounts a
                where a.tenant = i.tenant and a.account >= i.account and a.account <= i.account
                order by a.account desc limit 1
            ) w
        ) a on a.tenant = l.tenant and a.account = l.account
        window account as (partition by l.tenant, l.account order by l.place, l.part, l.job_id)
    ),
    paid as (
        update millpond.accounts a
        set available = a.available + t.available, held = a.held + t.held, active = a.active - t.jobs, entries = a.entries + t.entries
        from (
            select at_place, sum(available) as available, sum(held) as held, count(*) filter (where is_counted) as jobs,
                count(*) filter (where is_entry) as entries
            from balanced group by at_place
        ) t
        where a.ctid = any(array(select at_place from balanced)) and a.ctid = t.at_place
    )
    insert into millpond.entries (
        tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
    )
    select tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
    from balanced where is_entry;
end $$;

-- name: read :maybe
-- The budget of a run of a job.
select b.amount, b.spent, b.reserved from millpond.budgets b where b.job_id = $1 and b.run = $2 and b.tenant = $3;
