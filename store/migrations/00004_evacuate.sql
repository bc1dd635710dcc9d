-- Fences, plans and moves.

ALTER TABLE host ADD COLUMN node_id {{text}} NOT NULL DEFAULT '';
ALTER TABLE host ADD COLUMN host_group {{text}} NOT NULL DEFAULT '';
-- A node is one host.
CREATE UNIQUE INDEX host_node_id ON host (node_id) WHERE node_id <> '';
CREATE INDEX host_host_group ON host (host_group) WHERE host_group <> '';

-- The hardware watchdog that the newest renewal named as armed; empty: none.
ALTER TABLE host_lease ADD COLUMN watchdog {{text}} NOT NULL DEFAULT '';

CREATE TABLE host_group (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    name       {{text}} NOT NULL,
    body       {{text}} NOT NULL
);
CREATE UNIQUE INDEX host_group_name ON host_group (name);

CREATE TABLE receipt (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    host_id    {{text}} NOT NULL,
    boot_id    {{text}} NOT NULL,
    closed_at  BIGINT NOT NULL,
    body       {{text}} NOT NULL
);
-- One open receipt a host: who closes it and who moves a server by it meet at this row.
CREATE UNIQUE INDEX receipt_host_id ON receipt (host_id) WHERE closed_at = 0;
CREATE INDEX receipt_host ON receipt (host_id, num);
CREATE INDEX receipt_open ON receipt (num) WHERE closed_at = 0;

CREATE TABLE plan (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    host_id    {{text}} NOT NULL,
    state      {{text}} NOT NULL,
    body       {{text}} NOT NULL
);
-- A host is emptied by one plan at a time.
CREATE UNIQUE INDEX plan_host_id ON plan (host_id) WHERE state = 'running';
CREATE INDEX plan_host ON plan (host_id, num);

CREATE TABLE server_move (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    server_id  {{text}} NOT NULL,
    source_id  {{text}} NOT NULL,
    dest_id    {{text}} NOT NULL,
    receipt_id {{text}} NOT NULL,
    plan_id    {{text}} NOT NULL,
    kind       {{text}} NOT NULL,
    state      {{text}} NOT NULL,
    user_name  {{text}} NOT NULL,
    project    {{text}} NOT NULL,
    body       {{text}} NOT NULL
);
-- A server is moved by one move at a time.
CREATE UNIQUE INDEX server_move_server_id ON server_move (server_id) WHERE state IN ('accepted', 'pre-migrating', 'running');
CREATE INDEX server_move_server ON server_move (server_id, num);
CREATE INDEX server_move_source ON server_move (source_id, num);
CREATE INDEX server_move_dest ON server_move (dest_id, num) WHERE dest_id <> '';
CREATE INDEX server_move_plan ON server_move (plan_id, num) WHERE plan_id <> '';
CREATE INDEX server_move_open ON server_move (num) WHERE state IN ('accepted', 'pre-migrating', 'running');
CREATE INDEX server_move_uncleaned ON server_move (source_id) WHERE state = 'done';
