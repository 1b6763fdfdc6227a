-- Vault: which key this installation encrypts secrets with, by its fingerprint. Home: central.

-- name: make_known :exec
-- The fingerprint of the first who came stays, until somebody who has that key too brings a newer one.
insert into millpond.secrets (name, secret) values ('vault', $1)
on conflict (name) do update set secret = excluded.secret where secrets.secret = any($2::bytea[]);

-- name: known :one
select secret as fingerprint from millpond.secrets where name = 'vault';
