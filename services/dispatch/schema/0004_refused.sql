-- Updates that the aggregation left out of a round: [{task, reason}]. They are not among `accepted`.
ALTER TABLE rounds ADD COLUMN refused jsonb NOT NULL DEFAULT '[]';
