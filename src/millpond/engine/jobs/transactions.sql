-- Transactions: jobs that are submitted in a caller's transaction, with the caller's own rows. Database: both.
-- The two entry points set what the caller's session may set otherwise, and on which the plans and the meaning of our
-- statements depend (see store/connections.py). Timeouts and durability are the caller's own.
-- Invariant: such a job goes through millpond.submit_batch and is replayed from millpond.answers, like every other job.

-- function: submit
-- Submits a job, from any language: what it writes commits or rolls back with the caller's transaction. Pass the
-- arguments after the fourth by name. The input is checked only for its shape, not against the kind's schema, and a
-- kind whose price depends on its input must be submitted through Python. A refusal is an error with its own SQLSTATE
-- (see millpond.refuse), and the field as its column name.
create or replace function millpond.submit(
    kind text, input jsonb, tenant text, account text, idempotency_key text default null, priority integer default null,
    run_at timestamptz default null, expires_in interval default null, tags jsonb default null
) returns table (
    job_id uuid, id text, state text, price integer, available bigint, created_at timestamptz, expires_at timestamptz,
    is_replay boolean
)
language plpgsql
set jit = off set plan_cache_mode = auto set search_path = pg_catalog, pg_temp set extra_float_digits = 1
set standard_conforming_strings = on set transform_null_equals = off as $$
#variable_conflict use_column
declare
    declared millpond.kinds;
    wrong record;
    lifetime double precision;
    answer record;
begin
    select k.* into declared from millpond.kinds k where k.kind = submit.kind;
    lifetime := coalesce(
        extract(epoch from submit.expires_in), (declared.declaration ->> 'expires_in_seconds')::double precision
    );
    select w.code, w.field, w.message, w.hint into wrong
    from (values
        (declared.kind is null, 'unknown_kind', 'kind', format('There is no kind %L.', left(submit.kind, 80)),
            'An app registers its kinds when it starts.'),
        (jsonb_typeof(declared.declaration -> 'price') <> 'number', 'invalid', 'kind',
            format('The price of kind %L depends on its input.', submit.kind),
            'Submit it through Python or the API, which can compute the price.'),
        (declared.declaration ->> 'gate' is not null, 'invalid', 'kind', format('Kind %L has a gate.', submit.kind),
            'Submit it through Python or the API, which can call the gate.'),
        (millpond.is_name(submit.tenant) is not true, 'invalid', 'tenant', 'The name is not valid.',
            'Use up to 128 letters, digits and . _ : @ + / -'),
        (millpond.is_name(submit.account) is not true, 'invalid', 'account', 'The name is not valid.',
            'Use up to 128 letters, digits and . _ : @ + / -'),
        (submit.idempotency_key collate "C" !~ '^[!-~]{1,255}$', 'invalid_idempotency_key', 'idempotency_key',
            'The key is not valid.', 'Use up to 255 printable ASCII characters without spaces.'),
        (abs(submit.priority) > 100, 'invalid', 'priority', 'The priority is out of range.',
            'It must be from -100 to 100; the highest goes first.'),
        (extract(year from submit.run_at) not between 1970 and 9000, 'invalid', 'run_at', 'The time is out of range.',
            'Its year must be from 1970 to 9000.'),
        (lifetime <= 0 or lifetime > 315360000, 'invalid', 'expires_in', 'The duration is out of range.',
            'It must be positive and at most ten years.'),
        ((jsonb_typeof(submit.input) = 'object') is not true, 'invalid_input', 'input', 'The input must be a JSON object.',
            'Pass an empty object if the kind needs no input.'),
        (octet_length(submit.input::text) > 262144, 'invalid_input', 'input', 'The input is longer than 256 kB of JSON.',
            'Store large data as an artifact and pass its id.'),
        (jsonb_path_exists(submit.input, 'strict $.**{32} ? (@.type() == "object" || @.type() == "array")'),
            'invalid_input', 'input', 'The input is nested more than 32 levels deep.', 'Reduce the nesting.'),
        (jsonb_path_exists(submit.input, 'strict $.** ? (@.type() == "number" && (@ > 1.7e308 || @ < -1.7e308))'),
            'invalid_input', 'input', 'A number in the input is too large.', 'Numbers go up to 1.7e308.')
    ) as w(is_wrong, code, field, message, hint)
    where w.is_wrong limit 1;
    if wrong.code is not null then
        perform millpond.refuse(wrong.code, wrong.field, wrong.message, wrong.hint);
    end if;
    perform millpond.check_tags(submit.tags) where submit.tags is not null;

    select a.* into answer
    from millpond.admit(jsonb_build_object(
        'job_id', millpond.uuid7(), 'tenant', submit.tenant, 'account', submit.account, 'kind', declared.kind,
        'lifecycle', declared.lifecycle, 'queue', declared.queue, 'is_fair', declared.is_fair,
        'initial_state', declared.initial_state, 'entry_state', declared.entry_state,
        'price', declared.declaration -> 'price', 'budget', declared.declaration -> 'budget', 'input', submit.input, 'scope', submit.account,
        'key', submit.idempotency_key, 'priority', coalesce(submit.priority, (declared.declaration ->> 'priority')::integer),
        'run_at', submit.run_at, 'lifetime', lifetime, 'tags', nullif(submit.tags, '{}')
    )) a;

    case answer.verdict
        when 'accepted', 'replayed' then
            return query select answer.job_id, millpond.typeid('job', answer.job_id), answer.state, answer.price,
                answer.available, answer.created_at, answer.expires_at, answer.verdict = 'replayed';
        when 'remote' then
            perform millpond.refuse(
                'invalid', 'tenant', 'The jobs of this tenant are in another database.', 'Submit them through the API.'
            );
        when 'conflict' then
            perform millpond.refuse(
                'idempotency_conflict', 'idempotency_key', 'The idempotency key was already used with a different request.',
                format('It belongs to job %s.', millpond.typeid('job', answer.job_id))
            );
        when 'short' then
            perform millpond.refuse(
                'insufficient_credits', 'account',
                format('The job costs %s credits and %s are available.', answer.price, answer.available),
                'Grant the account more credits.'
            );
        when 'capped' then
            perform millpond.refuse(
                'too_many_active_jobs', 'account',
                format('The account has %s active jobs, which is its limit.', answer.active),
                'Try again when one of them has ended.'
            );
    end case;
end $$;

-- function: admit
-- Submits one validated and priced job as part of the caller's transaction. A refusal is returned as a verdict, and
-- nothing is written: an error would undo what the caller has done so far.
-- Verdicts: 'accepted'; 'replayed' (the key's first answer); 'conflict' (the key was used with another request);
-- 'short' (of credits); 'capped' (too many active jobs); 'taken' (the id); 'remote' (the tenant has a database of its
-- own).
create or replace function millpond.admit(item jsonb)
returns table (
    verdict text, job_id uuid, state text, price integer, available bigint, active integer, created_at timestamptz,
    expires_at timestamptz
)
language plpgsql
set jit = off set plan_cache_mode = auto set search_path = pg_catalog, pg_temp set extra_float_digits = 1
set standard_conforming_strings = on set transform_null_equals = off as $$
#variable_conflict use_column
declare
    job record;
    born record;
    begins timestamptz;
    wallet record;
    cost bigint;
begin
    select i.* into job from jsonb_to_record(item) as i(
        job_id uuid, tenant text, account text, kind text, lifecycle text, queue text, is_fair boolean, initial_state text,
        entry_state text, price integer, budget integer, input jsonb, scope text, key text, request jsonb, priority smallint,
        run_at timestamptz, lifetime double precision, retry_of uuid, hooks jsonb,
        tags jsonb
    );
    cost := job.price::bigint + coalesce(job.budget, 0);
    if exists (select from millpond.tenant_databases h where h.tenant = job.tenant) then
        return query select 'remote', job.job_id, null::text, null::integer, null::bigint, null::integer, null::timestamptz,
            null::timestamptz;
        return;
    end if;
    for tries in 1..10 loop
        begin
            select s.available[1] as left_, s.created_at as at into born
            from millpond.submit_batch(
                job.is_fair, false, array[job.job_id], array[job.tenant], array[job.account], array[job.kind], array[job.lifecycle],
                array[job.queue], array[job.initial_state], array[job.entry_state], array[job.price], array[job.input],
                array[job.scope], array[job.key], array[job.request], array[job.priority], array[job.run_at],
                array[make_interval(secs => job.lifetime)], array[job.retry_of], array[1], array[(cost > 0)::integer],
                array[cost], array[job.tenant], array[job.account], array[cost], array[1],
                array[(cost > 0)::integer], job.hooks, array[job.tags], case when job.budget is not null then array[job.budget] end
            ) s;
            begins := greatest(job.run_at, born.at);
            return query select 'accepted', job.job_id,
                case when begins > born.at then job.initial_state else job.entry_state end,
                job.price, case when cost > 0 then born.left_ end, null::integer, born.at,
                begins + make_interval(secs => job.lifetime);
            return;
        exception
            when sqlstate 'PS003' then
                null;  -- its writes are rolled back
            when unique_violation then
                return query select 'taken', job.job_id, null::text, null::integer, null::bigint, null::integer,
                    null::timestamptz, null::timestamptz;
                return;
        end;

        return query
        select case when a.is_same then 'replayed' else 'conflict' end, a.job_id, a.state, a.price, a.available,
            null::integer, a.created_at, a.expires_at
        from millpond.answers(
            array[job.tenant], array[job.scope], array[job.key], array[job.kind], array[job.input], array[job.request],
            array[job.tags]
        ) a;
        if found then
            return;
        end if;
        select w.available, w.active, w.active_max into wallet from millpond.wallet(job.tenant, job.account) w;
        if cost > coalesce(wallet.available, 0) then
            return query select 'short', job.job_id, null::text, cost::integer, coalesce(wallet.available, 0), null::integer,
                null::timestamptz, null::timestamptz;
            return;
        elsif wallet.active >= wallet.active_max then
            return query select 'capped', job.job_id, null::text, job.price, wallet.available, wallet.active,
                null::timestamptz, null::timestamptz;
            return;
        elsif wallet.available is null then
            insert into millpond.accounts (tenant, account) values (job.tenant, job.account) on conflict do nothing;
        end if;
    end loop;
    raise exception 'the account or the key keeps changing' using errcode = 'serialization_failure';
end $$;

-- function: check_tags
-- Refuses the tags that millpond.values.check_tags refuses, with the same messages.
create or replace function millpond.check_tags(tags jsonb) returns void
language plpgsql as $$
declare
    wrong record;
begin
    if jsonb_typeof(tags) <> 'object' then
        perform millpond.refuse('invalid', 'tags', 'It must be an object of keys and texts.', 'Write {"team": "ads"}.');
    end if;
    select w.field, w.message into wrong
    from jsonb_each(tags) as t(key, value)
    cross join lateral (values
        ((select count(*) from jsonb_object_keys(tags)) > 16, 'tags',
            format('It has %s tags; the limit is 16.', (select count(*) from jsonb_object_keys(tags)))),
        (t.key collate "C" !~ '^[A-Za-z0-9_./-]{1,64}$', 'tags',
            format('The key %L must be 1 to 64 letters, digits and . _ / - long.', left(t.key, 80))),
        (jsonb_typeof(t.value) <> 'string', 'tags.' || t.key, 'It must be text.'),
        (length(t.value #>> '{}') > 256, 'tags.' || t.key,
            format('It has %s characters; the limit is 256.', length(t.value #>> '{}'))),
        (t.value #>> '{}' ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]', 'tags.' || t.key,
            'It must be one line of text without control characters.')
    ) as w(is_wrong, field, message)
    where w.is_wrong limit 1;
    if wrong.field is not null then
        perform millpond.refuse('invalid', wrong.field, wrong.message, 'A tag is a short key with a line of text.');
    end if;
end $$;

-- function: refuse
-- Raises the error of a refused request, with the SQLSTATE of its code.
create or replace function millpond.refuse(code text, field text, message text, hint text) returns void
language plpgsql as $$
begin
    raise exception using
        errcode = case refuse.code
            when 'invalid' then 'PS101'
            when 'unknown_kind' then 'PS102'
            when 'invalid_input' then 'PS103'
            when 'invalid_idempotency_key' then 'PS104'
            when 'idempotency_conflict' then 'PS105'
            when 'insufficient_credits' then 'PS106'
            when 'too_many_active_jobs' then 'PS107'
        end,
        message = format('%s: %s', refuse.field, refuse.message),
        detail = format('Error code: %s', refuse.code), hint = refuse.hint, column = refuse.field;
end $$;

-- function: is_name
-- Whether a text is valid as the name of a tenant or an account.
create or replace function millpond.is_name(given text) returns boolean
language sql immutable parallel safe as $$
    select given collate "C" ~ '^[A-Za-z0-9_.:@+/-]{1,128}$'
$$;

-- function: typeid
-- The public form of an id: a TypeID, with five bits for each letter and three for the first. It is unrolled because
-- every row of the audit has one, and a loop takes seven times as long.
create or replace function millpond.typeid(prefix text, id uuid) returns text
language plpgsql immutable strict parallel safe as $$
declare
    letters constant text := '0123456789abcdefghjkmnpqrstvwxyz';
    digits text := translate(id::text, '-', '');
    high bigint := ('x' || left(digits, 16))::bit(64)::bigint;
    low bigint := ('x' || right(digits, 16))::bit(64)::bigint;
begin
    return prefix || '_'
        || substr(letters, (high >> 61 & 7)::integer + 1, 1) || substr(letters, (high >> 56 & 31)::integer + 1, 1) || substr(letters, (high >> 51 & 31)::integer + 1, 1)
        || substr(letters, (high >> 46 & 31)::integer + 1, 1) || substr(letters, (high >> 41 & 31)::integer + 1, 1) || substr(letters, (high >> 36 & 31)::integer + 1, 1)
        || substr(letters, (high >> 31 & 31)::integer + 1, 1) || substr(letters, (high >> 26 & 31)::integer + 1, 1) || substr(letters, (high >> 21 & 31)::integer + 1, 1)
        || substr(letters, (high >> 16 & 31)::integer + 1, 1) || substr(letters, (high >> 11 & 31)::integer + 1, 1) || substr(letters, (high >> 6 & 31)::integer + 1, 1)
        || substr(letters, (high >> 1 & 31)::integer + 1, 1) || substr(letters, ((high & 1) << 4 | (low >> 60 & 15))::integer + 1, 1) || substr(letters, (low >> 55 & 31)::integer + 1, 1)
        || substr(letters, (low >> 50 & 31)::integer + 1, 1) || substr(letters, (low >> 45 & 31)::integer + 1, 1) || substr(letters, (low >> 40 & 31)::integer + 1, 1)
        || substr(letters, (low >> 35 & 31)::integer + 1, 1) || substr(letters, (low >> 30 & 31)::integer + 1, 1) || substr(letters, (low >> 25 & 31)::integer + 1, 1)
        || substr(letters, (low >> 20 & 31)::integer + 1, 1) || substr(letters, (low >> 15 & 31)::integer + 1, 1) || substr(letters, (low >> 10 & 31)::integer + 1, 1)
        || substr(letters, (low >> 5 & 31)::integer + 1, 1) || substr(letters, (low & 31)::integer + 1, 1);
end $$;

-- name: admit :one
select to_jsonb(a)::text as answer from millpond.admit($1::text::jsonb) a;
