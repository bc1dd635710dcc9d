-- One text for both engines. {{serial}} is the key that counts rows in the order
-- of their insertion, {{text}} the text type that sorts by bytes. No column is NULL
-- where an empty value says the same, so both engines sort and compare alike.
-- Times are microseconds UTC, 0 = none.

CREATE TABLE setting (
    name  {{text}} NOT NULL PRIMARY KEY,
    value {{text}} NOT NULL
);

-- Filled at every start from the table of provision states in the program.
CREATE TABLE provision_state (
    name {{text}} NOT NULL PRIMARY KEY
);

CREATE TABLE node (
    num               {{serial}},
    id                {{text}} NOT NULL UNIQUE,
    version           BIGINT NOT NULL,
    name              {{text}} NOT NULL,
    driver            {{text}} NOT NULL,
    instance_uuid     {{text}} NOT NULL,
    chassis_uuid      {{text}} NOT NULL,
    resource_class    {{text}} NOT NULL,
    description       {{text}} NOT NULL,
    owner             {{text}} NOT NULL,
    lessee            {{text}} NOT NULL,
    shard             {{text}} NOT NULL,
    conductor_group   {{text}} NOT NULL,
    maintenance       BOOLEAN NOT NULL,
    fault             {{text}} NOT NULL,
    protected         BOOLEAN NOT NULL,
    retired           BOOLEAN NOT NULL,
    console_enabled   BOOLEAN NOT NULL,
    power_state       {{text}} NOT NULL,
    target_power      {{text}} NOT NULL,
    provision_state   {{text}} NOT NULL REFERENCES provision_state (name),
    target_provision  {{text}} NOT NULL,
    last_error        {{text}} NOT NULL,
    provisioned_at    BIGINT NOT NULL,
    inspection_start  BIGINT NOT NULL,
    inspection_end    BIGINT NOT NULL,
    boot_path         {{text}} NOT NULL,
    created_at        BIGINT NOT NULL,
    updated_at        BIGINT NOT NULL,
    body              {{text}} NOT NULL
);
CREATE UNIQUE INDEX node_name ON node (name) WHERE name <> '';
CREATE UNIQUE INDEX node_instance_uuid ON node (instance_uuid) WHERE instance_uuid <> '';
CREATE UNIQUE INDEX node_boot_path ON node (boot_path) WHERE boot_path <> '';
CREATE INDEX node_group ON node (conductor_group, provision_state);
CREATE INDEX node_provision_state ON node (provision_state);

-- The NICs of a node's boot plan, for the machine that asks.
CREATE TABLE boot_mac (
    mac     {{text}} NOT NULL,
    node_id {{text}} NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    PRIMARY KEY (mac, node_id)
);
CREATE INDEX boot_mac_node ON boot_mac (node_id);

CREATE TABLE port (
    num              {{serial}},
    id               {{text}} NOT NULL UNIQUE,
    node_id          {{text}} NOT NULL REFERENCES node (id) ON DELETE CASCADE,
    version          BIGINT NOT NULL,
    address          {{text}} NOT NULL,
    name             {{text}} NOT NULL,
    portgroup_id     {{text}} NOT NULL,
    physical_network {{text}} NOT NULL,
    pxe_enabled      BOOLEAN NOT NULL,
    is_smartnic      BOOLEAN NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    body             {{text}} NOT NULL
);
CREATE UNIQUE INDEX port_address ON port (address);
CREATE UNIQUE INDEX port_name ON port (name) WHERE name <> '';
CREATE INDEX port_node ON port (node_id);

-- What was heard of a node: no version, the last word counts.
CREATE TABLE contact (
    node_id              {{text}} NOT NULL PRIMARY KEY REFERENCES node (id) ON DELETE CASCADE,
    agent_url            {{text}} NOT NULL DEFAULT '',
    agent_version        {{text}} NOT NULL DEFAULT '',
    agent_ca             {{text}} NOT NULL DEFAULT '',
    agent_status         {{text}} NOT NULL DEFAULT '',
    agent_status_message {{text}} NOT NULL DEFAULT '',
    agent_boot           BIGINT NOT NULL DEFAULT 0,
    heartbeat_at         BIGINT NOT NULL DEFAULT 0,
    token_told           BIGINT NOT NULL DEFAULT 0,
    lookup_at            BIGINT NOT NULL DEFAULT 0,
    power_read           {{text}} NOT NULL DEFAULT '',
    power_read_at        BIGINT NOT NULL DEFAULT 0,
    power_failures       BIGINT NOT NULL DEFAULT 0,
    power_error          {{text}} NOT NULL DEFAULT ''
);
CREATE INDEX contact_power_read_at ON contact (power_read_at);

CREATE TABLE job (
    id                 {{text}} NOT NULL PRIMARY KEY,
    kind               {{text}} NOT NULL,
    version            BIGINT NOT NULL,
    class              {{text}} NOT NULL CHECK (class IN ('operation', 'command', 'ask')),
    subject_kind       {{text}} NOT NULL,
    subject_id         {{text}} NOT NULL,
    group_name         {{text}} NOT NULL,
    state              {{text}} NOT NULL CHECK (state IN ('ready', 'running', 'waiting', 'undoing', 'ended')),
    action             {{text}} NOT NULL,
    attempt            BIGINT NOT NULL,
    crashes            BIGINT NOT NULL,
    args               {{text}} NOT NULL,
    memo               {{text}} NOT NULL,
    secret             {{text}},
    result             {{text}} NOT NULL,
    problem            {{text}} NOT NULL,
    problem_kind       {{text}} NOT NULL,
    owner              {{text}} NOT NULL,
    fence              BIGINT NOT NULL,
    signals            BIGINT NOT NULL,
    seen               BIGINT NOT NULL,
    due                BIGINT NOT NULL,
    wait_for           {{text}} NOT NULL,
    deadline           BIGINT NOT NULL,
    operation_deadline BIGINT NOT NULL,
    expires            BIGINT NOT NULL, -- the earlier of both deadlines, 0 = none
    request_id         {{text}} NOT NULL,
    user_name          {{text}} NOT NULL,
    created_at         BIGINT NOT NULL,
    updated_at         BIGINT NOT NULL,
    action_started_at  BIGINT NOT NULL,
    ended_at           BIGINT NOT NULL,
    CONSTRAINT job_secret_goes CHECK (secret IS NULL OR state IN ('ready', 'running', 'waiting')),
    CONSTRAINT job_owner_works CHECK (owner = '' OR state IN ('running', 'undoing'))
);
-- A working job is its subject's lock.
CREATE UNIQUE INDEX job_lock ON job (subject_kind, subject_id)
    WHERE class IN ('operation', 'command') AND state IN ('ready', 'running', 'undoing');
-- One unended operation a subject.
CREATE UNIQUE INDEX job_operation ON job (subject_kind, subject_id)
    WHERE class = 'operation' AND state <> 'ended';
CREATE INDEX job_unended ON job (subject_kind, subject_id) WHERE state <> 'ended';
CREATE INDEX job_history ON job (subject_kind, subject_id) WHERE state = 'ended';
CREATE INDEX job_claim ON job (due) WHERE owner = '' AND state IN ('ready', 'undoing');
CREATE INDEX job_owner ON job (owner) WHERE owner <> '';
CREATE INDEX job_expires ON job (group_name, expires) WHERE state = 'waiting' AND expires > 0;
CREATE INDEX job_ended ON job (ended_at) WHERE state = 'ended';

CREATE TABLE event (
    subject_kind {{text}} NOT NULL,
    subject_id   {{text}} NOT NULL,
    seq          BIGINT NOT NULL,
    at           BIGINT NOT NULL,
    type         {{text}} NOT NULL,
    text         {{text}} NOT NULL,
    severity     {{text}} NOT NULL,
    job_id       {{text}} NOT NULL,
    action       {{text}} NOT NULL,
    duration     BIGINT NOT NULL, -- microseconds
    request_id   {{text}} NOT NULL,
    user_name    {{text}} NOT NULL,
    PRIMARY KEY (subject_kind, subject_id, seq)
);
CREATE INDEX event_at ON event (at);
CREATE TABLE event_counter (
    subject_kind {{text}} NOT NULL,
    subject_id   {{text}} NOT NULL,
    last         BIGINT NOT NULL,
    PRIMARY KEY (subject_kind, subject_id)
);

CREATE TABLE conductor (
    id          {{text}} NOT NULL PRIMARY KEY,
    incarnation {{text}} NOT NULL,
    owner       {{text}} NOT NULL UNIQUE,
    hostname    {{text}} NOT NULL,
    counter     BIGINT NOT NULL,
    description {{text}} NOT NULL,
    started_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);
CREATE TABLE conductor_member (
    conductor_id {{text}} NOT NULL REFERENCES conductor (id) ON DELETE CASCADE,
    group_name   {{text}} NOT NULL,
    PRIMARY KEY (conductor_id, group_name)
);
CREATE TABLE group_clock (
    name  {{text}} NOT NULL PRIMARY KEY,
    ticks BIGINT NOT NULL
);
