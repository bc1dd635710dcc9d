-- What netboot saw of a machine last: its DHCP requests and the boot files that it fetched.
ALTER TABLE contact ADD COLUMN dhcp_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE contact ADD COLUMN dhcp_word {{text}} NOT NULL DEFAULT '';
ALTER TABLE contact ADD COLUMN boot_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE contact ADD COLUMN boot_word {{text}} NOT NULL DEFAULT '';
