-- Why a job is to be aborted that may be at work: its conductor reads it, stops the action and fails the job.
ALTER TABLE job ADD COLUMN abort_cause {{text}} NOT NULL DEFAULT '';
-- Set while a try is under way that is to be followed by the next one at once.
ALTER TABLE job ADD COLUMN retry_now BIGINT NOT NULL DEFAULT 0;
CREATE INDEX job_abort ON job (owner) WHERE abort_cause <> '' AND state <> 'ended';
