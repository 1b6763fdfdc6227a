-- Homes: which tenants live in another database than the queue.

-- name: known :many
-- The tenants that are known to live elsewhere. Home: central.
select tenant from millpond.homes order by tenant;

-- name: settle_in :exec
-- Notes down that tenants live elsewhere from now on. Home: central.
insert into millpond.homes (tenant, since) select i.tenant, millpond.clock() from unnest($1::text[]) as i(tenant)
on conflict (tenant) do nothing;

-- name: settled_here :many
-- Which of these tenants have something in this database. Home: tenant.
select i.tenant from unnest($1::text[]) as i(tenant)
where exists (select from millpond.accounts a where a.tenant = i.tenant) order by i.tenant;
