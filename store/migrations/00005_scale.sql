-- Whose power is to be read when, apart from the nodes' wide rows: a claim of many writes narrow rows only.
CREATE TABLE power_turn (
    node_id    {{text}} NOT NULL PRIMARY KEY REFERENCES node (id) ON DELETE CASCADE,
    group_name {{text}} NOT NULL,
    due        BIGINT NOT NULL
);
CREATE INDEX power_turn_due ON power_turn (group_name, due);
INSERT INTO power_turn (node_id, group_name, due) SELECT id, conductor_group, 0 FROM node;
-- It made every reading of a node's power write an index that nobody reads.
DROP INDEX contact_power_read_at;
