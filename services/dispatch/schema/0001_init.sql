-- Times are kept as timestamptz; the program reads and writes them as Unix milliseconds.

CREATE TABLE facilities (
    name text PRIMARY KEY,
    spec jsonb NOT NULL,
    devices jsonb,                               -- what its trainer computes on: ["cpu"]; NULL: not known
    admin_pinned_host_key boolean NOT NULL DEFAULT false, -- then only admins change it
    limits jsonb,                                -- what its batch system says of its queues, by name; NULL: not known
    has_work_dir boolean NOT NULL DEFAULT false,  -- it was there: where it is not, its file system is away
    version bigint NOT NULL DEFAULT 1,         -- the ETag
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    unknown_answers integer NOT NULL DEFAULT 0,  -- in a row: the site cannot be reached or worked with
    waiting_since timestamptz,                   -- the first of them
    waiting_reason text NOT NULL DEFAULT '',     -- why, by the last of them
    retry_at timestamptz,                        -- nothing is started there before
    batch_silent_since timestamptz,              -- its batch system gives no answer; the site does
    batch_silence text NOT NULL DEFAULT '',      -- why, by its last word
    batch_pinged_at timestamptz NOT NULL DEFAULT '-infinity'  -- it was asked then whether it answers
);

-- Who asked for a job of a facility's check.
CREATE TABLE check_jobs (
    facility text NOT NULL,
    id       text NOT NULL,
    asked_by text NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (facility, id)
);

CREATE TABLE jobs (
    id text PRIMARY KEY,
    name text NOT NULL,
    spec jsonb NOT NULL,                 -- resolved: dataset versions and paths are filled in
    base_digest text NOT NULL,
    state text NOT NULL CHECK (state IN ('running', 'paused', 'completed', 'failed', 'cancelled')),
    current_round integer NOT NULL,
    records jsonb NOT NULL DEFAULT '{}', -- {facility: {refusals, reason, left_out, counted_round}}
    spoiled jsonb NOT NULL DEFAULT 'null',  -- the model because of which it pauses, and how each site judges it
    judged_until integer NOT NULL DEFAULT 0,  -- the newest round whose model is not judged again
    error text NOT NULL DEFAULT '',
    created_by text NOT NULL,
    by_admin boolean NOT NULL DEFAULT false,  -- who was one then: no facility refuses it
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    paused_at timestamptz,               -- a paused job starts nothing: its deadlines move by that time when it resumes
    event_count bigint NOT NULL DEFAULT 0,  -- events get consecutive numbers under this row's lock
    pruned boolean NOT NULL DEFAULT false   -- it ended long ago: its events and all but the newest attempts are gone
);
CREATE INDEX jobs_state ON jobs (state);
CREATE INDEX jobs_unpruned ON jobs (finished_at) WHERE NOT pruned;

CREATE TABLE rounds (
    job_id text NOT NULL REFERENCES jobs,
    number integer NOT NULL,             -- 0: the base model, only evaluated
    index integer NOT NULL DEFAULT 0,    -- which of the job's rounds it stands for
    parent integer NOT NULL DEFAULT 0,   -- the round that made its base
    state text NOT NULL CHECK (state IN ('training', 'aggregating', 'closed', 'failed', 'cancelled')),
    base_digest text NOT NULL,
    version_digest text NOT NULL DEFAULT '',
    evaluated boolean NOT NULL DEFAULT false,
    error text NOT NULL DEFAULT '',
    deadline_at timestamptz,
    evaluate_by timestamptz,             -- evaluations of a closed round are waited for until then
    -- While it is aggregating, when its closing is announced again: events can be lost, as when they outlive the
    -- broker's retention.
    ask_again_at timestamptz,
    -- What stands in the way of its aggregation: reason '' where nothing does.
    waiting_reason text NOT NULL DEFAULT '',
    waiting_since timestamptz,
    next_try_at timestamptz,
    accepted jsonb NOT NULL DEFAULT '[]',  -- ids of the training tasks whose updates count
    refused jsonb NOT NULL DEFAULT '[]',   -- [{task, reason, fault}] left out by the aggregation; not among `accepted`
    contributions jsonb NOT NULL DEFAULT '[]',  -- [{task, facility, share, norm, cosine, counted}], once closed
    -- So many of the tasks that it waits for may end, and so many of them without success, before its job is looked at
    -- again: fewer change nothing.
    quiet_ends bigint NOT NULL DEFAULT 0,
    quiet_losses bigint NOT NULL DEFAULT 0,
    opened_at timestamptz NOT NULL DEFAULT now(),
    aggregating_at timestamptz,          -- its training ended then
    closed_at timestamptz,
    evaluated_at timestamptz,
    PRIMARY KEY (job_id, number)
);
CREATE INDEX rounds_newest ON rounds (greatest(aggregating_at, closed_at, evaluated_at));
CREATE INDEX rounds_deadline ON rounds (deadline_at) WHERE state = 'training' AND deadline_at IS NOT NULL;
CREATE INDEX rounds_evaluate_by ON rounds (evaluate_by) WHERE state = 'closed' AND NOT evaluated;
CREATE INDEX rounds_ask_again ON rounds (ask_again_at) WHERE state = 'aggregating';

CREATE TABLE preparations (
    id text PRIMARY KEY,
    spec jsonb NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tasks (
    id text PRIMARY KEY,
    job_id text REFERENCES jobs,
    preparation_id text REFERENCES preparations,
    round integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('train', 'evaluate', 'prepare', 'clean')),
    facility text NOT NULL,  -- in ended ones also of a facility that was removed since
    params jsonb NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'running', 'done', 'failed', 'cancelled')),
    attempts_max integer NOT NULL,
    cancel_requested boolean NOT NULL DEFAULT false,
    error text NOT NULL DEFAULT '',
    result jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    -- The lease: one worker at a time does the next step; a result counts only under the fence it was leased with.
    next_step_at timestamptz NOT NULL DEFAULT now(),
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    lease_holder text NOT NULL DEFAULT '',  -- a process that was killed and starts again takes its own work up at once
    fence bigint NOT NULL DEFAULT 0,
    CHECK ((job_id IS NULL) <> (preparation_id IS NULL))
);
CREATE INDEX tasks_due ON tasks (next_step_at) WHERE state IN ('pending', 'running');
CREATE INDEX tasks_job ON tasks (job_id, round);
CREATE INDEX tasks_unfinished ON tasks (job_id, kind, state) WHERE state IN ('pending', 'running');
CREATE INDEX tasks_facility ON tasks (facility) WHERE state IN ('pending', 'running');
-- A preparation that failed gets a second task, which cleans up after it.
CREATE UNIQUE INDEX tasks_preparation ON tasks (preparation_id) WHERE kind = 'prepare';

-- When a step was last done at a facility for a job or a preparation of that person: each has a turn.
CREATE TABLE turns (
    facility text NOT NULL REFERENCES facilities ON DELETE CASCADE,
    owner text NOT NULL,
    taken_at timestamptz NOT NULL,
    PRIMARY KEY (facility, owner)
);

-- How many tasks of a job or a preparation have ended in each state: what is finished is counted once, in the
-- transaction that ends it, and never read again for its number.
CREATE TABLE ended_tasks (
    owner text NOT NULL,  -- the job or the preparation
    kind text NOT NULL,
    state text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (owner, kind, state)
);

CREATE TABLE attempts (
    task_id text NOT NULL REFERENCES tasks,
    number integer NOT NULL,
    batch_job_name text NOT NULL UNIQUE,  -- written before anything is submitted under it
    step text NOT NULL,
    batch_id text NOT NULL DEFAULT '',
    exit_code integer,
    error text NOT NULL DEFAULT '',
    progress jsonb NOT NULL,             -- log offset, newest lines, answers of the batch system
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    PRIMARY KEY (task_id, number)
);

-- The ends of what an ended attempt wrote at its site, as far as the facility gives them.
CREATE TABLE attempt_logs (
    task_id text NOT NULL,
    number integer NOT NULL,
    file text NOT NULL,
    text text NOT NULL,
    PRIMARY KEY (task_id, number, file),
    FOREIGN KEY (task_id, number) REFERENCES attempts ON DELETE CASCADE
);

CREATE TABLE job_events (
    job_id text NOT NULL REFERENCES jobs,
    number bigint NOT NULL,
    type text NOT NULL,
    time timestamptz NOT NULL DEFAULT clock_timestamp(),
    data jsonb NOT NULL,
    PRIMARY KEY (job_id, number)
);

-- Tokens that were issued to people and programs; what ends them is in auth.revocations, which all services read.
CREATE TABLE tokens (
    id text PRIMARY KEY,
    subject text NOT NULL,
    role text NOT NULL CHECK (role IN ('admin', 'operator', 'viewer', 'metrics')),
    issued_by text NOT NULL,
    signed_by text NOT NULL,             -- the name of the key
    issued_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz
);
