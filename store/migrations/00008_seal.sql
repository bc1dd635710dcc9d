-- The keys that secrets are sealed with, by id; the keys themselves are nowhere in the database. One seals. While a
-- key is changed there is a second one: next, until all processes know it, then old, until nothing is sealed with it.
-- Retired ones stay known by their ids, so that none is taken for a new one.

CREATE TABLE seal_key (
    id    {{text}} NOT NULL PRIMARY KEY,
    state {{text}} NOT NULL CHECK (state IN ('next', 'current', 'old', 'retired')),
    since BIGINT NOT NULL
);
CREATE UNIQUE INDEX seal_key_state ON seal_key (state) WHERE state <> 'retired';

-- The keys that each process knows. A process counts its beats; who sees a count stand still takes it for dead.
CREATE TABLE seal_holder (
    id    {{text}} NOT NULL PRIMARY KEY,
    host  {{text}} NOT NULL,
    known {{text}} NOT NULL, -- ids, between spaces
    beats BIGINT NOT NULL
);
