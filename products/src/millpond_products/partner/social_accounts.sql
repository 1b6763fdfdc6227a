-- Social_accounts: the accounts that a project may use. Database: tenant.

-- name: list :many
-- Newest first, below an id.
select s.id, s.project_id, s.lease_id, s.handle, s.display_name, s.created_at
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select s.* from millpond.partner_social_accounts s
    where s.tenant = c.tenant and s.project_id = $2 and s.id < $3
    order by s.id desc limit $4
) s
order by s.id desc;
