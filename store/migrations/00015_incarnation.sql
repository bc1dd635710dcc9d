-- The one row that tells this history of the database from every other one. The program makes the id when it first opens the
-- database. The counter rises at each start, at each backup and while programs write, so a copy that is older has a lower one.
-- A database is held from held_at on: nothing acts on it until an operator has chosen what its jobs are still good for.
CREATE TABLE incarnation (
    num         BIGINT NOT NULL PRIMARY KEY CHECK (num = 1),
    id          {{text}} NOT NULL,
    counter     BIGINT NOT NULL,
    held_at     BIGINT,
    held_reason {{text}} NOT NULL DEFAULT '',
    held_detail {{text}} NOT NULL DEFAULT ''
);

-- The incarnations that this database had before, each with the last counter that is known of it: what remembers one of them is not ahead.
CREATE TABLE former_incarnation (
    id       {{text}} NOT NULL PRIMARY KEY,
    counter  BIGINT NOT NULL,
    ended_at BIGINT NOT NULL
);
