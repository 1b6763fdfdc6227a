-- Why: the tables of the guard product: the ordered rules of each tenant, and their version.
-- Locks: none that matter; the tables are new.
-- breaking: no

create table millpond.guard_sets (
    tenant        text collate "C" primary key,
    version       bigint not null default 1,
    last_position integer not null default 0,
    changed_at    timestamptz not null
);
comment on table millpond.guard_sets is 'database: tenant. One row for all rules of a tenant. Every change of a rule updates this row first.';
comment on column millpond.guard_sets.version is 'Increases with every change. Rules that were compiled for a lower version are out of date.';

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
comment on table millpond.guard_rules is 'database: tenant. The rules that messages are checked against: what to look for, in which direction, and what to do about it.';
comment on column millpond.guard_rules.position is 'The order of rules and verdicts in lists; the lowest comes first.';

select millpond.wall('guard_sets'), millpond.wall('guard_rules');
