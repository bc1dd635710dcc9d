-- Who looks for work passes by the jobs of groups in which nobody lives.
DROP INDEX job_claim;
CREATE INDEX job_claim ON job (group_name, due) WHERE owner = '' AND state IN ('ready', 'undoing');
