# Each variable KAFKA_A_B becomes the broker's setting a.b.
set -eu
properties=/tmp/server.properties
env | sed -n 's/^KAFKA_\([A-Z_]*\)=/\1=/p' | grep -vE '^HEAP_OPTS=' | while IFS='=' read -r name value; do
    printf '%s=%s\n' "$(printf %s "$name" | tr 'A-Z_' 'a-z.')" "$value"
done >"$properties"
export LOG_DIR=/tmp
if [ ! -e "$KAFKA_LOG_DIRS/meta.properties" ]; then
    cluster=$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=')
    java -cp '/opt/kafka/libs/*' kafka.tools.StorageTool format -t "$cluster" -c "$properties"
fi
# A broker reads its certificate when it starts: when the file has another one, it ends as it should and starts again.
certificate() { [ ! -r "${KAFKA_SSL_KEYSTORE_LOCATION:-}" ] || cksum <"$KAFKA_SSL_KEYSTORE_LOCATION"; }
broker='' ending=''
trap 'ending=yes; [ -z "$broker" ] || kill "$broker" 2>/dev/null' TERM INT
while :; do
    shown=$(certificate)
    # shellcheck disable=SC2086
    java ${KAFKA_HEAP_OPTS:-} -cp '/opt/kafka/libs/*' kafka.Kafka "$properties" &
    broker=$!
    while [ -z "$ending" ] && kill -0 "$broker" 2>/dev/null && [ "$(certificate)" = "$shown" ]; do
        sleep "${CERTIFICATE_INTERVAL:-10}" &
        pause=$!
        wait -n "$broker" "$pause" || true
    done
    kill "$broker" "$pause" 2>/dev/null || true
    # bash keeps the status of a child that has ended until it is asked for; a signal of ours ends only the waiting.
    status=0
    wait "$broker" || status=$?
    while kill -0 "$broker" 2>/dev/null; do status=0; wait "$broker" || status=$?; done
    [ -z "$ending" ] || exit 0
    [ "$(certificate)" != "$shown" ] || exit "$status"
    echo "the certificate in $KAFKA_SSL_KEYSTORE_LOCATION is a new one: starting again"
done
