-- Vault: which key this installation encrypts secrets with, by its fingerprint. Database: central.

-- name: make_known :exec
-- Stores the fingerprint of the first key. Only a process that has that key too replaces it by that of a newer one.
insert into millpond.secrets (name, secret) values ('vault', $1)
on conflict (name) do update set secret = excluded.secret where secrets.secret = any($2::bytea[]);

-- name: known :maybe
select secret as fingerprint from millpond.secrets where name = 'vault';
