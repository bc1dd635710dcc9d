-- Servers and what they need. Columns that are searched, sorted by or ruled by a constraint stand beside the body,
-- which holds the whole rest of the record. What only a constraint needs (held_location, standing, rescue_*) is made of the
-- record at each write.

CREATE TABLE flavor (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ref        {{text}} NOT NULL,
    name       {{text}} NOT NULL,
    vcpus      BIGINT NOT NULL,
    ram        BIGINT NOT NULL,
    disk       BIGINT NOT NULL,
    public     BOOLEAN NOT NULL,
    disabled   BOOLEAN NOT NULL,
    body       {{text}} NOT NULL
);
CREATE UNIQUE INDEX flavor_ref ON flavor (ref);
CREATE UNIQUE INDEX flavor_name ON flavor (name) WHERE name <> '';

CREATE TABLE image (
    num              {{serial}},
    id               {{text}} NOT NULL UNIQUE,
    version          BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    name             {{text}} NOT NULL,
    owner            {{text}} NOT NULL,
    visibility       {{text}} NOT NULL,
    status           {{text}} NOT NULL,
    container_format {{text}} NOT NULL,
    disk_format      {{text}} NOT NULL,
    size             BIGINT NOT NULL,
    digest           {{text}} NOT NULL,
    sha512           {{text}} NOT NULL,
    tags             {{text}} NOT NULL, -- each between line breaks
    body             {{text}} NOT NULL
);
CREATE INDEX image_owner ON image (owner, num);
CREATE INDEX image_name ON image (name);
CREATE INDEX image_digest ON image (digest) WHERE digest <> '';

CREATE TABLE keypair (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    user_name  {{text}} NOT NULL,
    name       {{text}} NOT NULL,
    type       {{text}} NOT NULL,
    body       {{text}} NOT NULL
);
CREATE UNIQUE INDEX keypair_name ON keypair (name, user_name);
CREATE INDEX keypair_user ON keypair (user_name, num);

CREATE TABLE network (
    num         {{serial}},
    id          {{text}} NOT NULL UNIQUE,
    version     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    name        {{text}} NOT NULL,
    project     {{text}} NOT NULL,
    bridge      {{text}} NOT NULL,
    cidr        {{text}} NOT NULL,
    shared      BOOLEAN NOT NULL,
    body        {{text}} NOT NULL,
    -- All addresses from full_from up to full_to, in the block, are taken or the gateway's: the search for a free one begins behind them.
    full_block   {{text}} NOT NULL DEFAULT '',
    full_from    BIGINT NOT NULL DEFAULT 0,
    full_to      BIGINT NOT NULL DEFAULT 0,
    full_gateway BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX network_name ON network (name) WHERE name <> '';
CREATE UNIQUE INDEX network_bridge ON network (bridge, cidr) WHERE bridge <> '';
CREATE INDEX network_project ON network (project, num);

-- An address as two numbers, so that neighbours are found by counting: block is its upper half, host its lower one.
CREATE TABLE address (
    network_id {{text}} NOT NULL REFERENCES network (id),
    block      {{text}} NOT NULL,
    host       BIGINT NOT NULL,
    address    {{text}} NOT NULL,
    mac        {{text}} NOT NULL,
    server_id  {{text}} NOT NULL,
    PRIMARY KEY (network_id, block, host)
);
CREATE INDEX address_server ON address (server_id);

CREATE TABLE volume (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    name       {{text}} NOT NULL,
    project    {{text}} NOT NULL,
    user_name  {{text}} NOT NULL,
    status     {{text}} NOT NULL,
    size       BIGINT NOT NULL,
    bootable   BOOLEAN NOT NULL,
    server_id  {{text}} NOT NULL,
    iqn        {{text}} NOT NULL,
    lun        BIGINT NOT NULL,
    body       {{text}} NOT NULL
);
-- One disk, one row: two would let two servers write to it.
CREATE UNIQUE INDEX volume_iqn ON volume (iqn, lun) WHERE iqn <> '';
CREATE INDEX volume_project ON volume (project, num);
CREATE INDEX volume_server ON volume (server_id) WHERE server_id <> '';

CREATE TABLE rescue_image (
    num              {{serial}},
    id               {{text}} NOT NULL UNIQUE,
    version          BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    name             {{text}} NOT NULL,
    deleted          BOOLEAN NOT NULL,
    held_location    {{text}} NOT NULL, -- empty once it is deleted
    standing         {{text}} NOT NULL CHECK (standing IN ('', 'default')), -- of the one default that is there
    body             {{text}} NOT NULL
);
CREATE UNIQUE INDEX rescue_image_held_location ON rescue_image (held_location) WHERE held_location <> '';
CREATE UNIQUE INDEX rescue_image_standing ON rescue_image (standing) WHERE standing <> '';

CREATE TABLE server (
    num            {{serial}},
    id             {{text}} NOT NULL UNIQUE,
    version        BIGINT NOT NULL,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL,
    name           {{text}} NOT NULL,
    project        {{text}} NOT NULL,
    user_name      {{text}} NOT NULL,
    zone           {{text}} NOT NULL,
    host_id        {{text}} NOT NULL,
    guest_name     {{text}} NOT NULL,
    state          {{text}} NOT NULL,
    task           {{text}} NOT NULL,
    power          {{text}} NOT NULL,
    locked         BOOLEAN NOT NULL,
    flavor_id      {{text}} NOT NULL,
    image_id       {{text}} NOT NULL,
    key_name       {{text}} NOT NULL,
    launched_at    BIGINT NOT NULL,
    terminated_at  BIGINT NOT NULL,
    rescue_state   {{text}} NOT NULL, -- empty without an open session, as are the next two
    rescue_image   BIGINT NOT NULL,
    rescue_expires BIGINT NOT NULL,
    body           {{text}} NOT NULL
);
CREATE UNIQUE INDEX server_host_id ON server (host_id, guest_name) WHERE host_id <> '' AND guest_name <> '' AND state <> 'deleted';
CREATE INDEX server_host ON server (host_id, num, state) WHERE host_id <> '';
CREATE INDEX server_project ON server (project, num);
CREATE INDEX server_name ON server (name);
CREATE INDEX server_deleted ON server (updated_at) WHERE state = 'deleted';
CREATE INDEX server_busy ON server (task) WHERE task <> '';
CREATE INDEX server_task ON server (task) WHERE task <> '';
CREATE INDEX server_image ON server (image_id) WHERE image_id <> '';
CREATE INDEX server_flavor ON server (flavor_id);
CREATE INDEX server_rescue ON server (rescue_image) WHERE rescue_image > 0;
CREATE INDEX server_in_rescue ON server (num) WHERE rescue_state <> '';
CREATE INDEX server_rescue_expires ON server (rescue_expires) WHERE rescue_expires > 0;

CREATE TABLE cluster (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    name       {{text}} NOT NULL,
    body       {{text}} NOT NULL
);
CREATE UNIQUE INDEX cluster_name ON cluster (name);

CREATE TABLE host (
    num         {{serial}},
    id          {{text}} NOT NULL UNIQUE,
    version     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    name        {{text}} NOT NULL,
    kind        {{text}} NOT NULL,
    cluster_id  {{text}} NOT NULL,
    zone        {{text}} NOT NULL,
    boot_id     {{text}} NOT NULL,
    serial      {{text}} NOT NULL,
    revoked     BOOLEAN NOT NULL,
    disabled    BOOLEAN NOT NULL,
    forced_down BOOLEAN NOT NULL,
    used_vcpus  BIGINT NOT NULL,
    used_ram    BIGINT NOT NULL,
    used_disk   BIGINT NOT NULL,
    body        {{text}} NOT NULL
);
CREATE UNIQUE INDEX host_cluster_id ON host (cluster_id, name) WHERE cluster_id <> '';
CREATE INDEX host_name ON host (name);

-- What a host renews: no version, the newest word counts.
CREATE TABLE host_lease (
    host_id    {{text}} NOT NULL PRIMARY KEY REFERENCES host (id) ON DELETE CASCADE,
    boot_id    {{text}} NOT NULL,
    renewed_at BIGINT NOT NULL,
    renewals   BIGINT NOT NULL
);

CREATE TABLE join_token (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    digest     {{text}} NOT NULL,
    used_by    {{text}} NOT NULL,
    expires_at BIGINT NOT NULL,
    body       {{text}} NOT NULL
);
CREATE UNIQUE INDEX join_token_digest ON join_token (digest);

-- What hosts are told to do. An action that runs twice finds the order of its first run.
CREATE TABLE host_order (
    num         {{serial}},
    id          {{text}} NOT NULL UNIQUE,
    host_id     {{text}} NOT NULL,
    boot_id     {{text}} NOT NULL,
    server_id   {{text}} NOT NULL,
    epoch       BIGINT NOT NULL,
    verb        {{text}} NOT NULL,
    args        {{text}} NOT NULL,
    secret      {{text}},
    within_s    BIGINT NOT NULL,
    job_id      {{text}} NOT NULL,
    action      {{text}} NOT NULL,
    result      {{text}} NOT NULL,
    progress    {{text}} NOT NULL,
    created_at  BIGINT NOT NULL,
    sent_at     BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    CONSTRAINT host_order_secret_goes CHECK (secret IS NULL OR finished_at = 0),
    CONSTRAINT host_order_result CHECK ((result = '') = (finished_at = 0))
);
CREATE UNIQUE INDEX host_order_job_id ON host_order (job_id, action, epoch) WHERE job_id <> '';
CREATE INDEX host_order_open ON host_order (host_id, num) WHERE finished_at = 0;
CREATE INDEX host_order_unsent ON host_order (host_id) WHERE finished_at = 0 AND sent_at = 0;
CREATE INDEX host_order_server ON host_order (server_id, epoch) WHERE finished_at = 0;
CREATE INDEX host_order_finished ON host_order (finished_at) WHERE finished_at > 0;
