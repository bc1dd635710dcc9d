-- What is kept of a server beside its record.
CREATE TABLE server_document (
    server_id  {{text}} NOT NULL REFERENCES server (id) ON DELETE CASCADE,
    kind       {{text}} NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    body       {{text}} NOT NULL,
    PRIMARY KEY (server_id, kind)
);

-- What a helper guest found on the disks of a server, sealed, until the job of the order takes it.
ALTER TABLE host_order ADD COLUMN examination {{text}} NOT NULL DEFAULT '';
