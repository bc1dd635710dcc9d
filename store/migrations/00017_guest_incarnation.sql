-- The incarnation of the database that gave the epoch in a guest's mark; empty: the mark names none.
ALTER TABLE host_guest ADD COLUMN incarnation {{text}} NOT NULL DEFAULT '';
