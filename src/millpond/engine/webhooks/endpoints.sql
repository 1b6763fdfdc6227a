-- Endpoints: the receivers of events of a tenant's jobs. Database: tenant.
-- Invariant: an enabled endpoint has a subscription for each lifecycle event that it receives; a disabled one has none.

-- function: subscribe
-- Rewrites the subscriptions of an endpoint; a disabled one gets none.
create or replace function millpond.subscribe(endpoint_id uuid, events text[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    delete from millpond.subscriptions s where s.endpoint_id = subscribe.endpoint_id;
    insert into millpond.subscriptions (event, tenant, account, endpoint_id, kinds, receiver)
    select i.event, e.tenant, e.account, e.id, e.kinds, case when e.url is not null then e.id::text end
    from millpond.endpoints e cross join unnest(subscribe.events) as i(event)
    where e.id = subscribe.endpoint_id and e.disabled_at is null;
end $$;

-- function: disable
-- Disables an endpoint. Its pending deliveries wait until it is enabled: they are set aside when a sender claims them,
-- or by follow_endpoints, because there may be very many. Other endpoints of its tenant that subscribe to
-- `endpoint.disabled` receive that event.
create or replace function millpond.disable(endpoint_id uuid, reason text) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    gone millpond.endpoints;
begin
    update millpond.endpoints e set disabled_at = present, disabled_reason = disable.reason
    where e.id = disable.endpoint_id and e.disabled_at is null
    returning e.* into gone;
    if gone.id is null then
        return;
    end if;
    delete from millpond.subscriptions s where s.endpoint_id = gone.id;
    insert into millpond.deliveries (id, tenant, endpoint_id, event, receiver, at, data, decides, due_at)
    select millpond.uuid7(), gone.tenant, s.endpoint_id, s.event, s.receiver, present,
        jsonb_build_object('type', s.event, 'data', jsonb_build_object(
            'id', millpond.typeid('ep', gone.id), 'url', gone.url, 'reason', reason, 'failing_since', gone.failing_since
        )), false, present
    from (
        select s.* from millpond.subscriptions s
        where s.event = 'endpoint.disabled' and s.tenant = gone.tenant and s.account is null
        union all
        select s.* from millpond.subscriptions s
        where s.event = 'endpoint.disabled' and s.tenant = gone.tenant and s.account = gone.account
    ) s;
end $$;

-- function: judge_endpoints
-- Updates endpoints after tries: they have recovered, they are failing, or they are disabled because they answered 410
-- or have failed for longer than `patience`. Returns the disabled ones, and why.
create or replace function millpond.judge_endpoints(well uuid[], ill uuid[], gone uuid[], patience interval)
returns table (endpoint_id uuid, reason text)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    found_one record;
begin
    update millpond.endpoints e set failing_since = null where e.id = any(well) and e.failing_since is not null;
    update millpond.endpoints e set failing_since = present
    where e.id = any(ill) and e.id <> all(well) and e.failing_since is null;
    for found_one in
        select e.id, case when e.id = any(gone) then 'The endpoint answered 410 Gone.'
            else 'Every attempt has failed for days.' end as reason
        from millpond.endpoints e
        where e.id = any(ill) and e.disabled_at is null and (e.id = any(gone) or e.failing_since <= present - patience)
        order by e.id for update
    loop
        perform millpond.disable(found_one.id, found_one.reason);
        return query select found_one.id, found_one.reason;
    end loop;
end $$;

-- function: follow_endpoints
-- Applies the state of endpoints to at most `row_limit` of their deliveries, and returns how many: those of a deleted
-- endpoint are withdrawn, those of a disabled one are set aside, and those that were set aside for an enabled one
-- become due.
create or replace function millpond.follow_endpoints(endpoints uuid[], row_limit integer) returns integer
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    ids uuid[];
begin
    if endpoints is null then
        endpoints := array(
            with recursive head as (
                (
                    select d.endpoint_id from millpond.deliveries d
                    where d.due_at is not null and d.endpoint_id is not null order by d.endpoint_id limit 1
                )
                union all
                select n.endpoint_id from head h cross join lateral (
                    select d.endpoint_id from millpond.deliveries d
                    where d.due_at is not null and d.endpoint_id > h.endpoint_id order by d.endpoint_id limit 1
                ) n
            )
            select h.endpoint_id from head h
        );
    end if;
    ids := array(
        select d.id from unnest(endpoints) as i(endpoint_id)
        left join lateral (
            select e.disabled_at is not null as is_disabled from millpond.endpoints e where e.id = i.endpoint_id limit 1
        ) e on true
        cross join lateral (
            select d.id from millpond.deliveries d
            where d.endpoint_id = i.endpoint_id
                and d.due_at >= case when e.is_disabled is false then timestamptz 'infinity' else '-infinity' end
                and d.due_at <= case when e.is_disabled then timestamptz '294000-01-01' else 'infinity' end
                and not (e.is_disabled is true and d.is_out)
            limit row_limit for update skip locked
        ) d
        limit row_limit
    );
    if ids <> '{}' then
        update millpond.deliveries d
        set fate = case when s.is_gone then 'withdrawn' else d.fate end,
            is_out = d.is_out and not s.is_gone,
            settled_at = case when s.is_gone then present else d.settled_at end,
            due_at = case when s.is_gone then null when s.is_disabled then timestamptz 'infinity'
                when d.due_at = 'infinity' then present else d.due_at end
        from millpond.deliveries o
        left join lateral (
            select e.disabled_at is not null as is_disabled from millpond.endpoints e where e.id = o.endpoint_id limit 1
        ) e on true
        cross join lateral (select e.is_disabled, e.is_disabled is null as is_gone) s
        where o.id = any(ids) and d.id = any(ids) and d.id = o.id;
    end if;
    return cardinality(ids);
end $$;

-- name: make :one
insert into millpond.endpoints (
    id, tenant, url, events, kinds, description, in_flight_max, secret, account, is_native, created_at, pulled_at
)
select $1, $2, $3, $4::text[], $5::text[], $6, $7::integer, $8::bytea, $9, $10, t.present,
    case when $3::text is null then t.present end
from millpond.clock() as t(present)
returning id as endpoint_id, tenant, url, events, kinds, description, in_flight_max, created_at, old_until, pulled_at,
    failing_since, disabled_at, disabled_reason, account, is_native;

-- name: subscribe :exec
select millpond.subscribe($1, $2::text[]);

-- name: count :one
-- Endpoints of an account count for that account only: none can use up the limit of the tenant or of another account.
select count(*) as endpoints from millpond.endpoints where tenant = $1 and account is null;

-- name: count_of_account :one
select count(*) as endpoints from millpond.endpoints where tenant = $1 and account = $2;

-- name: list :many
-- The oldest first, above an id. Every account may have some: together they may be very many.
select id as endpoint_id, tenant, url, events, kinds, description, in_flight_max, created_at, old_until, pulled_at,
    failing_since, disabled_at, disabled_reason, account, is_native
from millpond.endpoints where tenant = $1 and id > $2 order by id limit $3;

-- name: list_all :many
-- The same for all tenants.
select id as endpoint_id, tenant, url, events, kinds, description, in_flight_max, created_at, old_until, pulled_at,
    failing_since, disabled_at, disabled_reason, account, is_native
from millpond.endpoints where id > $1 order by id limit $2;

-- name: list_of_account :many
select id as endpoint_id, tenant, url, events, kinds, description, in_flight_max, created_at, old_until, pulled_at,
    failing_since, disabled_at, disabled_reason, account, is_native
from millpond.endpoints where tenant = $1 and account = $2 and id > $3 order by id limit $4;

-- name: read :maybe
select id as endpoint_id, tenant, url, events, kinds, description, in_flight_max, created_at, old_until, pulled_at,
    failing_since, disabled_at, disabled_reason, account, is_native
from millpond.endpoints where tenant = $1 and id = $2;

-- name: owner :maybe
-- The tenant of an endpoint.
select tenant from millpond.endpoints where id = $1;

-- name: lock :maybe
select id as endpoint_id, tenant, url, events, kinds, description, in_flight_max, created_at, old_until, pulled_at,
    failing_since, disabled_at, disabled_reason, account, is_native
from millpond.endpoints where tenant = $1 and id = $2 for update;

-- name: change :exec
update millpond.endpoints set url = $2, events = $3::text[], kinds = $4::text[], description = $5, in_flight_max = $6::integer
where id = $1;

-- name: rotate :exec
-- The previous secret signs too for a while; the one before that no longer does.
update millpond.endpoints
set old_secret = case when $3::interval > interval '0' then secret end,
    old_until = case when $3::interval > interval '0' then millpond.clock() + $3::interval end,
    secret = $2::bytea
where id = $1;

-- name: disable :exec
select millpond.disable($1, $2);

-- name: enable :exec
update millpond.endpoints
set disabled_at = null, disabled_reason = null, failing_since = null,
    enabled_at = case when disabled_at is null then enabled_at else millpond.clock() end
where id = $1;

-- name: follow :one
-- Applies the state of these endpoints, or of all, to at most $2 of their deliveries.
select millpond.follow_endpoints($1::uuid[], $2) as followed;

-- name: delete :exec
delete from millpond.endpoints where id = $1;

-- name: unsubscribe :exec
delete from millpond.subscriptions where endpoint_id = $1;

-- name: silent :many
-- Pull endpoints whose listener has not pulled for $1.
select id as endpoint_id, tenant from millpond.endpoints
where url is null and pulled_at < millpond.clock() - $1::interval order by pulled_at limit $2;

-- name: test :one
insert into millpond.deliveries (id, tenant, endpoint_id, event, receiver, at, data, decides, due_at)
select millpond.uuid7(), e.tenant, e.id, $2, case when e.url is not null then e.id::text end, t.present, $3::jsonb, false, t.present
from millpond.endpoints e cross join millpond.clock() as t(present)
where e.id = $1
returning id as delivery_id, tenant, endpoint_id, job_id, seq, event, at, fate as state, tries, nullif(due_at, 'infinity') as due_at,
    settled_at;

-- name: stats :one
-- The deliveries of an endpoint since $2, by state, and how long the responses took.
select count(*) filter (where d.fate = 'pending') as pending, count(*) filter (where d.fate = 'delivered') as delivered,
    count(*) filter (where d.fate = 'failed') as failed, count(*) filter (where d.fate = 'withdrawn') as withdrawn,
    coalesce(sum(t.tries), 0)::bigint as tries,
    percentile_cont(0.5) within group (order by t.seconds)::float8 as seconds_p50,
    percentile_cont(0.9) within group (order by t.seconds)::float8 as seconds_p90
from millpond.deliveries d
cross join lateral (
    select count(*) as tries, max(t.seconds) filter (where t.status between 200 and 299) as seconds
    from millpond.delivery_tries t where t.delivery_id = d.id
) t
where d.endpoint_id = $1 and d.at >= $2;
