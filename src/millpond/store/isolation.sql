-- Isolation: whether row-level security separates the reads of clients by tenant (see millpond.raise_wall).

-- name: wall :one
-- Whether the role for clients' reads exists, may be assumed, and is restricted by row-level security.
select current_user::text as owner, to_regrole('millpond_client') is not null as has_role,
    coalesce(pg_has_role(to_regrole('millpond_client'), case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end), false) as has_grant,
    coalesce((
        select bool_and(c.relrowsecurity) from pg_class c
        where c.relnamespace = 'millpond'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
            and obj_description(c.oid, 'pg_class') like 'database: tenant.%'
            and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant' and not a.attisdropped)
    ), false) as is_raised,
    (select rolsuper from pg_roles where rolname = current_user) as is_superuser,
    current_setting('cluster_name') as cluster;

-- name: reader :one
-- The role of a connection for clients' reads as it is, and whether row-level security restricts it.
select current_user::text as role, coalesce(bool_and(row_security_active(c.oid)), false) as is_restricted
from pg_class c
where c.relnamespace = 'millpond'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    and obj_description(c.oid, 'pg_class') like 'database: tenant.%'
    and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant' and not a.attisdropped);
