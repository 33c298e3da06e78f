# Makes the database of POSTGRES_USER at the first start, beside its place: a start that was killed is made again from the
# beginning.
set -eu
if [ ! -e "$PGDATA" ]; then
    new=$PGDATA.new
    rm -rf "$new"
    initdb -D "$new" -U postgres -A reject -E UTF8 --no-instructions >/dev/null
    printf '%s all all %s scram-sha-256\n' local '' host all >"$new/pg_hba.conf"
    password=$(sed "s/'/''/g" "$POSTGRES_PASSWORD_FILE")
    # It owns its database, and is no superuser, who could run programs. Nobody can log in as that one, who has no password.
    postgres --single -D "$new" postgres >/dev/null <<SQL
CREATE ROLE "$POSTGRES_USER" LOGIN PASSWORD '$password'
CREATE DATABASE "$POSTGRES_USER" OWNER "$POSTGRES_USER"
SQL
    sync
    mv "$new" "$PGDATA"  # at once
fi
program=$1
shift
exec "$program" -c 'listen_addresses=*' -k /tmp "$@"  # of two settings the later holds
