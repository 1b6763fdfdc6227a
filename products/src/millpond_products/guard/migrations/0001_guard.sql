-- Why: what the guard product has of its own: the rules of each tenant, in their order, and the version they are at.
-- Locks: none that matter; the tables are new.
-- breaking: no

create table millpond.guard_sets (
    tenant        text collate "C" primary key,
    version       bigint not null default 1,
    last_position integer not null default 0,
    changed_at    timestamptz not null
);
comment on table millpond.guard_sets is 'database: tenant. One row for the rules of a tenant. Whoever changes one of them changes this row first.';
comment on column millpond.guard_sets.version is 'Goes up with every change: what was compiled for an older one is no longer good.';

create table millpond.guard_rules (
    id         uuid primary key,
    tenant     text collate "C" not null,
    position   integer not null,
    name       text not null,
    direction  text collate "C" not null,
    action     text collate "C" not null,
    mode       text collate "C" not null,
    matcher    jsonb not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    check (direction in ('inbound', 'outbound', 'both') and action in ('block', 'redact', 'flag')),
    check (mode in ('enforce', 'monitor'))
);
create index guard_rules_tenant on millpond.guard_rules (tenant, position);
comment on table millpond.guard_rules is 'database: tenant. What a message is held against: what to look for, in which direction, and what to do about it.';
comment on column millpond.guard_rules.position is 'The order in which rules are shown and verdicts told; the smallest comes first.';

select millpond.wall('guard_sets'), millpond.wall('guard_rules');
