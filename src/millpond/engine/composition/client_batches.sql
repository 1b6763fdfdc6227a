-- Client_batches: independent jobs that a client submits under one handle. Database: tenant.
-- Invariants: the jobs of a request are all submitted and charged in one commit, or none of them is; requests follow each
-- other by position, so none is submitted twice. A batch ends in the commit in which its last job ends (see
-- millpond.end_members), and in that commit its one event is written. A batch is locked before the accounts, as there.

-- function: create_batch
-- Creates a batch without jobs. Verdicts: 'created'; 'repeated' and 'changed': its key was used before, by the same
-- request or by another one; `batch_id` is then that batch.
create or replace function millpond.create_batch(
    batch_id uuid, tenant text, account text, name text, total integer, tags jsonb, key text, digest bytea, url text,
    receiver text, secret bytea
) returns table (verdict text, found_id uuid)
language plpgsql as $$
#variable_conflict use_column
begin
    if key is not null then
        insert into millpond.batch_keys (tenant, account, key, batch_id, digest)
        values (create_batch.tenant, create_batch.account, create_batch.key, create_batch.batch_id, create_batch.digest)
        on conflict do nothing;
        if not found then
            return query
            select case when k.digest = create_batch.digest then 'repeated' else 'changed' end, k.batch_id
            from millpond.batch_keys k
            where k.tenant = create_batch.tenant and k.account = create_batch.account and k.key = create_batch.key;
            return;
        end if;
    end if;
    insert into millpond.batches (id, tenant, account, name, total, submitted, tags, price, captured, created_at)
    values (
        create_batch.batch_id, create_batch.tenant, create_batch.account, create_batch.name, create_batch.total, 0,
        create_batch.tags, 0, 0, millpond.clock()
    );
    if url is not null then
        insert into millpond.batch_hooks (batch_id, tenant, url, receiver, secret)
        values (create_batch.batch_id, create_batch.tenant, create_batch.url, create_batch.receiver, create_batch.secret);
    end if;
    return query select 'created', create_batch.batch_id;
end $$;

-- function: add_to_batch
-- Submits jobs of a batch, from position `first` on. The columns from `is_fair` on are those of millpond.submit_batch.
-- Verdicts: 'added'; 'repeated' (they were added before); 'absent'; 'children' (it is the batch of a job); 'changed' (other
-- jobs were added at this position before); 'canceled'; 'closed' (it has all its jobs); 'misplaced' (the next position is
-- `submitted`); 'many' (it would have more jobs than its total).
create or replace function millpond.add_to_batch(
    batch_id uuid, tenant text, first integer, digest bytea, is_remote boolean, is_fair boolean, job_ids uuid[], tenants text[],
    accounts text[], kinds text[], lifecycles text[], queues text[], initial_states text[], entry_states text[],
    prices integer[], inputs jsonb[], scopes text[], keys text[], requests jsonb[], priorities smallint[],
    run_ats timestamptz[], lifetimes interval[], retries uuid[], payers integer[], nths integer[], spents bigint[],
    payer_tenants text[], payer_accounts text[], sums bigint[], counts integer[], holds integer[], hooks jsonb,
    tags jsonb[], budgets integer[]
) returns table (verdict text, submitted integer, created_at timestamptz)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    size integer := cardinality(job_ids);
    batch millpond.batches;
    page millpond.batch_pages;
    wrong text;
begin
    select b.* into batch from millpond.batches b
    where b.id = add_to_batch.batch_id and b.tenant = add_to_batch.tenant for update;
    select p.* into page from millpond.batch_pages p where p.batch_id = batch.id and p.first = add_to_batch.first;
    wrong := case
        when batch.id is null then 'absent'
        when batch.parent_id is not null then 'children'
        when page.digest = add_to_batch.digest then 'repeated'
        when page.batch_id is not null then 'changed'
        when batch.canceled_at is not null then 'canceled'
        when batch.submitted = batch.total then 'closed'
        when batch.submitted <> first then 'misplaced'
        when batch.submitted + size > batch.total then 'many'
    end;
    if wrong is not null then
        return query select wrong, batch.submitted, batch.created_at;
        return;
    end if;

    insert into millpond.batch_pages (batch_id, first, tenant, jobs, digest)
    values (batch.id, add_to_batch.first, batch.tenant, size, add_to_batch.digest);
    update millpond.batches b
    set submitted = b.submitted + size, price = b.price + (select sum(a) from unnest(millpond.amounts(prices, budgets, size)) as a)
    where b.id = batch.id;
    return query
    select 'added', batch.submitted + size, s.created_at
    from millpond.submit_batch(
        is_fair, is_remote, job_ids, tenants, accounts, kinds, lifecycles, queues, initial_states, entry_states, prices, inputs, scopes,
        keys, requests, priorities, run_ats, lifetimes, retries, payers, nths, spents, payer_tenants, payer_accounts, sums, counts,
        holds, hooks, tags, budgets, batch.id, null, 0::smallint
    ) s;
end $$;

-- function: cancel_batch
-- Cancels a batch: it accepts no more jobs, and a service cancels those that have not ended. One without such jobs ends at
-- once. Verdicts: 'canceled'; 'repeated' (it was canceled before); 'ended'; 'children' (it is the batch of a job); 'absent'.
create or replace function millpond.cancel_batch(batch_id uuid, tenant text) returns text
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    batch millpond.batches;
begin
    select b.* into batch from millpond.batches b
    where b.id = cancel_batch.batch_id and b.tenant = cancel_batch.tenant for update;
    if batch.id is null then
        return 'absent';
    elsif batch.parent_id is not null then
        return 'children';
    elsif batch.ended_at is not null then
        return 'ended';
    elsif batch.canceled_at is not null then
        return 'repeated';
    end if;

    update millpond.batches b
    set canceled_at = present, total = b.submitted, ended_at = case when b.ended = b.submitted then present end
    where b.id = batch.id;
    if batch.ended = batch.submitted then
        perform millpond.announce_batches(array[batch.id]);
    else
        insert into millpond.batch_cancels (batch_id, tenant, at) values (batch.id, batch.tenant, present);
    end if;
    return 'canceled';
end $$;

-- function: cancel_unstarted
-- Cancels those of these jobs that have not started, or wait for something, and whose stage permits it. The others are
-- left as they are.
create or replace function millpond.cancel_unstarted(job_ids uuid[])
returns table (job_id uuid, tenant text, kind text, from_state text, state text, price integer, captured integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ids uuid[] := array(
        select d.job_id from millpond.dispatches d
        where d.job_id = any(cancel_unstarted.job_ids) and d.phase in ('waiting', 'ready', 'parked', 'delivering')
        order by d.job_id for update skip locked
    );
begin
    ids := millpond.cancelable(ids);
    if ids <> '{}' then
        perform millpond.discard(ids);
        return query
        select m.job_id, m.tenant, m.kind, m.from_state, m.state, m.price, m.captured
        from millpond.transition('canceled', 'ended', ids) m;
    end if;
end $$;

-- function: cancelable
-- Those of these jobs whose lifecycle and stage permit a cancel. The caller holds the locks of their dispatches.
create or replace function millpond.cancelable(job_ids uuid[]) returns uuid[]
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    return array(
        select j.id from millpond.jobs j
        where j.id = any(job_ids) and j.id >= low and j.id <= high
            and exists (
                select from millpond.lifecycle_transitions m
                where m.lifecycle = j.lifecycle and m.from_state = j.state and m.event = 'canceled'
            )
            and not exists (select from millpond.kinds k where k.kind = j.kind and j.stage = any(k.firm_stages))
        order by j.id for update
    );
end $$;

-- function: cancel_jobs
-- The tenant database's half of cancel_unstarted, for jobs that no worker holds.
create or replace function millpond.cancel_jobs(job_ids uuid[])
returns table (job_id uuid, tenant text, kind text, from_state text, state text, price integer, captured integer)
language plpgsql as $$
#variable_conflict use_column
declare
    ids uuid[] := millpond.cancelable(cancel_jobs.job_ids);
begin
    if ids <> '{}' then
        return query
        select m.job_id, m.tenant, m.kind, m.from_state, m.state, m.price, m.captured
        from millpond.transition('canceled', 'ended', ids) m;
    end if;
end $$;

-- function: announce_batches
-- Writes the deliveries of the event of batches that have just ended: to the endpoints that subscribe to it, whatever
-- kinds of jobs they cover, and to the URL that the batch was created with.
create or replace function millpond.announce_batches(batch_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    insert into millpond.deliveries (id, tenant, endpoint_id, batch_id, event, receiver, at, data, decides, due_at)
    select millpond.uuid7(), b.tenant, t.endpoint_id, b.id, 'batch.completed', t.receiver, b.ended_at,
        jsonb_build_object('type', 'batch.completed', 'data', jsonb_build_object(
            'id', millpond.typeid('batch', b.id), 'account', b.account, 'name', nullif(b.name, ''),
            'state', {client_batches.state}, 'total', b.total, 'submitted', b.submitted, 'ended', b.ended,
            'succeeded', b.succeeded, 'failed', b.failed, 'canceled', b.canceled, 'price', b.price, 'captured', b.captured,
            'tags', coalesce(b.tags, '{}'), 'created_at', millpond.utc(b.created_at), 'canceled_at', millpond.utc(b.canceled_at),
            'ended_at', millpond.utc(b.ended_at)
        )), false, b.ended_at
    from millpond.batches b
    cross join lateral (
        select s.endpoint_id, s.receiver from millpond.subscriptions s
        where s.event = 'batch.completed' and s.tenant = b.tenant and s.account is null
        union all
        select s.endpoint_id, s.receiver from millpond.subscriptions s
        where s.event = 'batch.completed' and s.tenant = b.tenant and s.account = b.account
        union all
        select null, h.receiver from millpond.batch_hooks h where h.batch_id = b.id
        offset 0
    ) t
    where b.id = any(announce_batches.batch_ids);
end $$;

-- function: utc
-- A time as the API formats it.
create or replace function millpond.utc(instant timestamptz) returns text
language sql immutable parallel safe as $$
    select to_char(instant at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- fragment: state
case
    when b.ended_at is not null then case when b.canceled_at is null then 'completed' else 'canceled' end
    when b.canceled_at is not null then 'canceling'
    when b.submitted < b.total then 'open'
    else 'running'
end

-- name: create :one
select verdict, found_id as batch_id
from millpond.create_batch($1, $2, $3, $4, $5, $6::jsonb, $7, $8::bytea, $9, $10, $11::bytea);

-- name: add :one
select verdict, submitted, created_at
from millpond.add_to_batch(
    $1, $2, $3, $4::bytea, is_remote => $5, is_fair => $6, job_ids => $7::uuid[], tenants => $8::text[],
    accounts => $9::text[], kinds => $10::text[], lifecycles => $11::text[], queues => $12::text[],
    initial_states => $13::text[], entry_states => $14::text[], prices => $15::integer[], inputs => $16::jsonb[],
    scopes => $17::text[], keys => $18::text[], requests => $19::jsonb[], priorities => $20::smallint[],
    run_ats => $21::timestamptz[], lifetimes => $22::interval[], retries => $23::uuid[], payers => $24::integer[],
    nths => $25::integer[], spents => $26::bigint[], payer_tenants => $27::text[], payer_accounts => $28::text[],
    sums => $29::bigint[], counts => $30::integer[], holds => $31::integer[], hooks => $32::jsonb, tags => $33::jsonb[],
    budgets => $34::integer[]
);

-- name: known :maybe
-- The batch that was created with a key.
select batch_id, digest from millpond.batch_keys where tenant = $1 and account = $2 and key = $3;

-- name: page :maybe
-- The request that added jobs to a batch at this position.
select p.digest from millpond.batch_pages p where p.batch_id = $1 and p.first = $2;

-- name: last :one
-- The greatest id of a batch's jobs.
select (select j.id from millpond.jobs j where j.batch_id = $1 order by j.id desc limit 1) as job_id;

-- name: find :maybe
-- A batch, of any tenant.
select {batches.fields} from millpond.batches b where b.id = $1;

-- name: list_of_account :many
-- The newest first, below an id; the filters are optional.
select {batches.fields} from millpond.batches b
where b.parent_id is null and b.id < $1 and b.tenant = $5 and b.account = $6
    and ($2::text is null or {client_batches.state} = $2) and ($3::jsonb is null or b.tags @> $3::jsonb)
order by b.id desc limit $4;

-- name: list_of_tenant :many
-- The same of all accounts of a tenant.
select {batches.fields} from millpond.batches b
where b.parent_id is null and b.id < $1 and b.tenant = $5
    and ($2::text is null or {client_batches.state} = $2) and ($3::jsonb is null or b.tags @> $3::jsonb)
order by b.id desc limit $4;

-- name: list_all :many
-- The same of all tenants.
select {batches.fields} from millpond.batches b
where b.parent_id is null and b.id < $1
    and ($2::text is null or {client_batches.state} = $2) and ($3::jsonb is null or b.tags @> $3::jsonb)
order by b.id desc limit $4;

-- name: jobs :many
-- The ids of a batch's jobs in order, after one of them; the filters are optional. The page ends with the job with which
-- the JSON has reached 4 MiB.
select j.id as job_id, j.found
from (
    select j.*, count(*) over () as found,
        sum(j.size) over (order by j.id rows between unbounded preceding and 1 preceding) as size_before
    from (
        select j.id, octet_length(j.input::text) + coalesce(octet_length(j.output::text), 0)
            + coalesce(octet_length(j.error::text), 0) as size
        from millpond.jobs j
        where j.batch_id = $1 and j.id > $2 and ($4::text is null or j.phase = $4) and ($5::text is null or j.outcome = $5)
        order by j.id limit $3
    ) j
) j
where coalesce(j.size_before, 0) < 4 * 1024 * 1024
order by j.id;

-- name: hook :maybe
-- The URL that a batch was created with.
select url, secret from millpond.batch_hooks where batch_id = $1;

-- name: cancel :one
select millpond.cancel_batch($1, $2) as verdict;

-- name: canceling :many
-- Canceled batches whose jobs are to be canceled, with the jobs that were looked at.
select c.batch_id, c.tenant, c.after from millpond.batch_cancels c where c.at <= millpond.clock() order by c.at, c.batch_id limit $1;

-- name: open_jobs :many
-- Jobs of a batch, after one of them, that have not ended and whose cancel was not requested.
select j.id as job_id from millpond.jobs j
where j.batch_id = $1 and j.id > $2 and j.phase <> 'ended' and j.cancel_requested_at is null order by j.id limit $3;

-- name: cancel_unstarted :many
select job_id, tenant, kind, from_state, state, price, captured from millpond.cancel_unstarted($1::uuid[]);

-- name: looked_at :exec
-- Stores the last job that was looked at. After the last one of all, the batch is forgotten if it has ended; otherwise it
-- is looked at again later, because the stage of a job may have refused the cancel.
with over as (
    delete from millpond.batch_cancels c
    where c.batch_id = $1 and $2::uuid is null
        and not exists (select from millpond.batches b where b.id = c.batch_id and b.ended_at is null)
    returning c.batch_id
)
update millpond.batch_cancels c
set after = coalesce($2::uuid, '00000000-0000-0000-0000-000000000000'),
    at = case when $2::uuid is null then millpond.clock() + interval '5 seconds' else c.at end
where c.batch_id = $1 and not exists (select from over);
