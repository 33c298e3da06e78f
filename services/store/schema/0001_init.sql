-- The store's tables. The bytes of blobs are files; what is here can be read without them.

CREATE TABLE models (
    name        text PRIMARY KEY,
    description text NOT NULL,
    owner       text NOT NULL,          -- the subject who may change it; empty: admins alone
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX models_owner ON models (owner);

-- A manifest once, however many models it is a version of. `body` is the canonical JSON whose sha256 is the digest.
CREATE TABLE manifests (
    digest     text PRIMARY KEY,
    body       text NOT NULL,
    size_bytes bigint NOT NULL,
    file_count integer NOT NULL
);

-- Which blobs a manifest needs: what a facility's token may read, and what may not be collected as garbage.
CREATE TABLE manifest_blobs (
    manifest   text NOT NULL REFERENCES manifests (digest),
    blob       text NOT NULL,
    is_variate boolean NOT NULL DEFAULT false,  -- files of control variates alone have it: it is read as an update is
    PRIMARY KEY (manifest, blob)
);
CREATE INDEX manifest_blobs_blob ON manifest_blobs (blob);

CREATE TABLE versions (
    sequence      bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    model         text NOT NULL CONSTRAINT versions_model REFERENCES models (name),
    digest        text NOT NULL REFERENCES manifests (digest),
    -- optimizer_state: what a server optimizer keeps from step to step, of the model that it steps
    kind          text NOT NULL CHECK (kind IN ('base', 'update', 'global', 'optimizer_state', 'adapter')),
    parents       jsonb NOT NULL,
    adapter_of    text,          -- the model's version that it is an adapter of; null: it is a model
    job           text,
    round         integer,
    contributions jsonb NOT NULL,
    metrics       jsonb NOT NULL,
    created_by    text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    -- when a site's token has fetched it last: a job under way may need it
    read_at       timestamptz,
    PRIMARY KEY (model, digest)
);
CREATE INDEX versions_base ON versions ((parents ->> 0));
CREATE INDEX versions_job ON versions (job, round);
CREATE INDEX versions_digest ON versions (digest);
CREATE INDEX versions_listing ON versions (model, sequence);
CREATE INDEX versions_created_by ON versions (created_by);
CREATE INDEX versions_bases ON versions (model, sequence) WHERE kind = 'base';

-- What each round of a job has made. Equal bytes are one version, whoever makes them: a job that is run again makes the
-- versions of the first one, and an update may be a global model as well.
CREATE TABLE round_versions (
    job           text NOT NULL,
    round         integer NOT NULL,
    kind          text NOT NULL,
    model         text NOT NULL,
    digest        text NOT NULL,
    parents       jsonb NOT NULL,
    contributions jsonb NOT NULL,
    created_by    text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job, round, kind, digest, model),
    CONSTRAINT round_versions_version FOREIGN KEY (model, digest) REFERENCES versions (model, digest) ON DELETE CASCADE
);
CREATE INDEX round_versions_digest ON round_versions (model, digest);

CREATE TABLE tags (
    model      text NOT NULL,
    tag        text NOT NULL,
    digest     text NOT NULL,
    updated_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (model, tag),
    CONSTRAINT tags_version FOREIGN KEY (model, digest) REFERENCES versions (model, digest)
);

-- What each attempt of a facility's task has uploaded; rows of a month ago are swept, but for those of a version that is
-- still there.
CREATE TABLE uploads (
    task     text NOT NULL,
    attempt  text NOT NULL,
    bytes    bigint NOT NULL,  -- an upper bound, counted anew from uploaded_blobs when it reaches the quota
    version  text,  -- that it has handed in: it has one
    began_at timestamptz NOT NULL DEFAULT now(),
    counted_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (task, attempt)
);

-- The blobs whose bytes a task has sent, which its versions may name. Swept a day after it has handed one in.
CREATE TABLE uploaded_blobs (
    task    text NOT NULL,
    blob    text NOT NULL,
    attempt text NOT NULL DEFAULT '',   -- of whose quota it takes
    bytes   bigint NOT NULL DEFAULT 0,  -- what it takes of it: nothing where the blob was there
    at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task, blob)
);

-- Blobs that operators have sent, by whom: while no version needs one it takes of its first sender's quota.
CREATE TABLE operator_blobs (
    blob    text NOT NULL,
    subject text NOT NULL,
    bytes   bigint NOT NULL,  -- what it takes of the quota: nothing where the blob was there
    PRIMARY KEY (blob, subject)
);
CREATE INDEX operator_blobs_subject ON operator_blobs (subject);

-- How much of that each operator has: an upper bound, counted anew when it reaches the quota.
CREATE TABLE operator_quotas (
    subject    text PRIMARY KEY,
    bytes      bigint NOT NULL,
    counted_at timestamptz NOT NULL DEFAULT '-infinity'
);

-- Blobs that the scrubber has found to be no longer what their name says, until they are uploaded again.
CREATE TABLE damaged_blobs (
    blob     text PRIMARY KEY,
    found_at timestamptz NOT NULL DEFAULT now()
);

-- How far the scrubber is: the directory of blobs that it has looked through last.
CREATE TABLE scrub (
    one       boolean PRIMARY KEY CHECK (one),
    directory text NOT NULL,
    at        timestamptz NOT NULL DEFAULT now()
);
