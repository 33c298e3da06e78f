-- A paused job stands still: its deadlines move by that time when it is resumed.
ALTER TABLE jobs ADD COLUMN paused_at timestamptz;
UPDATE jobs SET paused_at = now() WHERE state = 'paused';

ALTER TABLE rounds
    ADD COLUMN evaluate_by timestamptz,                 -- evaluations of a closed round are waited for until then
    ADD COLUMN accepted jsonb NOT NULL DEFAULT '[]';    -- ids of the training tasks whose updates count
UPDATE rounds SET evaluate_by = now() + interval '7 days' WHERE state = 'closed' AND NOT evaluated;
UPDATE rounds r SET accepted = coalesce((SELECT jsonb_agg(t.id ORDER BY t.id) FROM tasks t WHERE t.job_id = r.job_id AND
    t.round = r.number AND t.kind = 'train' AND t.state = 'done'), '[]') WHERE state IN ('aggregating', 'closed');
CREATE INDEX rounds_evaluate_by ON rounds (evaluate_by) WHERE state = 'closed' AND NOT evaluated;
