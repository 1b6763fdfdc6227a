-- Artifacts: files in storage, and whose they are. Home: tenant.
-- Invariants: a row is there before its file and goes after it, so a file without a row is nobody's; a row that is
-- marked as deleted is seen by nobody, and never comes back; what clients read goes through the second wall, as views do;
-- what the attempts of a job have made that ended as blocked is seen by nobody.

-- function: is_withheld
-- Whether what a job has made must not be released. A lifecycle that draws no such end fails instead, and the error says
-- what it was to be.
create or replace function millpond.is_withheld(outcome text, error jsonb) returns boolean
language sql immutable parallel safe as $$
    select coalesce(
        outcome = 'blocked'
        or (outcome <> 'succeeded' and 'blocked' in (error ->> 'code', error ->> 'outcome'))
        or (outcome <> 'succeeded' and error ->> 'reason' = 'withheld'),
        false
    )
$$;

-- function: withhold_artifacts
-- Lets nobody see what the attempts at a job have made, ever: it is about to run once more.
create or replace function millpond.withhold_artifacts(job_id uuid) returns void
language sql as $$
    update millpond.artifacts a set deleted_at = millpond.clock()
    where a.job_id = withhold_artifacts.job_id and a.epoch is not null and a.deleted_at is null
$$;

-- function: view_artifacts
-- Artifacts by their ids, or all of a job's: stored ones, of its present attempt, named by its output or given to it.
create or replace function millpond.view_artifacts(tenant text, account text, ids uuid[], job_id uuid)
returns setof millpond.artifacts
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    callers text := set_config('millpond.callers', view_artifacts.tenant, true);
begin
    if ids is not null then
        return query
        select a.* from millpond.artifacts a
        where a.id = any(view_artifacts.ids) and a.tenant = view_artifacts.tenant and a.deleted_at is null
            and (view_artifacts.account is null or a.account = view_artifacts.account
                or a.job_id = view_artifacts.job_id)
            and (a.epoch is null or not exists (
                select from millpond.jobs j
                where j.id = a.job_id and j.tenant = a.tenant and millpond.is_withheld(j.outcome, j.error)
            ));
    else
        return query
        select a.* from millpond.artifacts a
        join millpond.jobs j on j.id = a.job_id and j.tenant = a.tenant
        where a.job_id = view_artifacts.job_id and a.tenant = view_artifacts.tenant and a.deleted_at is null
            and a.stored_at is not null
            and (a.epoch is null or a.epoch = j.epoch or strpos(j.output::text, millpond.typeid('art', a.id)) > 0)
            and (a.epoch is null or not millpond.is_withheld(j.outcome, j.error))
            and (view_artifacts.account is null or j.account = view_artifacts.account)
        order by a.id;
    end if;
end $$;

-- name: make :one
insert into millpond.artifacts (
    id, tenant, account, job_id, epoch, name, content_type, size, sha256, path, created_at, expires_at
)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, t.present, t.present + $11::interval
from millpond.clock() as t(present)
returning id, tenant, account, job_id, epoch, name, content_type, size, sha256, path, created_at, expires_at, stored_at;

-- name: view :many
select id, tenant, account, job_id, epoch, name, content_type, size, sha256, path, created_at, expires_at, stored_at
from millpond.view_artifacts($1, $2, $3::uuid[], $4);

-- name: store :maybe
-- Writes down that the file is there, and how it is. No row: it was deleted meanwhile.
update millpond.artifacts a
set stored_at = coalesce(a.stored_at, millpond.clock()), size = $2, sha256 = coalesce($3, a.sha256)
where a.id = $1 and a.deleted_at is null
returning id, tenant, account, job_id, epoch, name, content_type, size, sha256, path, created_at, expires_at, stored_at;

-- name: mark :many
-- Lets nobody see these any more; tells which it still found.
update millpond.artifacts a set deleted_at = millpond.clock()
where a.id = any($1::uuid[]) and a.deleted_at is null
returning a.id, a.path;

-- name: mark_unstored :many
-- The same for those that have still not been seen.
update millpond.artifacts a set deleted_at = millpond.clock()
where a.id = any($1::uuid[]) and a.deleted_at is null and a.stored_at is null
returning a.id;

-- name: marked :many
select a.id, a.path from millpond.artifacts a where a.deleted_at is not null order by a.id limit $1;

-- name: drop :many
delete from millpond.artifacts a where a.id = any($1::uuid[]) and a.deleted_at is not null returning a.id;

-- name: unstored :many
-- What should have been uploaded by now, was not seen, and is not an attempt's; after an id, in order.
select a.id, a.tenant, a.account, a.path,
    exists (select from millpond.jobs j where j.id = a.job_id) as has_job
from millpond.artifacts a
where a.id > $1 and a.stored_at is null and a.epoch is null and a.deleted_at is null
    and a.expires_at < millpond.clock() - $2::interval
order by a.id
limit $3;

-- name: mentions :many
-- Which of these words stand in the input of a job of the account that was born since; of one that has not ended, if
-- only those count.
select w.word from unnest($4::text[]) as w(word)
where exists (
    select from millpond.jobs j
    where j.tenant = $1 and j.account = $2 and j.id >= $3 and ($5 or j.phase <> 'ended')
        and strpos(j.input::text, w.word) > 0
);

-- name: undecided :many
-- What attempts have made, after an id, in order; and whether their job has ended some time ago, and with this one. What
-- is withheld need not wait.
select a.id, a.stored_at is not null and j.outcome = 'succeeded'
        and (j.epoch = a.epoch or strpos(j.output::text, millpond.typeid('art', a.id)) > 0) as has_won,
    coalesce(j.finished_at < millpond.clock() - $2::interval, false) or millpond.is_withheld(j.outcome, j.error) as is_over
from millpond.artifacts a
left join millpond.jobs j on j.id = a.job_id
where a.id > $1 and a.epoch is not null and a.kept_at is null and a.deleted_at is null
order by a.id
limit $3;

-- name: keep :many
update millpond.artifacts a set kept_at = millpond.clock()
where a.id = any($1::uuid[]) and a.stored_at is not null and a.deleted_at is null
returning a.id;

-- name: aged :many
-- What is older than this, after an id, in order; and whether the job it belongs to is still there.
select a.id, a.tenant, a.account, a.path, a.job_id is not null as has_owner,
    exists (select from millpond.jobs j where j.id = a.job_id) as has_job
from millpond.artifacts a
where a.id > $1 and a.id < millpond.first_id(millpond.clock() - $2::interval) and a.deleted_at is null
order by a.id
limit $3;

-- name: known :many
select a.path from millpond.artifacts a where a.path = any($1::text[]);
