-- What netboot saw of a machine last: its DHCP requests and the boot files that it fetched.
ALTER TABLE contact ADD COLUMN dhcp_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE contact ADD COLUMN dhcp_word {{text}} NOT NULL DEFAULT '';
ALTER TABLE contact ADD COLUMN boot_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE contact ADD COLUMN boot_word {{text}} NOT NULL DEFAULT '';

-- One order of the events of all subjects, for those who follow them.
ALTER TABLE event ADD COLUMN num BIGINT NOT NULL DEFAULT 0;
UPDATE event SET num = o.n FROM (SELECT subject_kind AS k, subject_id AS i, seq AS s,
    ROW_NUMBER() OVER (ORDER BY at, subject_kind, subject_id, seq) AS n FROM event) AS o
    WHERE event.subject_kind = o.k AND event.subject_id = o.i AND event.seq = o.s;
CREATE INDEX event_num_order ON event (num);
CREATE INDEX contact_failing ON contact (node_id) WHERE power_failures > 0;
