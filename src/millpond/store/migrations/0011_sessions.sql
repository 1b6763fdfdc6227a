-- Why: operators sign in to the dashboard with a key; new scopes allow only reading, or everything but managing keys.
-- Locks: keys for a moment, while its few rows are checked again.
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
comment on table millpond.sessions is 'database: central. Sign-ins to the dashboard. Only the SHA-256 of a cookie is stored.';
comment on column millpond.sessions.key_id is 'The key used to sign in. The session may do what the key may do at present, and nothing once the key is no longer valid.';
comment on column millpond.sessions.address is 'The address from which the user signed in.';
comment on column millpond.sessions.last_seen_at is 'Updated at most once a minute.';
comment on column millpond.sessions.expires_at is 'When the session ends, even if it is in use.';
