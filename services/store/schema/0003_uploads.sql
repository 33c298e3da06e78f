-- What each attempt of a facility's task has uploaded; rows of attempts whose token has long expired are swept.
CREATE TABLE uploads (
    task     text NOT NULL,
    attempt  text NOT NULL,
    bytes    bigint NOT NULL,
    began_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task, attempt)
);
