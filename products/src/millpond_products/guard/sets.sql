-- Sets: the rules of a tenant as they are applied, all of them at one version. Database: tenant.

-- name: version :maybe
-- The version of the rules. A tenant that never had any has no row.
select s.version from millpond.guard_sets s where s.tenant = $1;

-- name: applied :many
-- The rules in their order, with their version, from one snapshot.
select s.version, r.id, r.name, r.direction, r.action, r.mode, r.matcher
from millpond.guard_sets s
left join millpond.guard_rules r on r.tenant = s.tenant
where s.tenant = $1
order by r.position, r.id;
