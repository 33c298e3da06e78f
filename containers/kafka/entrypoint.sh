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
exec java ${KAFKA_HEAP_OPTS:-} -cp '/opt/kafka/libs/*' kafka.Kafka "$properties"
