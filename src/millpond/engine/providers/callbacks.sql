-- Callbacks: the messages that providers send by themselves. Database: tenant.
-- Invariants: a message counts once, however often it is sent. It changes nothing about a job: it only makes the
-- reconciler look sooner, which asks the provider for the state.

-- function: hear
-- Stores a callback whose signature and age are valid. Verdicts: 'accepted'; 'repeated' (it was sent before); 'late'
-- (its job, or the run of it, has ended); 'superseded' (another prediction has replaced its own); 'unknown' (there is
-- no such prediction, or it has another external id). A callback that arrives before the response to the submission
-- provides the external id.
create or replace function millpond.hear(
    tenant text, prediction_id uuid, provider text, message_id text, external_id text, status text
) returns table (verdict text, job_id uuid)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    asked millpond.predictions;
    is_ended boolean;
    verdict_now text;
begin
    select s.* into asked from millpond.predictions s
    where s.id = hear.prediction_id and s.tenant = hear.tenant and s.provider = hear.provider
    for update;
    select coalesce(bool_and(j.phase = 'ended' or j.run <> asked.run), true) into is_ended from millpond.jobs j
    where j.id = asked.job_id;
    verdict_now := case
        when asked.id is null or asked.external_id <> hear.external_id then 'unknown'
        when is_ended then 'late'
        when asked.status = 'unwanted' then 'superseded'
        else 'accepted'
    end;
    insert into millpond.callbacks as c (
        provider, message_id, tenant, prediction_id, external_id, status, verdict, received_at
    )
    values (
        hear.provider, hear.message_id, hear.tenant, hear.prediction_id, hear.external_id, hear.status, verdict_now, present
    )
    on conflict (provider, message_id) do update set times = c.times + 1
    returning case when c.times > 1 then 'repeated' else c.verdict end into verdict_now;
    if verdict_now in ('accepted', 'superseded', 'late') and (asked.status <> 'over' or asked.due_at is not null) then
        update millpond.predictions s
        set external_id = coalesce(s.external_id, hear.external_id), due_at = present,
            status = case when s.status in ('held', 'sending') then 'running' else s.status end
        where s.id = asked.id;
    end if;
    return query select verdict_now, asked.job_id;
end $$;

-- name: hear :one
select verdict, job_id from millpond.hear($1, $2, $3, $4, $5, $6);

-- name: prune :many
delete from millpond.callbacks c
where c.ctid = any(array(
    select ctid from millpond.callbacks where received_at < millpond.clock() - $1::interval
    order by received_at limit $2 for update skip locked
))
returning message_id;
