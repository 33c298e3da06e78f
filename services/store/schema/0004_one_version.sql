-- The version that an attempt has handed in: it has one. NULL: none yet.
ALTER TABLE uploads ADD COLUMN version text;
