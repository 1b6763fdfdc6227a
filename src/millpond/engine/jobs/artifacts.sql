-- Artifacts: files in storage, and their owners. Database: tenant.
-- Invariants: a row is inserted before its file is written and deleted after it, so a file without a row belongs to no
-- artifact; a row that is marked as deleted is visible to no reader, and is never restored; the reads of clients go
-- through the second wall (row-level security), as views do; files made by the attempts of a blocked job are visible to
-- no reader.

-- function: is_withheld
-- Whether the output and files of a job must not be released. If its lifecycle has no transition for `blocked`, the job
-- fails instead, and its error names the intended outcome.
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
-- Marks all files that attempts of a job have made as deleted, so that they are never released: the job is about to run
-- again.
create or replace function millpond.withhold_artifacts(job_id uuid) returns void
language sql as $$
    update millpond.artifacts a set deleted_at = millpond.clock()
    where a.job_id = withhold_artifacts.job_id and a.epoch is not null and a.deleted_at is null
$$;

-- function: view_artifacts
-- Artifacts by their ids, or those of a job: stored files that its current attempt made, that its output names, or that
-- it was given.
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
-- Records that the file is in storage, with its size and checksum. No row: it was deleted meanwhile.
update millpond.artifacts a
set stored_at = coalesce(a.stored_at, millpond.clock()), size = $2, sha256 = coalesce($3, a.sha256)
where a.id = $1 and a.deleted_at is null
returning id, tenant, account, job_id, epoch, name, content_type, size, sha256, path, created_at, expires_at, stored_at;

-- name: mark :many
-- Marks artifacts as deleted, and returns those that were not marked yet.
update millpond.artifacts a set deleted_at = millpond.clock()
where a.id = any($1::uuid[]) and a.deleted_at is null
returning a.id, a.path;

-- name: mark_unstored :many
-- The same, for those that are still not stored.
update millpond.artifacts a set deleted_at = millpond.clock()
where a.id = any($1::uuid[]) and a.deleted_at is null and a.stored_at is null
returning a.id;

-- name: marked :many
select a.id, a.path from millpond.artifacts a where a.deleted_at is not null order by a.id limit $1;

-- name: drop :many
delete from millpond.artifacts a where a.id = any($1::uuid[]) and a.deleted_at is not null returning a.id;

-- name: unstored :many
-- Uploads past their deadline that were not confirmed and that no attempt makes; after an id, in order.
select a.id, a.tenant, a.account, a.path,
    exists (select from millpond.jobs j where j.id = a.job_id) as has_job
from millpond.artifacts a
where a.id > $1 and a.stored_at is null and a.epoch is null and a.deleted_at is null
    and a.expires_at < millpond.clock() - $2::interval
order by a.id
limit $3;

-- name: mentions :many
-- Which of these words occur in the input of a job of the account, from an id on; only jobs that have not ended count,
-- unless $5 is true.
select w.word from unnest($4::text[]) as w(word)
where exists (
    select from millpond.jobs j
    where j.tenant = $1 and j.account = $2 and j.id >= $3 and ($5 or j.phase <> 'ended')
        and strpos(j.input::text, w.word) > 0
);

-- name: undecided :many
-- Files of attempts that are neither kept nor deleted, after an id, in order: whether they are part of the result of
-- their job, and whether that ended some time ago. Withheld files need not wait.
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
-- Artifacts older than this, after an id, in order, and whether they have a job that still exists.
select a.id, a.tenant, a.account, a.path, a.job_id is not null as has_owner,
    exists (select from millpond.jobs j where j.id = a.job_id) as has_job
from millpond.artifacts a
where a.id > $1 and a.id < millpond.first_id(millpond.clock() - $2::interval) and a.deleted_at is null
order by a.id
limit $3;

-- name: known :many
select a.path from millpond.artifacts a where a.path = any($1::text[]);

-- name: at_path :maybe
-- The artifact at a path, whether its file is stored yet or not.
select id, tenant, account, job_id, epoch, name, content_type, size, sha256, path, created_at, expires_at, stored_at
from millpond.artifacts where path = $2 and tenant = $1 and deleted_at is null;
