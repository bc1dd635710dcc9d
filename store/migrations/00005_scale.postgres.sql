-- expands: programs of before write and read the parts under the name that they know.

-- The timeline in parts of a week each, so that what is old goes as a whole. The table of before becomes the first part
-- without being copied. What fits no part lies in the one by default, so that nothing is ever refused. The time is in the key
-- because PostgreSQL wants it there; that a subject's numbers are unique is its counter's work.
LOCK TABLE event IN ACCESS EXCLUSIVE MODE;
ALTER TABLE event RENAME TO event_first;
ALTER TABLE event_first DROP CONSTRAINT event_pkey;
ALTER INDEX event_at RENAME TO event_first_at;
CREATE TABLE event (LIKE event_first INCLUDING DEFAULTS) PARTITION BY RANGE (at);
ALTER TABLE event ADD PRIMARY KEY (subject_kind, subject_id, seq, at);
CREATE INDEX event_at ON event (at);
CREATE TABLE event_default PARTITION OF event DEFAULT;
DO $$
DECLARE
    week  CONSTANT BIGINT := 604800000000;
    this  CONSTANT BIGINT := CAST(EXTRACT(EPOCH FROM now()) AS BIGINT) * 1000000 / week;
    first BIGINT := this - 1;
BEGIN
    IF EXISTS (SELECT 1 FROM event_first) THEN
        first := this + 1;
        -- Of a clock that was far ahead.
        WITH far AS (DELETE FROM event_first WHERE at >= first * week RETURNING *) INSERT INTO event SELECT * FROM far;
        EXECUTE format('ALTER TABLE event ATTACH PARTITION event_first FOR VALUES FROM (MINVALUE) TO (%s)', first * week);
    ELSE
        DROP TABLE event_first;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM event_default) THEN -- else the next prune makes them
        FOR w IN first .. this + 4 LOOP
            EXECUTE format('CREATE TABLE event_w%s PARTITION OF event FOR VALUES FROM (%s) TO (%s)', w, w * week, (w + 1) * week);
        END LOOP;
    END IF;
END $$;

-- Rows that are written again and again find room beside them, and are tidied before a fifth of a large table is dead.
ALTER TABLE contact SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE power_turn SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE event_counter SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE job SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE conductor SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE group_clock SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE host_lease SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
