-- Who holds a lease, so that a process that was killed and started again takes its own work up at once.
ALTER TABLE tasks ADD COLUMN lease_holder text NOT NULL DEFAULT '';
