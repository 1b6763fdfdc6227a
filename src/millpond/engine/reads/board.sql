-- Board: problems with webhooks and schedules, for one tenant or for all.

-- name: webhooks :one
-- How many deliveries of a tenant are pending, and how many of those have failed before. Counts no more than $2.
-- Database: tenant.
select count(*) as pending, count(*) filter (where d.tries > d.tries_before) as failing
from (
    select d.tries, d.tries_before from millpond.deliveries d where d.tenant = $1 and d.fate = 'pending' order by d.id limit $2
) d;

-- name: failing :many
-- Enabled endpoints whose deliveries fail. Database: tenant.
select e.id, e.tenant, e.failing_since, millpond.clock() as present from millpond.endpoints e
where e.failing_since is not null and e.disabled_at is null and ($1::text is null or e.tenant = $1)
order by e.failing_since, e.id limit $2;

-- name: overdue :many
-- Schedules that should have fired a while ago, and for how long. Database: central.
select s.id, s.tenant, s.name, p.present - s.next_at as late
from millpond.clock() as p(present) cross join millpond.schedules s
where s.next_at < (select millpond.clock()) - $2::interval and ($1::text is null or s.tenant = $1)
order by s.next_at limit $3;

-- name: fruitless :many
-- Of the newest $2 schedules, those that submit no jobs: they are orphaned, or the jobs of their last $3 fires were
-- refused. Database: central.
select s.id, s.tenant, s.name, s.orphaned_at is not null as is_orphaned, f.reason
from (
    select o.id, o.tenant, o.name, o.orphaned_at, o.due_at from millpond.schedules o
    where $1::text is null or o.tenant = $1
    order by o.id desc limit $2
) s
left join lateral (
    select count(*) filter (where l.outcome = 'failed') as failed, (array_agg(l.reason order by l.id desc))[1] as reason
    from (
        select c.id, c.outcome, c.reason from millpond.fires c where c.schedule_id = s.id order by c.id desc limit $3
    ) l
) f on s.due_at is not null
where s.orphaned_at is not null or f.failed = $3
order by s.id limit $4;
