-- Guards: what the database itself refuses, to hand-written SQL as to ours.

-- function: clock
-- The one clock. A test that moves time replaces this function in its own database.
create or replace function millpond.clock() returns timestamptz
language sql volatile parallel safe as 'select clock_timestamp()';

-- function: guard_append_only
create or replace function millpond.guard_append_only() returns trigger
language plpgsql as $$
begin
    raise exception 'millpond.% is append-only', tg_table_name using errcode = 'PS002';
end $$;

-- function: raise_wall
-- The second wall between tenants: the role that reads for clients sees the rows of the callers that its transaction
-- names, writes nothing, and is granted no partition by itself. It stands around every table whose home is a tenant and
-- whose rows name one. The owner, as which the engine works, is not subject to it. Where the role may not be made,
-- nothing is changed; call it again when somebody has made it.
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
            when duplicate_object or unique_violation then null;  -- another database of this server was quicker
        end;
    end if;
    begin
        if not pg_has_role(current_user, 'millpond_client', 'usage') then
            execute format('grant millpond_client to %I', current_user);
        end if;
    exception
        when insufficient_privilege or internal_error then null;  -- the latter: another one was quicker
    end;
    grant usage on schema millpond to millpond_client;
    for walled in
        select c.relname from pg_class c
        where c.relnamespace = 'millpond'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
            and obj_description(c.oid, 'pg_class') like 'home: tenant.%'
            and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant' and not a.attisdropped)
        order by c.relname
    loop
        perform millpond.wall(walled);
    end loop;
end $wall$;

-- function: wall
-- The second wall around one table of tenants; nothing, where there is no role.
create or replace function millpond.wall(walled text) returns void
language plpgsql as $wall$
begin
    if to_regrole('millpond_client') is null then
        return;
    end if;
    execute format('grant select on millpond.%I to millpond_client', walled);
    execute format('alter table millpond.%I enable row level security', walled);
    execute format('drop policy if exists client on millpond.%I', walled);
    -- A scalar subquery is asked once a statement and not once a row. No name of a tenant has a comma.
    execute format(
        $policy$
        create policy client on millpond.%I for select to millpond_client
        using (tenant = any ((select string_to_array(current_setting('millpond.callers', true), ','))::text[]))
        $policy$, walled
    );
end $wall$;

-- function: compile_guard
-- Writes the guard of millpond.jobs out of the lifecycle tables, as one expression: looking each pair up
-- in the tables instead costs about five times as much (docs/why/lifecycles-as-data.md has the figures).
create or replace function millpond.compile_guard() returns void
language plpgsql as $compile$
declare
    births text;
    moves text;
    -- what must hold between the columns of a job
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
        'when null then null') into moves
    from (
        select m.lifecycle, string_agg(
            format('when %L then %L', m.from_state || ' ' || m.to_state, s.phase || ' ' || coalesce(s.outcome, '')),
            ' ' order by m.from_state, m.to_state
        ) as arrows
        from (select distinct lifecycle, from_state, to_state from millpond.lifecycle_moves
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
        create or replace function millpond.guard_move() returns trigger language plpgsql as $body$
        declare
            implied text;  -- the phase and outcome that the new state implies; null where there is no such arrow
        begin
            -- What has ended stays as it is: whatever touches it is a move, and only a retry is one.
            if old.state <> new.state or old.phase = 'ended' or new.phase = 'ended' then
                implied := case new.lifecycle %s end;
                if implied is null or new.lifecycle <> old.lifecycle then
                    raise exception 'move denied: %% -> %% in lifecycle %%', old.state, new.state, new.lifecycle
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
    $guard$, moves, sound);
end $compile$;
