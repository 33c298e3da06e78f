-- The aggregation service's tables. A round is aggregated once: (job, round) is the key.
--
-- A lease is (lease_until, lease_holder, fence): whoever takes it raises the fence, and every write that ends the work
-- names the fence it was given, so that a worker that was thought dead changes nothing. Workers renew what they hold.
--
-- `attempts` counts those that failed. Work that is taken while it is still `in_hand` is that of a process that died
-- (`after_death`): such `deaths` are counted apart, those in a row that came less than an hour after one another.

CREATE TABLE aggregations (
    id          bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    job         text NOT NULL,
    round       integer NOT NULL,
    model       text NOT NULL,
    base        text NOT NULL,
    strategy    jsonb NOT NULL,
    updates     jsonb NOT NULL,
    missing     jsonb NOT NULL DEFAULT '[]',          -- facilities without an update, where the strategy counts them
    quorum      integer NOT NULL DEFAULT 2147483647,  -- updates needed; more than there are: all of them
    -- Updates that cannot be used are left out and the average begins again, as a new plan: the number of those that
    -- were left out before it.
    refused     jsonb NOT NULL DEFAULT '[]',          -- [{facility, task, version, reason, fault}]
    -- The sums of what was measured, once all parts were: [number]. They are lost when an update is left out, as each
    -- was measured beside the others.
    statistics  jsonb,
    contributions jsonb NOT NULL DEFAULT '[]',  -- [{facility, version, weight, samples, tokens, norm, counted, cosine}]
    -- planning: headers are read and parts cut; measuring: parts are looked at for how much each update is to count,
    -- which is decided when none is left; averaging: parts are made; publishing: the version is posted
    state       text NOT NULL DEFAULT 'planning'
                CHECK (state IN ('planning', 'measuring', 'averaging', 'publishing', 'completed', 'failed')),
    parts_total integer NOT NULL DEFAULT 0,
    parts_left  integer NOT NULL DEFAULT 0 CHECK (parts_left >= 0),
    version     text,
    optimizer_state text,  -- what the server optimizer leaves for the next round: a version in the store
    error       text,
    created_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    -- the lease of planning and publishing
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    lease_holder text NOT NULL DEFAULT '',
    fence       bigint NOT NULL DEFAULT 0,
    attempts    integer NOT NULL DEFAULT 0,
    in_hand     boolean NOT NULL DEFAULT false,
    after_death boolean NOT NULL DEFAULT false,
    deaths      integer NOT NULL DEFAULT 0,
    died_at     timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (job, round)
);
CREATE INDEX aggregations_open ON aggregations (id) WHERE state IN ('planning', 'measuring', 'publishing');

-- The parts of unfinished aggregations.
CREATE TABLE parts (
    aggregation bigint NOT NULL REFERENCES aggregations (id) ON DELETE CASCADE,
    part        integer NOT NULL,
    plan        integer NOT NULL DEFAULT 0,  -- what is still made of an earlier one counts no more
    path        text NOT NULL,
    begin_byte  bigint NOT NULL,
    size_bytes  bigint NOT NULL,
    stage       text NOT NULL CHECK (stage IN ('measuring', 'measured', 'averaging')),
    statistics  jsonb,  -- measured: of each sum the terms, [[number]]; made: of what adapters lost, or null
    sha256      text,   -- made
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    lease_holder text NOT NULL DEFAULT '',
    fence       bigint NOT NULL DEFAULT 0,
    attempts    integer NOT NULL DEFAULT 0,
    in_hand     boolean NOT NULL DEFAULT false,
    after_death boolean NOT NULL DEFAULT false,
    deaths      integer NOT NULL DEFAULT 0,
    died_at     timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (aggregation, part)
);
CREATE INDEX parts_open ON parts (aggregation, part) WHERE sha256 IS NULL AND stage <> 'measured';
