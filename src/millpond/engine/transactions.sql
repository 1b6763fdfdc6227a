-- Transactions: jobs that are taken in by somebody else's transaction, with his own rows. Home: both.
-- Invariant: such a job goes through millpond.submit_batch and is replayed from millpond.answers, as every other one.

-- function: submit
-- Takes a job in, for any language: what it writes commits or rolls back with the transaction it is called in.
-- The arguments after the fourth are given by name. The input's schema cannot be checked here, only its shape; and a
-- kind whose price depends on the input is submitted through Python. A refusal is an error with a SQLSTATE of its own
-- (see millpond.refuse), the field as its column name.
create or replace function millpond.submit(
    kind text, input jsonb, tenant text, account text, idempotency_key text default null, priority integer default null,
    run_at timestamptz default null, expires_in interval default null
) returns table (
    job_id uuid, id text, state text, price integer, available bigint, created_at timestamptz, expires_at timestamptz,
    is_replay boolean
)
language plpgsql as $$
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
            'An app makes its kinds known when it starts.'),
        (jsonb_typeof(declared.declaration -> 'price') <> 'number', 'invalid', 'kind',
            format('The price of kind %L depends on its input.', submit.kind),
            'Submit it through Python or the API, which know how to price it.'),
        (declared.declaration ->> 'gate' is not null, 'invalid', 'kind', format('Kind %L is behind a gate.', submit.kind),
            'Submit it through Python or the API, which can ask it.'),
        (millpond.is_name(submit.tenant) is not true, 'invalid', 'tenant', 'It is not a name.',
            'Up to 128 letters, digits and . _ : @ + / - may stand in it.'),
        (millpond.is_name(submit.account) is not true, 'invalid', 'account', 'It is not a name.',
            'Up to 128 letters, digits and . _ : @ + / - may stand in it.'),
        (submit.idempotency_key collate "C" !~ '^[!-~]{1,255}$', 'invalid_idempotency_key', 'idempotency_key',
            'It is not a key.', 'Up to 255 printable ASCII characters without spaces may stand in it.'),
        (abs(submit.priority) > 100, 'invalid', 'priority', 'It is out of range.',
            'It must be from -100 to 100; the highest goes first.'),
        (extract(year from submit.run_at) not between 1970 and 9000, 'invalid', 'run_at', 'It is out of range.',
            'Its year must be from 1970 to 9000.'),
        (lifetime <= 0 or lifetime > 315360000, 'invalid', 'expires_in', 'It is out of range.',
            'It must be positive and at most ten years.'),
        ((jsonb_typeof(submit.input) = 'object') is not true, 'invalid_input', 'input', 'It must be a JSON object.',
            'Give an empty one where the kind needs no input.'),
        (octet_length(submit.input::text) > 262144, 'invalid_input', 'input', 'It is longer than 256 kB of JSON.',
            'Store large data as an artifact and pass its id.'),
        (jsonb_path_exists(submit.input, 'strict $.**{32} ? (@.type() == "object" || @.type() == "array")'),
            'invalid_input', 'input', 'It is nested more than 32 levels deep.', 'Make it flatter.'),
        (jsonb_path_exists(submit.input, 'strict $.** ? (@.type() == "number" && (@ > 1.7e308 || @ < -1.7e308))'),
            'invalid_input', 'input', 'A number in it is too large.', 'Numbers go up to 1.7e308.')
    ) as w(is_wrong, code, field, message, hint)
    where w.is_wrong limit 1;
    if wrong.code is not null then
        perform millpond.refuse(wrong.code, wrong.field, wrong.message, wrong.hint);
    end if;

    select a.* into answer
    from millpond.admit(jsonb_build_object(
        'job_id', millpond.uuid7(), 'tenant', submit.tenant, 'account', submit.account, 'kind', declared.kind,
        'lifecycle', declared.lifecycle, 'queue', declared.queue, 'is_fair', declared.is_fair,
        'initial_state', declared.initial_state, 'entry_state', declared.entry_state,
        'price', declared.declaration -> 'price', 'input', submit.input, 'scope', submit.account,
        'key', submit.idempotency_key, 'priority', coalesce(submit.priority, (declared.declaration ->> 'priority')::integer),
        'run_at', submit.run_at, 'lifetime', lifetime
    )) a;

    case answer.verdict
        when 'accepted', 'replayed' then
            return query select answer.job_id, millpond.typeid('job', answer.job_id), answer.state, answer.price,
                answer.available, answer.created_at, answer.expires_at, answer.verdict = 'replayed';
        when 'away' then
            perform millpond.refuse(
                'invalid', 'tenant', 'The jobs of this tenant are in another database.', 'Submit them through the API.'
            );
        when 'conflict' then
            perform millpond.refuse(
                'idempotency_conflict', 'idempotency_key', 'The idempotency key was used before with another request.',
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
-- Takes one job in, checked and priced, as a part of the transaction it is called in. What it cannot accept it tells,
-- and has then written nothing: an error would cost the caller all he has done so far.
-- Verdicts: 'accepted'; 'replayed' (the key's first answer); 'conflict' (the key was used with another request);
-- 'short' (of credits); 'capped' (too many active jobs); 'taken' (the id); 'away' (its tenant lives in another database).
create or replace function millpond.admit(item jsonb)
returns table (
    verdict text, job_id uuid, state text, price integer, available bigint, active integer, created_at timestamptz,
    expires_at timestamptz
)
language plpgsql as $$
#variable_conflict use_column
declare
    job record;
    born record;
    begins timestamptz;
    wallet record;
begin
    select i.* into job from jsonb_to_record(item) as i(
        job_id uuid, tenant text, account text, kind text, lifecycle text, queue text, is_fair boolean, initial_state text,
        entry_state text, price integer, input jsonb, scope text, key text, request jsonb, priority smallint,
        run_at timestamptz, lifetime double precision, retry_of uuid, hooks jsonb
    );
    if exists (select from millpond.homes h where h.tenant = job.tenant) then
        return query select 'away', job.job_id, null::text, null::integer, null::bigint, null::integer, null::timestamptz,
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
                array[make_interval(secs => job.lifetime)], array[job.retry_of], array[1], array[(job.price > 0)::integer],
                array[job.price::bigint], array[job.tenant], array[job.account], array[job.price::bigint], array[1],
                array[(job.price > 0)::integer], job.hooks
            ) s;
            begins := greatest(job.run_at, born.at);
            return query select 'accepted', job.job_id,
                case when begins > born.at then job.initial_state else job.entry_state end,
                job.price, case when job.price > 0 then born.left_ end, null::integer, born.at,
                begins + make_interval(secs => job.lifetime);
            return;
        exception
            when sqlstate 'PS003' then
                null;  -- what it had written is undone
            when unique_violation then
                return query select 'taken', job.job_id, null::text, null::integer, null::bigint, null::integer,
                    null::timestamptz, null::timestamptz;
                return;
        end;

        return query
        select case when a.is_same then 'replayed' else 'conflict' end, a.job_id, a.state, a.price, a.available,
            null::integer, a.created_at, a.expires_at
        from millpond.answers(
            array[job.tenant], array[job.scope], array[job.key], array[job.kind], array[job.input], array[job.request]
        ) a;
        if found then
            return;
        end if;
        select w.available, w.active, w.active_max into wallet from millpond.wallet(job.tenant, job.account) w;
        if job.price > coalesce(wallet.available, 0) then
            return query select 'short', job.job_id, null::text, job.price, coalesce(wallet.available, 0), null::integer,
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
    raise exception 'the account or the key changes all the time' using errcode = 'serialization_failure';
end $$;

-- function: refuse
-- Ends a request with the SQLSTATE of what is wrong with it.
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
-- Whether a tenant or account may be called so.
create or replace function millpond.is_name(given text) returns boolean
language sql immutable parallel safe as $$
    select given collate "C" ~ '^[A-Za-z0-9_.:@+/-]{1,128}$'
$$;

-- function: typeid
-- An id as it is told outside: a TypeID, five bits to a letter, the first of which has three. Written out, for every line
-- of the audit has one: a loop takes seven times as long.
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
