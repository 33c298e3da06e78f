-- Datasets, their versions and where copies of a version lie. Never a text: only counts, fingerprints and templates.

CREATE TABLE datasets (
    name        text COLLATE "C" PRIMARY KEY,
    language    text NOT NULL,                      -- BCP 47
    license     text NOT NULL,
    description text NOT NULL,                      -- empty: none
    template    text NOT NULL,                      -- of the prompts that the documents were put into
    source      text NOT NULL,                      -- where the text came from; empty: not said
    revision    bigint NOT NULL DEFAULT 1,          -- the entity tag
    versions_made integer NOT NULL DEFAULT 0,       -- so that no number is given twice, also of versions that were removed
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  text NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now()
);

-- Immutable.
CREATE TABLE dataset_versions (
    dataset              text COLLATE "C" NOT NULL REFERENCES datasets (name),
    version              integer NOT NULL CHECK (version >= 1),
    tokenizer_sha256     text NOT NULL,
    tokenizer            jsonb,                     -- {model, version, vocabulary: {file: sha256}, settings: {…}}; NULL: not known
    tokenizer_reader     integer NOT NULL DEFAULT 0, -- how the trainer read its files; 0: not known, so of the oldest
    seq_len              integer NOT NULL,
    batching             text NOT NULL CHECK (batching IN ('packing', 'padding')),
    train_documents      bigint NOT NULL,
    train_rows           bigint NOT NULL,
    train_tokens         bigint NOT NULL,
    validation_documents bigint NOT NULL,
    validation_rows      bigint NOT NULL,
    validation_tokens    bigint NOT NULL,
    fingerprint          text NOT NULL,             -- of both splits' fingerprints
    statistics           jsonb NOT NULL,            -- numbers only
    created_at           timestamptz NOT NULL DEFAULT now(),
    created_by           text NOT NULL,
    PRIMARY KEY (dataset, version),
    UNIQUE (dataset, fingerprint, tokenizer_sha256)
);

CREATE TABLE copies (
    dataset    text COLLATE "C" NOT NULL,
    version    integer NOT NULL,
    facility   text COLLATE "C" NOT NULL,
    path       text NOT NULL,                       -- relative to the facility's work directory
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text NOT NULL,
    PRIMARY KEY (dataset, version, facility),
    FOREIGN KEY (dataset, version) REFERENCES dataset_versions (dataset, version)
);
CREATE INDEX copies_facility ON copies (dataset, facility, version);
