# Sourced by the entrypoint of the official image at its first start, before anybody else reaches the database.
ROLE_CONNECTIONS=24 sh /opt/roles.sh >/tmp/roles.sql
psql -1 -v ON_ERROR_STOP=1 --username postgres --dbname "$POSTGRES_DB" -f /tmp/roles.sql \
    -c 'REVOKE ALL ON DATABASE postgres FROM PUBLIC' -c 'REVOKE ALL ON DATABASE template1 FROM PUBLIC'
rm /tmp/roles.sql
