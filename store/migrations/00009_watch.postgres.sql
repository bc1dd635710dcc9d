-- Programs that know nothing of the number give one all the same.
CREATE SEQUENCE event_num AS BIGINT CACHE 1;
SELECT setval('event_num', GREATEST((SELECT COALESCE(MAX(num), 0) FROM event), 1), (SELECT COUNT(*) FROM event) > 0);
ALTER TABLE event ALTER COLUMN num SET DEFAULT nextval('event_num');
