-- Conductors look every few seconds for the nodes whose console they read, in the order of lists. Builds between the releases 0.1.0 and 0.2.0 made
-- this index in a second step 19, or not at all.
CREATE INDEX IF NOT EXISTS node_console ON node (num) WHERE console_enabled;
