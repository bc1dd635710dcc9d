-- Heartbeats of a boot that were refused: how many, and why the last one with the boot's token was.
ALTER TABLE contact ADD COLUMN refused_boot BIGINT NOT NULL DEFAULT 0;
ALTER TABLE contact ADD COLUMN refused_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE contact ADD COLUMN refused_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE contact ADD COLUMN refused_reason {{text}} NOT NULL DEFAULT '';
ALTER TABLE contact ADD COLUMN unproven_count BIGINT NOT NULL DEFAULT 0;
