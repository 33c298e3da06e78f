-- A preparation that failed gets a second task, which cleans up after it.
DROP INDEX tasks_preparation;
CREATE UNIQUE INDEX tasks_preparation ON tasks (preparation_id) WHERE kind = 'prepare';
