-- Witnesses that an operator declared lost or wrong, each with what it remembered: none of that holds the database again.
CREATE TABLE lost_witness (
    num         {{serial}},
    witness     {{text}} NOT NULL,
    incarnation {{text}} NOT NULL,
    counter     BIGINT NOT NULL,
    user_name   {{text}} NOT NULL,
    declared_at BIGINT NOT NULL
);
