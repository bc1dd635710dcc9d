-- What is kept of repairs of machines, sealed: the plan, and what undoes it, page by page.
CREATE TABLE repair_part (
    node_id   {{text}} NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    repair_id {{text}} NOT NULL,
    name      {{text}} NOT NULL,
    body      {{text}} NOT NULL,
    PRIMARY KEY (node_id, repair_id, name)
);
