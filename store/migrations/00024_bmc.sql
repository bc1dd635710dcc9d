-- Which BMCs are silent: power_read_at is the time of the last reading that succeeded, power_failed_at that of the last one that failed.
ALTER TABLE contact ADD COLUMN power_failed_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE contact ADD COLUMN power_refused BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX contact_unread ON contact (node_id) WHERE power_error <> '';
