-- Boot services that speak to the centre instead of to the database: of their tokens only a digest is kept.

CREATE TABLE site (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    name       {{text}} NOT NULL,
    digest     {{text}} NOT NULL,
    body       {{text}} NOT NULL
);
CREATE UNIQUE INDEX site_name ON site (name);
CREATE UNIQUE INDEX site_digest ON site (digest);

-- What a site serves of its group.
CREATE INDEX node_boot_group ON node (conductor_group, num) WHERE boot_path <> '';
