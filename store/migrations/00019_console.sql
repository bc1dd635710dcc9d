-- Conductors look every few seconds for the nodes whose console they read, in the order of lists.
CREATE INDEX node_console ON node (num) WHERE console_enabled;
