-- What the outer optimizer of a round leaves for the next one: a version in the store.
ALTER TABLE aggregations ADD COLUMN momentum text;
