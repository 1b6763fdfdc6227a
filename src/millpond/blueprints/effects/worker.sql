-- Worker: what the contract's workers have put into storage. Home: tenant.

-- name: output :maybe
-- The file at a path, if it was told of before.
select a.id from millpond.artifacts a where a.path = $2 and a.tenant = $1 and a.deleted_at is null;
