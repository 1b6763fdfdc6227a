-- Databases: the tenants with a database of their own.

-- name: known :many
-- The tenants that have a database of their own. Database: central.
select tenant from millpond.tenant_databases order by tenant;

-- name: settle_in :exec
-- Stores that tenants have a database of their own from now on. Database: central.
insert into millpond.tenant_databases (tenant, since) select i.tenant, millpond.clock() from unnest($1::text[]) as i(tenant)
on conflict (tenant) do nothing;

-- name: settled_here :many
-- Which of these tenants have accounts in this database. Database: tenant.
select i.tenant from unnest($1::text[]) as i(tenant)
where exists (select from millpond.accounts a where a.tenant = i.tenant) order by i.tenant;
