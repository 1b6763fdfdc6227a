-- Flow: how many jobs come and go. Home: tenant.

-- name: flow :many
-- Of the newest jobs, by queue: how many came and how many ended in the last one and five minutes. The walk is along
-- the primary key, whose ids tell their time, and it ends after so many: then `since` tells how far back it came.
with moment as materialized (select millpond.clock() as present),
newest as materialized (
    select j.queue, j.created_at, j.finished_at from millpond.jobs j where j.id >= $1::uuid order by j.id desc limit $2::integer
)
select n.queue, m.present, (select count(*) from newest) as walked, (select min(w.created_at) from newest w) as since,
    count(*) filter (where n.created_at > m.present - interval '1 minute') as in_1m,
    count(*) filter (where n.created_at > m.present - interval '5 minutes') as in_5m,
    count(*) filter (where n.finished_at > m.present - interval '1 minute') as out_1m,
    count(*) filter (where n.finished_at > m.present - interval '5 minutes') as out_5m
from newest n cross join moment m
group by n.queue, m.present;
