-- Guards: changes that the database itself rejects, from hand-written SQL as from Millpond.

-- function: clock
-- The only clock. A test that moves time replaces this function in its own database.
create or replace function millpond.clock() returns timestamptz
language sql volatile parallel safe as 'select clock_timestamp()';

-- function: guard_append_only
create or replace function millpond.guard_append_only() returns trigger
language plpgsql as $$
begin
    raise exception 'millpond.% is append-only', tg_table_name using errcode = 'PS002';
end $$;

-- function: leave_limits
-- The job of a dispatch stops to run, or to wait, under the keys of its limits (see limits.sql).
create or replace function millpond.leave_limits() returns trigger
language plpgsql as $$
#variable_conflict use_column
begin
    if old.phase = 'ready' then
        delete from millpond.limit_waits w where w.job_id = old.job_id;
    end if;
    if lower(tg_op) = 'delete' or (
        old.phase = 'leased' and new.phase <> 'leased' and not (
            new.phase = 'parked' and exists (select from millpond.kinds k where k.kind = old.kind and k.keeps_limits)
        )
    ) then
        with gone as (
            delete from millpond.limit_holders h where h.key = any(old.limits) and h.job_id = old.job_id returning h.key
        )
        insert into millpond.limit_releases (key) select g.key from gone g;
    end if;
    return null;
end $$;

-- function: raise_wall
-- Sets up row-level security between tenants, in addition to the filters of the statements themselves: the role for clients'
-- reads sees only the rows of the callers that its transaction names, cannot write, and has no privileges on partitions. This
-- applies to every tenant table whose rows name a tenant, but not to their owner, the role of the engine. The role cannot
-- read tracebacks at all. If the role cannot be created, nothing is changed; call this again when an administrator has created it.
create or replace function millpond.raise_wall() returns void
language plpgsql as $wall$
declare
    walled text;
begin
    if to_regrole('millpond_client') is null then
        begin
            create role millpond_client nologin;
        exception
            when insufficient_privilege then return;
            when duplicate_object or unique_violation then null;  -- created for another database of this server at the same time
        end;
    end if;
    begin
        if not pg_has_role(current_user, 'millpond_client', 'usage') then
            execute format('grant millpond_client to %I', current_user);
        end if;
    exception
        when insufficient_privilege or internal_error then null;  -- the latter: granted at the same time
    end;
    grant usage on schema millpond to millpond_client;
    for walled in
        select c.relname from pg_class c
        where c.relnamespace = 'millpond'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
            and obj_description(c.oid, 'pg_class') like 'database: tenant.%'
            and c.relname <> 'tracebacks'  -- no client may read them
            and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant' and not a.attisdropped)
        order by c.relname
    loop
        perform millpond.wall(walled);
    end loop;
end $wall$;

-- function: wall
-- Sets up row-level security for one tenant table; does nothing if the role does not exist.
create or replace function millpond.wall(walled text) returns void
language plpgsql as $wall$
begin
    if to_regrole('millpond_client') is null then
        return;
    end if;
    execute format('grant select on millpond.%I to millpond_client', walled);
    execute format('alter table millpond.%I enable row level security', walled);
    execute format('drop policy if exists client on millpond.%I', walled);
    -- A scalar subquery is evaluated once per statement and not once per row. Names of tenants contain no commas.
    execute format(
        $policy$
        create policy client on millpond.%I for select to millpond_client
        using (tenant = any ((select string_to_array(current_setting('millpond.callers', true), ','))::text[]))
        $policy$, walled
    );
end $wall$;

-- function: compile_guard
-- Generates the guard of millpond.jobs from the lifecycle tables, as one expression: looking each pair up
-- in the tables instead costs about five times as much (docs/why/lifecycles-as-data.md has the figures).
create or replace function millpond.compile_guard() returns void
language plpgsql as $compile$
declare
    births text;
    transitions text;
    -- the constraints between the columns of a job
    sound text := $$
        (new.phase = 'ended') = (new.finished_at is not null)
        and (new.phase = 'ended') = (new.outcome is not null)
        and (new.phase = 'ended') = (new.captured is not null)
        and new.price >= 0
        and coalesce(new.captured between 0 and new.price, true)
        and new.progress between 0 and 1
        and coalesce(new.started_at >= new.created_at, true)
        and coalesce(new.finished_at >= coalesce(new.started_at, new.created_at), true)
    $$;
begin
    select coalesce(string_agg(format('when %L then %L', lifecycle || ' ' || state, phase || ' '), ' ' order by lifecycle, state),
        'when null then null') into births
    from millpond.lifecycle_states where is_entry;

    select coalesce(string_agg(format('when %L then case old.state || '' '' || new.state %s end', lifecycle, arrows), ' ' order by lifecycle),
        'when null then null') into transitions
    from (
        select m.lifecycle, string_agg(
            format('when %L then %L', m.from_state || ' ' || m.to_state, s.phase || ' ' || coalesce(s.outcome, '')),
            ' ' order by m.from_state, m.to_state
        ) as arrows
        from (select distinct lifecycle, from_state, to_state from millpond.lifecycle_transitions
              where from_state <> '*' and from_state <> to_state) m
        join millpond.lifecycle_states s on s.lifecycle = m.lifecycle and s.state = m.to_state
        group by m.lifecycle
    ) drawn;

    execute format($guard$
        create or replace function millpond.guard_birth() returns trigger language plpgsql as $body$
        begin
            if (case new.lifecycle || ' ' || new.state %s end) is null then
                raise exception 'a job of lifecycle %% cannot begin in state %%', new.lifecycle, new.state
                using errcode = 'PS001';
            elsif not (%s) then
                raise exception 'the columns of job %% do not fit together', new.id using errcode = 'check_violation';
            end if;
            return new;
        end $body$;
    $guard$, births, sound);

    execute format($guard$
        create or replace function millpond.guard_transition() returns trigger language plpgsql as $body$
        declare
            implied text;  -- the phase and outcome that the new state implies; null if there is no such transition
        begin
            -- An ended job does not change, except by a retry.
            if old.state <> new.state or old.phase = 'ended' or new.phase = 'ended' then
                implied := case new.lifecycle %s end;
                if implied is null or new.lifecycle <> old.lifecycle then
                    raise exception 'transition denied: %% -> %% in lifecycle %%', old.state, new.state, new.lifecycle
                    using errcode = 'PS001';
                elsif implied like 'ended %%' then
                    new.phase := 'ended';
                    new.outcome := substr(implied, 7);
                    if new.finished_at is null then new.finished_at := millpond.clock(); end if;
                    if new.captured is null then new.captured := 0; end if;
                elsif old.phase = 'ended' then
                    new.outcome := null;
                    new.finished_at := null;
                    new.captured := null;
                end if;
                if new.phase = old.phase or (new.phase = 'ended') <> (new.outcome is not null) then
                    new.phase := rtrim(split_part(implied, ' ', 1));
                end if;
            end if;
            if not (%s) then
                raise exception 'the columns of job %% do not fit together', new.id using errcode = 'check_violation';
            end if;
            return new;
        end $body$;
    $guard$, transitions, sound);
end $compile$;
