-- When a part of a repair was stored, so that the oldest repairs of a project can be dropped first. Parts of before count as the oldest.
ALTER TABLE repair_part ADD COLUMN saved_at BIGINT NOT NULL DEFAULT 0;
