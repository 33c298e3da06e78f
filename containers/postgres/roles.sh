# The SQL that gives each service a role and a schema of its own in the new database POSTGRES_DB, a statement a line. The
# passwords are those of the services' files, ROLES_DIRECTORY/pgpass_NAME, each a line *:*:*:NAME:PASSWORD.
set -eu
others='registry, store, aggregation'
echo "REVOKE ALL ON DATABASE \"$POSTGRES_DB\" FROM PUBLIC;"
for one in registry store dispatch aggregation; do
    password=$(sed 's/.*://' "${ROLES_DIRECTORY:-/run/secrets}/pgpass_$one")
    [ -n "$password" ] || { echo "pgpass_$one holds no password" >&2; exit 1; }
    echo "CREATE ROLE $one LOGIN PASSWORD '$password';"
    echo "GRANT CONNECT ON DATABASE \"$POSTGRES_DB\" TO $one;"
    echo "CREATE SCHEMA $one AUTHORIZATION $one;"
    echo "GRANT pg_read_all_stats TO $one;"  # to say whose transaction holds events back
done
# Which tokens are revoked: dispatch writes it, all read it.
echo "CREATE SCHEMA auth AUTHORIZATION dispatch;"
echo "GRANT USAGE ON SCHEMA auth TO $others;"
echo "ALTER DEFAULT PRIVILEGES FOR ROLE dispatch IN SCHEMA auth GRANT SELECT ON TABLES TO $others;"
