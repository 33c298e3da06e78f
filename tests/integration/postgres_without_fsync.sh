#!/bin/sh
# postgres_without_fsync.sh STATE: the Postgres of the tests' stack no longer waits for the disk, which costs each test
# more than what it does. Only a power cut, which no test makes, could lose what was committed: a killed Postgres loses
# nothing that the system has.
set -eu
conninfo=$(sed -n 's/.*"postgres": *"\([^"]*\)".*/\1/p' "$1/stack.json")
psql "$conninfo" -qAt -c 'ALTER SYSTEM SET fsync = off' -c 'SELECT pg_reload_conf()' >/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ "$(psql "$conninfo" -qAt -c 'SHOW fsync')" != off ] || exit 0
    sleep 1
done
echo "Postgres does not take fsync = off" >&2
exit 1
