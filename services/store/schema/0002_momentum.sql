-- An outer optimizer's memory is a version too: of the model that it steps, not a model itself.
ALTER TABLE versions DROP CONSTRAINT versions_kind_check,
    ADD CONSTRAINT versions_kind_check CHECK (kind IN ('base', 'update', 'global', 'momentum'));
