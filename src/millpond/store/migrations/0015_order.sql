-- Why: ids that the database makes within one microsecond sort in the order in which they were made.
-- Locks: none; the sequence is new.
-- breaking: no

-- It only orders ids with the same clock value, so sessions may cache numbers, and it may start over.
create sequence millpond.id_order maxvalue 4194303 cache 1024 cycle;
comment on sequence millpond.id_order is 'database: both. The order of ids made within the same microsecond; see millpond.uuid7.';
