-- Registry: lifecycles and kinds, as the app declares them. Database: both.

-- function: register_lifecycle
-- Writes a lifecycle's states and transitions, and returns whether anything changed.
create or replace function millpond.register_lifecycle(
    name text, states text[], phases text[], outcomes text[], entries boolean[],
    from_states text[], events text[], to_states text[]
) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    before text := millpond.lifecycle_text(name);
begin
    delete from millpond.lifecycle_states where lifecycle = name;
    delete from millpond.lifecycle_transitions where lifecycle = name;
    insert into millpond.lifecycle_states (lifecycle, state, phase, outcome, is_entry)
    select name, s.* from unnest(states, phases, outcomes, entries) as s;
    insert into millpond.lifecycle_transitions (lifecycle, from_state, event, to_state)
    select name, m.* from unnest(from_states, events, to_states) as m;
    return millpond.lifecycle_text(name) is distinct from before;
end $$;

-- function: lifecycle_text
create or replace function millpond.lifecycle_text(name text) returns text
language sql stable as $$
    select (
        select string_agg(concat_ws(' ', state, phase, outcome, is_entry), ';' order by state)
        from millpond.lifecycle_states where lifecycle = name
    ) || '|' || (
        select string_agg(concat_ws(' ', from_state, event, to_state), ';' order by from_state, event)
        from millpond.lifecycle_transitions where lifecycle = name
    )
$$;

-- function: register_limit
create or replace function millpond.register_limit(
    name text, at_once integer, starts integer, per interval, key text[], declared jsonb
) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    before millpond.limits;
begin
    select l.* into before from millpond.limits l where l.name = register_limit.name for update;
    if before.declared is not distinct from register_limit.declared then
        return;
    end if;
    insert into millpond.limits as l (name, at_once, starts, per, key, declared)
    values (
        register_limit.name, register_limit.at_once, register_limit.starts, register_limit.per, register_limit.key,
        register_limit.declared
    )
    on conflict (name) do update
    set at_once = excluded.at_once, starts = excluded.starts, per = excluded.per, key = excluded.key,
        declared = excluded.declared, changed_at = null, changed_by = null;
    perform millpond.renumber_limit(register_limit.name, before.per);
end $$;

-- function: is_limited
-- Whether a kind whose jobs may be in this queue has limits.
create or replace function millpond.is_limited(queue text) returns boolean
language sql stable as $$
    select exists (
        select from millpond.kinds k
        where k.limits <> '{}' and (k.queue = is_limited.queue or starts_with(is_limited.queue, k.queue || ':'))
    )
$$;

-- name: lock :exec
-- One registration at a time: replacing the guard concurrently is an error in PostgreSQL.
select pg_advisory_xact_lock(1885695603);

-- name: register_lifecycle :one
select millpond.register_lifecycle(
    $1::text, $2::text[], $3::text[], $4::text[], $5::boolean[], $6::text[], $7::text[], $8::text[]
) as has_changed;

-- name: stranded :many
-- The states of jobs that their lifecycle no longer has.
select j.state, count(*) as jobs
from millpond.jobs j
where j.lifecycle = $1 and j.phase <> 'ended'
    and not exists (select from millpond.lifecycle_states s where s.lifecycle = j.lifecycle and s.state = j.state)
group by j.state
order by j.state;

-- name: states :many
select state from millpond.lifecycle_states group by state order by state collate "C";

-- name: compile_guard :exec
select millpond.compile_guard();

-- name: register_kind :exec
insert into millpond.kinds (
    kind, lifecycle, queue, is_fair, initial_state, entry_state, stages, firm_stages,
    attempts_max, interruptions_max, lapses_max, declaration, limits, keeps_limits
)
values ($1, $2, $3, $4, $5, $6, $7::text[], $8::text[], $9, $10, $11, $12::jsonb, $13::text[], $14)
on conflict (kind) do update set
    lifecycle = excluded.lifecycle, queue = excluded.queue, is_fair = excluded.is_fair, initial_state = excluded.initial_state,
    entry_state = excluded.entry_state, stages = excluded.stages, firm_stages = excluded.firm_stages,
    attempts_max = excluded.attempts_max, interruptions_max = excluded.interruptions_max,
    lapses_max = excluded.lapses_max, declaration = excluded.declaration, registered_at = millpond.clock(),
    limits = excluded.limits, keeps_limits = excluded.keeps_limits;

-- name: register_limit :exec
-- The numbers of an operator stay until the app declares others.
select millpond.register_limit($1, $2, $3, $4::interval, $5::text[], $6::jsonb);

-- name: mark_limited_queues :exec
update millpond.queues q set is_limited = not q.is_limited where q.is_limited <> millpond.is_limited(q.queue);

-- name: register_queue :exec
-- The queue of a kind that runs on the fleet is a route. A route stays one: jobs of other routes may be in it.
insert into millpond.queues as q (queue, is_route) values ($1, $2)
on conflict (queue) do update set is_route = true where $2 and not q.is_route;

-- name: gate :maybe
-- The gate of a kind, for processes that do not declare the kind.
select k.declaration ->> 'gate' as gate from millpond.kinds k where k.kind = $1;
