-- A round that waits for its aggregation asks again when no answer has come by then: events can be lost, as when they
-- outlive the broker's retention.
ALTER TABLE rounds ADD COLUMN ask_again_at timestamptz;
UPDATE rounds SET ask_again_at = now() + interval '10 minutes' WHERE state = 'aggregating';
CREATE INDEX rounds_ask_again ON rounds (ask_again_at) WHERE state = 'aggregating';
