#!/bin/bash
# Renews aggregation.token in the secret with the credentials once it has lived half its life. renewal.yaml runs this in the
# services' image; SECRET is the secret's name, NAMESPACE its namespace, and /api holds ca.crt and the token for the API server.
set -euo pipefail
umask 077
cd /tmp
host=$KUBERNETES_SERVICE_HOST
[[ $host != *:* ]] || host="[$host]"
url=https://$host:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/$NAMESPACE/secrets/$SECRET
fail() { printf '%s: %s\n' "$SECRET" "$*" >&2; exit 1; }
# call OUT OPTION…: asks the API server. Neither token is on a command line.
call() {
    curl -sS --fail-with-body --max-time 30 --retry 3 --cacert /api/ca.crt -H @header -o "$1" "${@:2}" "$url?pretty=true" ||
        fail "the API server does not do it: $(member message "$1")"
}
# member NAME FILE: its text in an answer of the API server.
member() { [ ! -e "$2" ] || sed -n "/^ *\"$1\": \"\(.*\)\",\{0,1\}\$/ { s//\1/p; q }" "$2"; }
# put KEY FILE
put() {
    member "$1" secret | base64 -d >"$2"
    [ -s "$2" ] || fail "it has no key $1"
}

printf 'Authorization: Bearer %s\n' "$(cat /api/token)" >header
call secret
mkdir keys tokens
put private.pem keys/private.pem
put public.pem keys/public.pem
put aggregation.token tokens/aggregation.token
cp tokens/aggregation.token before
atoll credentials --out . >/dev/null
if cmp -s before tokens/aggregation.token; then
    echo "$SECRET: aggregation.token has not lived half its life"
    exit 0
fi
# With the version that was read: what somebody else has changed meanwhile is refused, and the next run looks again.
printf '{"metadata": {"resourceVersion": "%s"}, "data": {"aggregation.token": "%s"}}' \
    "$(member resourceVersion secret)" "$(base64 -w 0 tokens/aggregation.token)" >patch
call answer -X PATCH -H 'Content-Type: application/merge-patch+json' --data-binary @patch
echo "$SECRET: aggregation.token is renewed; aggregation reads the new one within two minutes"
