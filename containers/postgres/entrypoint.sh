# Makes the database POSTGRES_DB and the services' roles (roles.sh) at the first start, beside its place: a start that was killed
# is made again from the beginning. A later start gives the roles the passwords that the secrets have now.
set -eu
made=atoll_roles_1  # in a database with the roles of roles.sh
export ROLE_CONNECTIONS=24  # of four roles, of the 97 that PostgreSQL gives to all
# run_sql DIRECTORY DATABASE: statements from standard input, a line each, of which none may fail.
run_sql() {
    postgres --single -D "$1" "$2" >"$1/said" 2>&1 && ! grep -qE 'ERROR:|FATAL:|PANIC:' "$1/said" || { grep -E 'ERROR:|FATAL:|PANIC:' "$1/said" >&2; exit 1; }
    rm "$1/said"
}
# Digest of the passwords that the roles have. It gives nothing away: they are random.
passwords_sum() { cat /run/secrets/pgpass_* | sha256sum; }
if [ ! -e "$PGDATA" ]; then
    new=$PGDATA.new
    rm -rf "$new"
    initdb -D "$new" -U postgres -A reject -E UTF8 --no-instructions >/dev/null
    printf '%s all all %s scram-sha-256\n' local '' host all >"$new/pg_hba.conf"
    # Nobody can log in as the superuser, who could run programs: it has no password.
    printf '%s\n' "CREATE DATABASE \"$POSTGRES_DB\"" 'REVOKE ALL ON DATABASE postgres FROM PUBLIC' \
        'REVOKE ALL ON DATABASE template1 FROM PUBLIC' | run_sql "$new" postgres
    sh /roles.sh >"$new/roles"
    run_sql "$new" "$POSTGRES_DB" <"$new/roles"
    rm "$new/roles"
    passwords_sum >"$new/atoll_passwords"
    : >"$new/$made"
    sync
    mv "$new" "$PGDATA"  # at once
fi
if [ ! -e "$PGDATA/$made" ]; then
    echo "the database in $PGDATA has no role for each service: an older Atoll made it, and nothing can be taken over from it." \
        "\`docker compose down --volumes\` deletes it with all models, then \`docker compose up --wait\` makes a new one" >&2
    exit 1
fi
if [ "$(cat "$PGDATA/atoll_passwords" 2>/dev/null)" != "$(passwords_sum)" ]; then
    sh /roles.sh >"$PGDATA/roles"
    sed -n 's/^CREATE ROLE \([a-z]*\) LOGIN /ALTER ROLE \1 LOGIN /p' "$PGDATA/roles" >"$PGDATA/altered"
    # Not in a pipe: PostgreSQL passes over a lock file that names its parent, which here is the container's first process.
    run_sql "$PGDATA" "$POSTGRES_DB" <"$PGDATA/altered"
    rm "$PGDATA/roles" "$PGDATA/altered"
    passwords_sum >"$PGDATA/atoll_passwords"
fi
program=$1
shift
exec "$program" -c 'listen_addresses=*' -k /tmp "$@"  # of two settings the later holds
