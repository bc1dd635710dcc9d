-- Records beside nodes. What goes with its node does so by the tables' own rule.
-- An index that keeps a key unique is called after its table and first column:
-- the words of a refusal are found by that name.

ALTER TABLE node ADD COLUMN parent_node {{text}} NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN allocation_id {{text}} NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN instance_name {{text}} NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN disable_power_off BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE node ADD COLUMN health {{text}} NOT NULL DEFAULT '';
CREATE INDEX node_parent ON node (parent_node) WHERE parent_node <> '';
CREATE INDEX node_chassis ON node (chassis_uuid) WHERE chassis_uuid <> '';
CREATE INDEX node_shard ON node (shard);

ALTER TABLE port ADD COLUMN description {{text}} NOT NULL DEFAULT '';
ALTER TABLE port ADD COLUMN vendor {{text}} NOT NULL DEFAULT '';
ALTER TABLE port ADD COLUMN category {{text}} NOT NULL DEFAULT '';
CREATE INDEX port_portgroup ON port (portgroup_id) WHERE portgroup_id <> '';

CREATE INDEX conductor_member_group ON conductor_member (group_name);

-- Raised by every write, so that what was made of a row is known to be old.
ALTER TABLE contact ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;

CREATE TABLE chassis (
    num         {{serial}},
    id          {{text}} NOT NULL UNIQUE,
    version     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    description {{text}} NOT NULL,
    body        {{text}} NOT NULL
);

CREATE TABLE portgroup (
    num              {{serial}},
    id               {{text}} NOT NULL UNIQUE,
    version          BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    node_id          {{text}} NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    name             {{text}} NOT NULL,
    address          {{text}} NOT NULL,
    mode             {{text}} NOT NULL,
    standalone_ports BOOLEAN NOT NULL,
    physical_network {{text}} NOT NULL,
    category         {{text}} NOT NULL,
    dynamic_ports    BOOLEAN NOT NULL,
    body             {{text}} NOT NULL
);
CREATE UNIQUE INDEX portgroup_name ON portgroup (name) WHERE name <> '';
CREATE UNIQUE INDEX portgroup_address ON portgroup (address) WHERE address <> '';
CREATE INDEX portgroup_node ON portgroup (node_id);

CREATE TABLE connector (
    num          {{serial}},
    id           {{text}} NOT NULL UNIQUE,
    version      BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    node_id      {{text}} NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    type         {{text}} NOT NULL,
    connector_id {{text}} NOT NULL,
    body         {{text}} NOT NULL
);
CREATE UNIQUE INDEX connector_type ON connector (type, connector_id);
CREATE INDEX connector_node ON connector (node_id);

CREATE TABLE target (
    num         {{serial}},
    id          {{text}} NOT NULL UNIQUE,
    version     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    node_id     {{text}} NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    volume_type {{text}} NOT NULL,
    volume_id   {{text}} NOT NULL,
    boot_index  BIGINT NOT NULL,
    body        {{text}} NOT NULL
);
CREATE UNIQUE INDEX target_node_id ON target (node_id, boot_index);

-- An allocation without a node yet has none, so the tables' own rule cannot hold it.
CREATE TABLE allocation (
    num             {{serial}},
    id              {{text}} NOT NULL UNIQUE,
    version         BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    name            {{text}} NOT NULL,
    node_id         {{text}} NOT NULL,
    resource_class  {{text}} NOT NULL,
    state           {{text}} NOT NULL,
    last_error      {{text}} NOT NULL,
    owner           {{text}} NOT NULL,
    conductor_group {{text}} NOT NULL,
    body            {{text}} NOT NULL
);
CREATE UNIQUE INDEX allocation_name ON allocation (name) WHERE name <> '';
CREATE UNIQUE INDEX allocation_node_id ON allocation (node_id) WHERE node_id <> '';

CREATE TABLE deploy_template (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    name       {{text}} NOT NULL,
    body       {{text}} NOT NULL
);
CREATE UNIQUE INDEX deploy_template_name ON deploy_template (name);

CREATE TABLE runbook (
    num             {{serial}},
    id              {{text}} NOT NULL UNIQUE,
    version         BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    name            {{text}} NOT NULL,
    description     {{text}} NOT NULL,
    disable_ramdisk BOOLEAN NOT NULL,
    public          BOOLEAN NOT NULL,
    owner           {{text}} NOT NULL,
    body            {{text}} NOT NULL
);
CREATE UNIQUE INDEX runbook_name ON runbook (name);

CREATE TABLE inspection_rule (
    num         {{serial}},
    id          {{text}} NOT NULL UNIQUE,
    version     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    description {{text}} NOT NULL,
    priority    BIGINT NOT NULL,
    phase       {{text}} NOT NULL,
    scope       {{text}} NOT NULL,
    sensitive   BOOLEAN NOT NULL,
    body        {{text}} NOT NULL
);

-- What is kept of a node beside its record.
CREATE TABLE document (
    node_id    {{text}} NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    kind       {{text}} NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    body       {{text}} NOT NULL,
    PRIMARY KEY (node_id, kind)
);
