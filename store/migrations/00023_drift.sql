-- Whether somebody else than salvor changed the guest of a server: the list of hosts counts such servers.
ALTER TABLE server ADD COLUMN drifted BOOLEAN NOT NULL DEFAULT FALSE;
