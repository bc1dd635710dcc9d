-- The guests with our mark that a host told in its newest list and that are not off there.
CREATE TABLE host_guest (
    host_id   {{text}} NOT NULL REFERENCES host (id) ON DELETE CASCADE,
    server_id {{text}} NOT NULL,
    boot_id   {{text}} NOT NULL,
    epoch     BIGINT NOT NULL,
    power     {{text}} NOT NULL,
    seen_at   BIGINT NOT NULL,
    PRIMARY KEY (host_id, server_id)
);
CREATE INDEX host_guest_server ON host_guest (server_id);

-- A host that was removed while something of it was open stays as a tombstone that no list shows.
ALTER TABLE host ADD COLUMN lost BOOLEAN NOT NULL DEFAULT FALSE;
