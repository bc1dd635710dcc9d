-- What was read of a node while the database is held. A held database has at most one reading of each node.
CREATE TABLE held_reading (
    node_id {{text}} NOT NULL PRIMARY KEY REFERENCES node (id) ON DELETE CASCADE,
    read_at BIGINT NOT NULL,
    facts   {{text}} NOT NULL
);

-- What an operator chose for an open job, or for the power of a node, until the held database is released.
CREATE TABLE held_choice (
    kind      {{text}} NOT NULL,
    id        {{text}} NOT NULL,
    choice    {{text}} NOT NULL,
    user_name {{text}} NOT NULL,
    made_at   BIGINT NOT NULL,
    PRIMARY KEY (kind, id)
);
