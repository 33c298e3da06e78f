# The SQL that gives each service a role and a schema of its own in the new database POSTGRES_DB, a statement a line. The
# passwords are those of the services' files, ROLES_DIRECTORY/pgpass_NAME, each a line *:*:*:NAME:PASSWORD. No role has more than
# ROLE_CONNECTIONS connections (default: as many as the database).
set -eu
others='registry, store, aggregation'
echo "REVOKE ALL ON DATABASE \"$POSTGRES_DB\" FROM PUBLIC;"
for one in registry store dispatch aggregation; do
    password=$(sed 's/.*://' "${ROLES_DIRECTORY:-/run/secrets}/pgpass_$one")
    case $password in
        '' | *[!A-Za-z0-9_-]*) echo "pgpass_$one: the password must be of letters, digits, - and _" >&2; exit 1 ;;
    esac
    echo "CREATE ROLE $one LOGIN PASSWORD '$password' CONNECTION LIMIT ${ROLE_CONNECTIONS:--1};"
    echo "GRANT CONNECT ON DATABASE \"$POSTGRES_DB\" TO $one;"
    echo "CREATE SCHEMA $one AUTHORIZATION $one;"
    echo "GRANT pg_read_all_stats TO $one;"  # to say whose transaction holds events back
done
# Which tokens are revoked: dispatch writes it, all read it. None of them owns it, who could have others run code of its own; the
# table is that of shared/service/revocations.cpp.
echo "CREATE ROLE atoll_auth NOLOGIN;"
echo "CREATE SCHEMA auth;"
echo "GRANT USAGE ON SCHEMA auth TO dispatch, $others;"
echo "CREATE TABLE auth.revocations (token_id text PRIMARY KEY, expires_at timestamptz NOT NULL);"
echo "CREATE INDEX revocations_expires ON auth.revocations (expires_at);"
echo "GRANT SELECT ON auth.revocations TO $others;"
echo "GRANT SELECT, INSERT, UPDATE, DELETE ON auth.revocations TO dispatch;"
echo "ALTER TABLE auth.revocations OWNER TO atoll_auth;"
