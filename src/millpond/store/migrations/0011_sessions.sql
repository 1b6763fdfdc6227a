-- Why: operators sign in to the dashboard with a key; some of them only look, and some act but hand out no keys.
-- Locks: keys for a moment, while the few rows there are checked once more.
-- breaking: no

alter table millpond.keys drop constraint keys_check, add constraint keys_check check (
    scope in ('client', 'worker', 'viewer', 'operator', 'admin') and rate_limit > 0
    and (scope <> 'client' or account is not null) and (account is null or tenant is not null)
);

create table millpond.sessions (
    digest       bytea primary key,
    key_id       uuid not null,
    address      text not null,
    created_at   timestamptz not null,
    last_seen_at timestamptz not null,
    expires_at   timestamptz not null
) with (fillfactor = 70);
create index sessions_end on millpond.sessions (expires_at);
comment on table millpond.sessions is 'database: central. Who has signed in to the dashboard. Of a cookie its SHA-256 alone is kept.';
comment on column millpond.sessions.key_id is 'The key that was shown: the session may what that key may now, and nothing when it is not good any more.';
comment on column millpond.sessions.address is 'From where the sign-in came.';
comment on column millpond.sessions.last_seen_at is 'Written at most once a minute.';
comment on column millpond.sessions.expires_at is 'When it ends, however busy it is.';
