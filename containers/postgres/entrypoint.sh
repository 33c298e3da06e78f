# Makes the database of POSTGRES_USER at the first start, in a directory of its own first: a start that was killed is
# made again from the beginning.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    new=$PGDATA/new
    rm -rf "$new"
    initdb -D "$new" -U "$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" -A scram-sha-256 --no-instructions >/dev/null
    echo "host all all all scram-sha-256" >>"$new/pg_hba.conf"
    pg_ctl -D "$new" -s -w -o "-c listen_addresses= -k /tmp" start
    PGPASSWORD=$(cat "$POSTGRES_PASSWORD_FILE") createdb -h /tmp -U "$POSTGRES_USER" "$POSTGRES_USER"
    pg_ctl -D "$new" -s -w -m fast stop
    version=$(cat "$new/PG_VERSION")
    rm "$new/PG_VERSION"
    mv "$new"/* "$PGDATA/"
    rmdir "$new"
    sync
    echo "$version" >"$PGDATA/PG_VERSION"  # last: with it the database is complete
fi
program=$1
shift
exec "$program" -c 'listen_addresses=*' -k /tmp "$@"  # of two settings the later holds
