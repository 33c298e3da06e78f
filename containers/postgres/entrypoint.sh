# Makes the database POSTGRES_DB and the services' roles (roles.sh) at the first start, beside its place: a start that was killed
# is made again from the beginning.
set -eu
made=atoll_roles_1  # in a database with the roles of roles.sh
if [ ! -e "$PGDATA" ]; then
    new=$PGDATA.new
    rm -rf "$new"
    initdb -D "$new" -U postgres -A reject -E UTF8 --no-instructions >/dev/null
    printf '%s all all %s scram-sha-256\n' local '' host all >"$new/pg_hba.conf"
    # run_sql DATABASE: statements from standard input, a line each, of which none may fail.
    run_sql() {
        postgres --single -D "$new" "$1" >"$new/said" 2>&1 && ! grep -qE 'ERROR:|FATAL:|PANIC:' "$new/said" || { grep -E 'ERROR:|FATAL:|PANIC:' "$new/said" >&2; exit 1; }
        rm "$new/said"
    }
    # Nobody can log in as the superuser, who could run programs: it has no password.
    printf '%s\n' "CREATE DATABASE \"$POSTGRES_DB\"" 'REVOKE ALL ON DATABASE postgres FROM PUBLIC' \
        'REVOKE ALL ON DATABASE template1 FROM PUBLIC' | run_sql postgres
    sh /roles.sh >"$new/roles"
    run_sql "$POSTGRES_DB" <"$new/roles"
    rm "$new/roles"
    : >"$new/$made"
    sync
    mv "$new" "$PGDATA"  # at once
fi
if [ ! -e "$PGDATA/$made" ]; then
    echo "the database in $PGDATA has no role for each service: an older Atoll made it, and nothing can be taken over from it." \
        "\`docker compose down --volumes\` deletes it with all models, then \`docker compose up --wait\` makes a new one" >&2
    exit 1
fi
program=$1
shift
exec "$program" -c 'listen_addresses=*' -k /tmp "$@"  # of two settings the later holds
