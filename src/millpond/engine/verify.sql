-- Verify: the invariants, each as a query for its violations. No row means that the invariant holds; a row names what
-- violates it.
-- `$1` is the lowest job id to check (the zero id for all). These queries compare tenant and central tables with each
-- other, which nothing else may do.

-- name: account_equals_its_entries :many
select format('%s/%s', coalesce(a.tenant, e.tenant), coalesce(a.account, e.account)) as subject, null::uuid as job_id,
    format('account has %s available, %s held, %s entries; its entries say %s, %s, %s',
        a.available, a.held, a.entries, coalesce(e.available, 0), coalesce(e.held, 0), coalesce(e.entries, 0)) as detail
from millpond.accounts a
full join (
    select tenant, account, sum(available) as available, sum(held) as held, count(*) as entries, max(seq) as last
    from millpond.entries group by tenant, account
) e on e.tenant = a.tenant and e.account = a.account
where $1::uuid is not null
    and (a.available, a.held, a.entries, a.entries)
        is distinct from (coalesce(e.available, 0), coalesce(e.held, 0), coalesce(e.entries, 0), coalesce(e.last, 0))
limit 100;

-- name: entries_form_a_chain :many
-- The balance of each entry is that of the one before it plus its own amount; the numbers have no gap.
select format('%s/%s', e.tenant, e.account) as subject, e.job_id,
    format('entry %s: %s available and %s held do not follow from the entry before', e.seq, e.available_after, e.held_after) as detail
from (
    select *,
        lag(available_after, 1, 0) over account as available_before,
        lag(held_after, 1, 0) over account as held_before,
        lag(seq, 1, 0) over account as seq_before
    from millpond.entries
    window account as (partition by tenant, account order by seq)
) e
where $1::uuid is not null
    and (e.available_before + e.available, e.held_before + e.held, e.seq_before + 1) <> (e.available_after, e.held_after, e.seq)
limit 100;

-- name: held_equals_open_holds :many
-- Of an open hold, what the descendants of its job have cost is no longer held.
select format('%s/%s', a.tenant, a.account) as subject, null::uuid as job_id,
    format('account has %s held; its open holds add up to %s', a.held, coalesce(h.held, 0)) as detail
from millpond.accounts a
left join (
    select h.tenant, h.account, sum(h.held - coalesce(b.spent - b.moved, 0)) as held
    from millpond.entries h
    left join millpond.budgets b on b.job_id = h.job_id and b.run = h.run
    where h.type = 'hold' and not exists (
        select from millpond.entries s where s.job_id = h.job_id and s.run = h.run and s.type in ('capture', 'release')
    )
    group by h.tenant, h.account
) h on h.tenant = a.tenant and h.account = a.account
where $1::uuid is not null and a.held <> coalesce(h.held, 0)
limit 100;

-- name: active_equals_unended_jobs :many
-- Children do not count.
select format('%s/%s', coalesce(a.tenant, j.tenant), coalesce(a.account, j.account)) as subject, null::uuid as job_id,
    format('account counts %s active jobs; %s have not ended', a.active, coalesce(j.active, 0)) as detail
from millpond.accounts a
full join (
    select tenant, account, count(*) as active from millpond.jobs where phase <> 'ended' and parent_id is null
    group by tenant, account
) j on j.tenant = a.tenant and j.account = a.account
where $1::uuid is not null and a.active is distinct from coalesce(j.active, 0)
limit 100;

-- name: ended_jobs_are_settled_once :many
-- A job with a price or a budget has one hold for each run. The holds of earlier runs and of ended jobs are settled; that
-- of a live job is not. A job that a budget pays for has no hold: what it has cost is captured from that of an ancestor.
select j.state as subject, j.id as job_id,
    format('price %s, captured %s, outcome %s: its hold and settlement of run %s do not fit', j.price, j.captured, j.outcome, r.run) as detail
from millpond.jobs j
cross join lateral generate_series(1, j.run) as r(run)
left join millpond.entries h on h.job_id = j.id and h.run = r.run and h.type = 'hold'
left join millpond.entries s on s.job_id = j.id and s.run = r.run and s.type in ('capture', 'release')
left join millpond.budgets b on b.job_id = j.id and b.run = r.run
left join millpond.reservations p on p.job_id = j.id
cross join lateral (
    select j.price + coalesce(b.amount - b.moved, 0) as held, j.price + coalesce(b.amount - b.spent, 0) as rest,
        j.captured < j.price or j.outcome = 'succeeded' or j.price = 0 as is_earned
) c
where j.id >= $1 and case
    when p.job_id is not null and j.phase <> 'ended' then h.job_id is null and s.job_id is null and p.captured is null
    when p.job_id is not null then h.job_id is null and p.captured = j.captured and c.is_earned and case
        when j.captured = 0 then s.job_id is null
        else s.held = -j.captured and s.outside = j.captured and s.available = 0 and s.at = j.finished_at
    end
    when j.price = 0 and b.job_id is null then h.job_id is null and s.job_id is null
    when r.run < j.run then h.held = c.held and s.held = -c.rest
    when j.phase <> 'ended' then h.held = c.held and s.job_id is null
    else h.held = c.held and s.held = -c.rest and s.outside = j.captured and s.available = c.rest - j.captured
        and c.is_earned and s.at = j.finished_at
end is not true
limit 100;

-- name: budgets_reserve_for_open_jobs :many
-- An open budget reserves what the jobs that it pays for may still cost. A closed one pays for no open job.
select b.job_id::text as subject, b.job_id,
    format('its budget reserves %s; the jobs that it pays for may cost %s', b.reserved, coalesce(r.open, 0)) as detail
from millpond.budgets b
join millpond.jobs j on j.id = b.job_id and j.run = b.run
left join (
    select r.payer_id, sum(r.amount - coalesce(o.spent - o.moved, 0)) as open
    from millpond.reservations r
    left join millpond.budgets o on o.job_id = r.job_id and o.closed_at is null
    where r.captured is null
    group by r.payer_id
) r on r.payer_id = b.job_id
where b.job_id >= $1
    and (b.reserved <> coalesce(r.open, 0) or (b.closed_at is not null) <> (j.phase = 'ended'))
limit 100;

-- name: batches_count_their_jobs :many
select b.name as subject, b.parent_id as job_id,
    format('batch %s counts %s jobs, of which %s have ended; there are %s and %s', b.id, b.submitted, b.ended, coalesce(j.jobs, 0), coalesce(j.ended, 0)) as detail
from millpond.batches b
left join (
    select j.batch_id, count(*) as jobs, count(*) filter (where j.phase = 'ended') as ended,
        count(*) filter (where j.outcome = 'succeeded') as succeeded, count(*) filter (where j.outcome = 'canceled') as canceled
    from millpond.jobs j where j.batch_id is not null group by j.batch_id
) j on j.batch_id = b.id
where b.id >= $1 and (b.submitted, b.ended, b.succeeded, b.canceled)
    is distinct from (coalesce(j.jobs, 0), coalesce(j.ended, 0), coalesce(j.succeeded, 0), coalesce(j.canceled, 0))
limit 100;

-- name: batches_of_clients_add_up :many
-- A batch that clients submit has the jobs of its pages, and counts what they may cost and what they have cost. What was
-- spent of a budget after the end of its job is not the batch's.
select b.name as subject, null::uuid as job_id,
    format('batch %s has %s jobs in its pages, and counts %s; its jobs may cost %s and have cost %s, and it says %s and %s',
        b.id, coalesce(p.jobs, 0), b.submitted, coalesce(j.price, 0), coalesce(j.captured, 0), b.price, b.captured) as detail
from millpond.batches b
left join (select p.batch_id, sum(p.jobs) as jobs from millpond.batch_pages p group by p.batch_id) p on p.batch_id = b.id
left join (
    select j.batch_id, sum(j.price + coalesce(u.amount, 0)) as price, sum(j.captured) as captured,
        sum(j.captured + coalesce(u.spent, 0)) as most
    from millpond.jobs j left join millpond.budgets u on u.job_id = j.id and u.run = j.run
    where j.batch_id is not null and j.parent_id is null group by j.batch_id
) j on j.batch_id = b.id
where b.id >= $1 and b.parent_id is null and (
    b.submitted <> coalesce(p.jobs, 0) or b.price <> coalesce(j.price, 0)
    or b.captured not between coalesce(j.captured, 0) and coalesce(j.most, 0)
)
limit 100;

-- name: canceled_batches_end :many
select b.name as subject, null::uuid as job_id, format('batch %s was canceled, and nobody cancels its jobs', b.id) as detail
from millpond.batches b
where b.id >= $1 and b.canceled_at is not null and b.ended_at is null
    and not exists (select from millpond.batch_cancels c where c.batch_id = b.id)
limit 100;

-- name: children_belong_to_a_batch :many
select j.state as subject, j.id as job_id, 'it is a child, and its parent has no such batch' as detail
from millpond.jobs j
left join millpond.batches b on b.id = j.batch_id and b.parent_id is not distinct from j.parent_id and b.tenant = j.tenant
where j.id >= $1 and j.phase <> 'ended' and (j.batch_id is not null or j.parent_id is not null)
    and (b.id is null or j.depth is null)
limit 100;

-- name: parked_parents_will_resume :many
-- A job that waits for its children waits for a batch that has not ended; one that waits for a time or an answer has a
-- step for it.
select j.waits_for as subject, j.id as job_id, 'nothing will resume it' as detail
from millpond.jobs j
where j.id >= $1 and j.phase = 'parked' and j.waits_for is not null and not exists (
    select from millpond.steps s
    left join millpond.batches b on b.id = s.batch_id
    where s.job_id = j.id and s.run = j.run and case j.waits_for
        when 'children' then b.is_awaited and b.ended_at is null and not (b.fails_fast and b.failed + b.canceled > 0)
        when 'time' then s.type = 'sleep'
        else s.type = 'question' and s.done_at is null
    end
)
limit 100;

-- name: children_do_not_outlive_their_parent :many
-- The children of an ended job are canceled, unless they are detached.
select b.name as subject, b.parent_id as job_id, format('it has ended, and batch %s is neither ended nor to be canceled', b.id) as detail
from millpond.batches b join millpond.jobs j on j.id = b.parent_id
where b.id >= $1 and b.ended < b.submitted and not b.is_detached and (j.phase = 'ended' or b.run < j.run)
    and not exists (select from millpond.orphans o where o.job_id = b.parent_id)
limit 100;

-- name: refunds_fit_what_was_captured :many
-- The refunds of a job go to the account that paid for it, and do not exceed what it paid.
select format('%s/%s', r.tenant, r.account) as subject, r.job_id,
    format('%s credits of it were given back; it has cost %s', r.back, coalesce(c.paid, 0)) as detail
from (
    select tenant, account, job_id, sum(available) as back, bool_and(available > 0) as gives
    from millpond.entries where type = 'adjust' and job_id >= $1
    group by tenant, account, job_id
) r
left join (
    select tenant, account, job_id, sum(outside) as paid from millpond.entries where type = 'capture' and job_id >= $1
    group by tenant, account, job_id
) c on c.tenant = r.tenant and c.account = r.account and c.job_id = r.job_id
where not r.gives or r.back > coalesce(c.paid, 0)
limit 100;

-- name: unended_jobs_have_a_dispatch :many
select coalesce(j.state, d.phase) as subject, coalesce(j.id, d.job_id) as job_id,
    case
        when d.job_id is null then 'it has not ended, has no dispatch and will never run'
        when j.id is null then 'a dispatch without its job'
        else format('the job is %s, its dispatch %s', j.phase, d.phase)
    end as detail
from (select id, state, phase from millpond.jobs where id >= $1 and phase <> 'ended') j
full join (select job_id, phase from millpond.dispatches where job_id >= $1 and not is_remote) d on d.job_id = j.id
where d.phase is distinct from j.phase
limit 100;

-- name: dispatches_agree_with_their_job :many
-- The columns that a job and its dispatch have in common are equal.
select d.queue as subject, d.job_id,
    format('the job is %s, its dispatch %s',
        (j.tenant, j.account, j.kind, j.queue, -j.priority, j.epoch, j.attempts, j.expires_at),
        (d.tenant, d.account, d.kind, d.queue, d.rank, d.epoch, d.attempts, d.expires_at)) as detail
from millpond.dispatches d join millpond.jobs j on j.id = d.job_id
where d.job_id >= $1
    and (j.tenant, j.account, j.kind, j.queue, -j.priority, j.epoch, j.attempts, j.expires_at)
        is distinct from (d.tenant, d.account, d.kind, d.queue, d.rank, d.epoch, d.attempts, d.expires_at)
limit 100;

-- name: ready_dispatches_stand_in_line :many
-- A ready job is in the ready table once, or waits for one of its limits.
select coalesce(r.queue, d.queue) as subject, coalesce(r.job_id, d.job_id) as job_id,
    case when r.job_id is null then 'it is ready and not in the ready table' else 'it is in the ready table and not ready' end as detail
from (select * from millpond.dispatches where phase = 'ready') d
full join (
    select queue, rank, turn, job_id from millpond.ready
    union all select queue, rank, turn, job_id from millpond.limit_waits
) r on r.queue = d.queue and r.rank = d.rank and r.turn = d.turn and r.job_id = d.job_id
where coalesce(r.job_id, d.job_id) >= $1 and (r.job_id is null or d.job_id is null)
limit 100;

-- name: ready_jobs_wait_once :many
-- A job that waits for a limit is not in the ready table, and the limit is one of its own.
select w.queue as subject, w.job_id, format('it waits for %s', w.key) as detail
from millpond.limit_waits w
left join millpond.dispatches d on d.job_id = w.job_id
where w.job_id >= $1 and ((w.key = any(d.limits)) is not true or exists (select from millpond.ready r where r.job_id = w.job_id))
limit 100;

-- name: leased_jobs_count_under_their_limits :many
-- A running job is counted under each of its limits. No other job is, except one that a provider works on.
select coalesce(d.queue, h.key) as subject, coalesce(d.job_id, h.job_id) as job_id,
    case when h.job_id is null then format('it is leased and not counted under %s', d.key)
        else format('it is counted under %s and does not run', h.key) end as detail
from (
    select d.job_id, d.queue, d.phase, k.key from millpond.dispatches d cross join unnest(d.limits) as k(key)
    where d.phase in ('leased', 'parked', 'ready')
) d
full join millpond.limit_holders h on h.key = d.key and h.job_id = d.job_id
left join millpond.dispatches o on o.job_id = h.job_id
left join millpond.kinds k on k.kind = o.kind
where coalesce(d.job_id, h.job_id) >= $1 and case
    when d.phase = 'leased' then h.job_id is null
    else h.job_id is not null and (d.job_id is null or not k.keeps_limits)
end
limit 100;

-- name: leased_dispatches_have_a_lease :many
-- Every leased job has a lease, and no lease stays longer after its expiry than the reaper needs.
select d.queue as subject, d.job_id,
    case when l.token is null then 'its lease does not exist'
        else format('its lease ran out at %s and was not taken back', l.expires_at) end as detail
from millpond.dispatches d
left join millpond.leases l on l.token = d.lease_token and d.job_id = any(l.job_ids)
where d.job_id >= $1 and d.phase = 'leased' and (l.token is null or l.expires_at < millpond.clock() - interval '60 seconds')
limit 100;

-- name: nothing_outlives_its_deadline :many
select d.phase as subject, d.job_id, format('it should have expired at %s', d.expires_at) as detail
from millpond.dispatches d
where d.job_id >= $1 and d.expires_at < millpond.clock() - interval '60 seconds'
limit 100;

-- name: caps_hold :many
select d.queue as subject, d.job_id,
    format('%s attempts, %s interruptions, %s lapses are beyond the caps of its kind', d.attempts, d.interruptions, d.lapses) as detail
from millpond.dispatches d join millpond.kinds k on k.kind = d.kind
where d.job_id >= $1
    and (d.attempts >= k.attempts_max or d.interruptions >= k.interruptions_max or d.lapses >= k.lapses_max)
limit 100;

-- name: events_have_no_gap :many
select coalesce(j.state, 'absent') as subject, coalesce(j.id, e.job_id) as job_id,
    format('its last event should be number %s; it has %s events up to number %s', j.events, coalesce(e.events, 0), e.last) as detail
from (select id, state, events from millpond.jobs where id >= $1) j
full join (
    select job_id, count(*) as events, max(seq) as last from millpond.events where job_id >= $1 group by job_id
) e on e.job_id = j.id
where (j.events, j.events) is distinct from (coalesce(e.events, 0), coalesce(e.last, 0))
limit 100;

-- name: chunks_have_no_gap :many
-- The chunks of a job are those of one attempt, numbered from 1, each at its place between the events, after the one
-- that says that the text begins; each has the size of the text so far.
select c.job_id::text as subject, c.job_id,
    format('chunk %s of epoch %s after event %s, with %s bytes so far, does not follow from the one before',
        c.number, c.epoch, c.after, c.total) as detail
from (
    select c.*, row_number() over chunk as place, min(c.after) over (partition by c.job_id) as first,
        lag(c.epoch) over chunk as epoch_before, coalesce(lag(c.total) over chunk, 0) as total_before
    from millpond.chunks c
    where c.job_id >= $1
    window chunk as (partition by c.job_id order by c.after, c.number)
) c
left join millpond.jobs j on j.id = c.job_id and j.tenant = c.tenant
left join millpond.events e on e.job_id = c.job_id and e.seq = c.first
where j.id is null or c.number <> c.place or c.after > j.events or c.epoch > j.epoch
    or c.epoch_before <> c.epoch or c.total <> c.total_before + octet_length(c.text)
    or e.type is distinct from 'text_started'
limit 100;

-- name: states_follow_from_events :many
-- The state of each event follows from the one before it by a transition of the lifecycle; the last one is the state of
-- the job, with the outcome that the lifecycle gives it.
select j.state as subject, j.id as job_id,
    case when e.seq is null then 'it has no event'
        else format('event %s (%s) says %s after %s', e.seq, e.type, e.state, coalesce(e.before, 'nothing')) end as detail
from millpond.jobs j
left join (
    select *, lag(state) over job as before, lead(seq) over job is null as is_last
    from millpond.events where job_id >= $1
    window job as (partition by job_id order by seq)
) e on e.job_id = j.id
where j.id >= $1 and (
    e.seq is null
    or (e.is_last and e.state <> j.state)
    or (e.is_last and not exists (
        select from millpond.lifecycle_states s
        where s.lifecycle = j.lifecycle and s.state = j.state and s.outcome is not distinct from j.outcome
    ))
    or (e.before is distinct from e.state and not exists (
        select from millpond.lifecycle_transitions m
        where m.lifecycle = j.lifecycle and m.from_state = coalesce(e.before, '*') and m.to_state = e.state and m.event = e.type
    ))
)
limit 100;

-- name: jobs_end_once_a_run :many
-- A job has as many ends as runs (one fewer while the last run is in progress), and after an end there is only a retry.
select j.state as subject, j.id as job_id, format('%s ends in %s runs', count(e.seq) filter (where e.ends), j.run) as detail
from millpond.jobs j
join (
    select e.job_id, e.seq, e.type in ('succeeded', 'failed', 'canceled', 'expired', 'blocked') as ends,
        lead(e.type) over (partition by e.job_id order by e.seq) as next
    from millpond.events e where e.job_id >= $1
) e on e.job_id = j.id
where j.id >= $1
group by j.id, j.state, j.run, j.phase
having count(e.seq) filter (where e.ends) <> j.run - (j.phase <> 'ended')::int
    or bool_or(e.ends and e.next is distinct from null and e.next <> 'retried')
limit 100;

-- name: keys_name_their_job :many
select format('%s/%s', k.tenant, k.scope) as subject, k.job_id, 'its key names a job that does not exist' as detail
from millpond.idempotency k
where k.job_id >= $1 and not exists (select from millpond.jobs j where j.id = k.job_id and j.tenant = k.tenant)
limit 100;

-- name: delivering_jobs_are_delivered :many
-- A job that is being delivered has the delivery that decides its end, and no other job has one.
select coalesce(j.state, d.fate) as subject, coalesce(j.id, d.job_id) as job_id,
    case when d.job_id is null then 'it is being delivered, and there is no delivery that decides'
        else 'a delivery is to decide its end, and it is not being delivered' end as detail
from (
    select j.id, j.state from millpond.jobs j join millpond.hooks h on h.job_id = j.id
    where j.id >= $1 and j.phase = 'delivering' and h.decides
) j
full join (select d.job_id, d.fate from millpond.deliveries d where d.job_id >= $1 and d.decides) d on d.job_id = j.id
where j.id is null or d.job_id is null
limit 100;

-- name: deliveries_go_in_order :many
-- Of the deliveries of a job to one URL, none is delivered or being sent while an earlier one is pending, unless one of
-- the two was sent again on request.
select d.event as subject, d.job_id, format('number %s went before number %s', l.seq, d.seq) as detail
from millpond.deliveries d
join millpond.deliveries l on l.job_id = d.job_id and l.seq > d.seq and l.endpoint_id is not distinct from d.endpoint_id
where d.job_id >= $1 and d.due_at is not null and d.tries_before = 0 and l.tries_before = 0
    and (l.fate = 'delivered' or l.is_out)
limit 100;

-- name: hooks_have_deliveries :many
-- Each lifecycle event of a job that its own webhook subscribes to has its delivery. Completed deliveries are kept for
-- a limited time, so only recent events are checked.
select e.type as subject, e.job_id, format('its webhook subscribes to event %s, and there is no delivery', e.seq) as detail
from millpond.hooks h
join millpond.events e on e.job_id = h.job_id and e.type = any(h.events)
where h.job_id >= $1 and e.at > millpond.clock() - interval '1 hour' and not exists (
    select from millpond.deliveries d where d.job_id = e.job_id and d.seq = e.seq and d.endpoint_id is null
)
limit 100;

-- name: endpoints_are_subscribed :many
-- A disabled endpoint is subscribed to nothing; every other endpoint to the events that it wants.
select coalesce(e.tenant, s.tenant) as subject, null::uuid as job_id,
    case when s.endpoint_id is null then format('endpoint %s has no subscriptions', e.id)
        when e.id is not null then format('endpoint %s lacks a subscription', e.id)
        else format('endpoint %s is disabled or deleted, and has subscriptions', s.endpoint_id) end as detail
from (select e.id, e.tenant, e.events from millpond.endpoints e where e.disabled_at is null) e
full join (
    select s.endpoint_id, s.tenant, array_agg(s.event collate "default") as events from millpond.subscriptions s
    group by s.endpoint_id, s.tenant
) s on s.endpoint_id = e.id
where $1::uuid is not null and (
    e.id is null or s.endpoint_id is null
    or ('*' <> all(e.events) and not (e.events <@ s.events and s.events <@ e.events))
)
limit 100;

-- name: deliveries_follow_their_endpoint :many
-- No delivery waits for ever for an endpoint that was enabled or deleted some time ago.
select d.tenant as subject, d.job_id, format('endpoint %s is not disabled, and number %s waits for it', d.endpoint_id, d.id) as detail
from millpond.deliveries d
left join millpond.endpoints e on e.id = d.endpoint_id
where $1::uuid is not null and d.due_at = 'infinity' and e.disabled_at is null
    and coalesce(e.enabled_at, e.created_at, '-infinity') < millpond.clock() - interval '10 minutes'
limit 100;

-- name: predictions_are_scheduled :many
-- The prediction of a job that has not ended is scheduled to be polled again; otherwise the job would never receive its
-- result.
select s.status as subject, s.job_id, 'its job has not ended, and it is not scheduled to be polled' as detail
from millpond.predictions s join millpond.jobs j on j.id = s.job_id and j.run = s.run
where s.job_id >= $1 and j.phase <> 'ended' and s.due_at is null and s.external_id is not null and s.status <> 'unwanted'
    and s.kept is null
limit 100;

-- name: provided_jobs_have_a_prediction :many
-- A job that waits for a provider has a prediction that the reconciler polls again; otherwise nothing would ever wake
-- the job.
select j.state as subject, j.id as job_id, 'it waits for a provider, and nothing that was submitted for it is open' as detail
from millpond.jobs j join millpond.kinds k on k.kind = j.kind
where j.id >= $1 and j.phase = 'parked' and k.declaration ->> 'runs' = 'provider' and not exists (
    select from millpond.predictions s
    where s.job_id = j.id and s.run = j.run and s.due_at is not null and s.status <> 'unwanted'
)
limit 100;

-- name: counters_agree_with_jobs :many
-- The counters agree with the jobs. Checked only over all jobs, because the counters do not count the newest ones
-- alone.
select format('%s/%s', coalesce(c.tenant, j.tenant), coalesce(c.kind, j.kind)) as subject, null::uuid as job_id,
    format('%s jobs are %s (%s) and hold %s credits; counted are %s, and %s credits', coalesce(j.n, 0),
        coalesce(c.state, j.state), coalesce(c.phase, j.phase), coalesce(j.held, 0), coalesce(c.n, 0), coalesce(c.held, 0)) as detail
from (
    select j.tenant, j.kind, j.state, j.phase, count(*) as n, sum(j.price) as held
    from millpond.jobs j where j.phase <> 'ended' group by j.tenant, j.kind, j.state, j.phase
) j
full join (
    select c.tenant, c.kind, c.state, c.phase, sum(c.n) as n, sum(c.held) as held
    from (
        select c.tenant, c.kind, c.state, c.phase, c.n, c.held from millpond.counts c
        union all
        select c.tenant, c.kind, c.state, c.phase, c.n, c.held
        from millpond.counted(array(select t from millpond.counter_changes t)) c
    ) c
    where c.phase <> 'ended'
    group by c.tenant, c.kind, c.state, c.phase
) c on c.tenant = j.tenant and c.kind = j.kind and c.state = j.state and c.phase = j.phase
where $1::uuid = '00000000-0000-0000-0000-000000000000'
    and (coalesce(j.n, 0), coalesce(j.held, 0)) is distinct from (coalesce(c.n, 0), coalesce(c.held, 0))
limit 100;

-- name: schedules_stay_due :many
-- A schedule with a cron expression or an interval has a next due time, unless it is paused or orphaned; otherwise it
-- would never fire again.
select format('%s/%s', s.tenant, s.name) as subject, null::uuid as job_id,
    'it is neither paused nor orphaned, and has no next due time' as detail
from millpond.schedules s
where $1::uuid is not null and s.due_at is null and s.at is null and s.paused_at is null and s.orphaned_at is null
limit 100;

-- name: fires_come_before_the_next_due_time :many
-- A schedule has not fired at a due time that is still to come.
select format('%s/%s', s.tenant, s.name) as subject, f.job_id,
    format('it fired at %s, and its next due time is %s', f.due_at, s.due_at) as detail
from millpond.schedules s join millpond.fires f on f.schedule_id = s.id
where $1::uuid is not null and f.cause = 'schedule' and f.outcome in ('pending', 'submitted') and f.due_at >= s.due_at
limit 100;

-- name: fires_are_settled :many
-- No fire is pending for long: a process that has its kind submits it.
select format('%s/%s', s.tenant, s.name) as subject, f.job_id, format('the fire of %s is pending since %s', f.due_at, f.at) as detail
from millpond.fires f join millpond.schedules s on s.id = f.schedule_id
where $1::uuid is not null and f.outcome = 'pending' and f.at < millpond.clock() - interval '1 hour'
limit 100;

-- name: fires_name_their_job :many
-- A submitted fire names a job of its tenant.
select f.tenant as subject, f.job_id, format('schedule %s submitted it for %s, and it does not exist', f.schedule_id, f.due_at) as detail
from millpond.fires f
where f.job_id >= $1 and f.outcome = 'submitted'
    and not exists (select from millpond.jobs j where j.id = f.job_id and j.tenant = f.tenant)
limit 100;

-- name: scheduled_jobs_have_a_fire :many
-- A job that a schedule has submitted is recorded as a fire of it. Keys are kept for longer than fires only if their job
-- has not ended, so only recent ones are checked.
select k.tenant as subject, k.job_id, format('no fire of schedule %s names it', s.name) as detail
from millpond.idempotency k join millpond.schedules s on s.id::text = split_part(k.key, ':', 1)
where k.job_id >= $1 and k.scope = '#schedules' and k.created_at > millpond.clock() - interval '1 day' and not exists (
    select from millpond.fires f where f.job_id = k.job_id and f.outcome in ('pending', 'submitted')
)
limit 100;
