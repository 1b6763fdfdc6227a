-- Why: ids that the database makes within one microsecond have an order too: that in which they were made.
-- Locks: none; the sequence is new.
-- breaking: no

-- It only tells apart what the clock does not, so sessions may take it in stock, and it may begin again.
create sequence millpond.id_order maxvalue 4194303 cache 1024 cycle;
comment on sequence millpond.id_order is 'database: both. The order of ids of one microsecond; see millpond.uuid7.';
