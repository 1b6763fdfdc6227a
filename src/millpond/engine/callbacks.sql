-- Callbacks: what providers tell us of their own accord. Home: tenant.
-- Invariants: a message counts once, however often it comes. It changes nothing about a job: it only makes the
-- reconciler look sooner, which asks the provider for the truth.

-- function: hear
-- Takes a callback whose signature and age were found right. Verdicts: 'accepted'; 'repeated' (it came before); 'late'
-- (its job has ended, or it was known to be over); 'superseded' (another submission has its place); 'unknown' (there is no such
-- submission, or it is about something else). One that comes before the answer to our own call tells us the name.
create or replace function millpond.hear(
    tenant text, submission_id uuid, provider text, message_id text, prediction_id text, status text
) returns table (verdict text, job_id uuid)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    asked millpond.submissions;
    is_ended boolean;
    told text;
begin
    select s.* into asked from millpond.submissions s
    where s.id = hear.submission_id and s.tenant = hear.tenant and s.provider = hear.provider
    for update;
    select coalesce(bool_and(j.phase = 'ended' or j.run <> asked.run), true) into is_ended from millpond.jobs j
    where j.id = asked.job_id;
    told := case
        when asked.id is null or asked.prediction_id <> hear.prediction_id then 'unknown'
        when is_ended then 'late'
        when asked.status = 'unwanted' then 'superseded'
        else 'accepted'
    end;
    insert into millpond.callbacks as c (
        provider, message_id, tenant, submission_id, prediction_id, status, verdict, received_at
    )
    values (
        hear.provider, hear.message_id, hear.tenant, hear.submission_id, hear.prediction_id, hear.status, told, present
    )
    on conflict (provider, message_id) do update set times = c.times + 1
    returning case when c.times > 1 then 'repeated' else c.verdict end into told;
    if told in ('accepted', 'superseded', 'late') and (asked.status <> 'over' or asked.due_at is not null) then
        update millpond.submissions s
        set prediction_id = coalesce(s.prediction_id, hear.prediction_id), due_at = present,
            status = case when s.status in ('held', 'sending') then 'running' else s.status end
        where s.id = asked.id;
    end if;
    return query select told, asked.job_id;
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
