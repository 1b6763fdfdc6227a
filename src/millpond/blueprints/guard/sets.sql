-- Sets: the rules of a tenant as they are applied, all of them at one version. Home: tenant.

-- name: version :maybe
-- At which version the rules are; a tenant that never had any has no row.
select s.version from millpond.guard_sets s where s.tenant = $1;

-- name: applied :many
-- The rules in their order, with the version that they are at: both are seen at one moment.
select s.version, r.id, r.name, r.direction, r.action, r.mode, r.matcher
from millpond.guard_sets s
left join millpond.guard_rules r on r.tenant = s.tenant
where s.tenant = $1
order by r.position, r.id;
