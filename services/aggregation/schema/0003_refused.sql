-- Updates that cannot be used are left out and the average begins again, as a new plan: the number of the updates that
-- were left out before it. A part belongs to its plan; what is still made of an earlier one counts no more.
ALTER TABLE aggregations
    ADD COLUMN quorum  integer NOT NULL DEFAULT 2147483647,  -- updates needed; more than there are: all of them
    ADD COLUMN refused jsonb NOT NULL DEFAULT '[]';          -- [{facility, task, version, reason}]
ALTER TABLE parts ADD COLUMN plan integer NOT NULL DEFAULT 0;
