#!/bin/bash
# kubernetes.sh PROGRAMS [CHECK…]: the Helm chart installed on a real Kubernetes of two nodes that is built and run here
# (kube/cluster.sh), with images of the built programs in the directory PROGRAMS. Needs root, Docker's daemon, Go, and
# of Debian containerd, runc, iptables, dnsmasq-base, containernetworking-plugins, faketime. Every check prints its seconds; all is
# removed at the end. What this cluster cannot enforce (NetworkPolicies, an ingress) chart.sh looks at, rendered; a volume's claim
# grows, and no storage system follows.
set -euo pipefail
shopt -s inherit_errexit
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=$(realpath "${1:?usage: kubernetes.sh PROGRAMS [CHECK…]}")
shift
tools=${ATOLL_KUBE_TOOLS:-$root/build/kube}
all=(tools images cluster every_set_of_values_is_taken services_wait_for_a_late_database helm_test the_token_renews_itself
    a_job_has_the_digests_of_atoll_up nothing_fails_during_upgrade_and_rollback what_is_killed_comes_back
    a_drain_waits_for_the_gateway the_volume_grows the_volume_outlives_the_release)
work=$(mktemp -d)
chmod 755 "$work"
cluster=$work/cluster debian=${ATOLL_DEBIAN:-atoll-debian:bookworm}
services=(registry store dispatch aggregation)
fail() { printf '  %s\n' "$*" >&2; return 1; }
mkdir "$cluster"
cd "$root"
# shellcheck source=tests/stack/load.sh
. tests/stack/load.sh
# shellcheck source=tests/stack/job.sh
. tests/stack/job.sh
# shellcheck source=tests/stack/kube/cluster.sh
. tests/stack/kube/cluster.sh
export KUBECONFIG=$cluster/kubeconfig PATH=$(realpath -m "$tools"):$PATH

clean_up() {
    "$programs/atoll" down --state "$work/up" --delete --yes >/dev/null 2>&1 || true
    stop_cluster
    rm -rf "$work"
}
trap clean_up EXIT

address_of() { kubectl -n atoll get service "$1" -o jsonpath='{.spec.clusterIP}'; }
gateway() { printf 'http://%s:7400' "$(address_of one-atoll-gateway)"; }
atoll() { "$programs/atoll" --gateway "$(gateway)" --token-file "$work/credentials/tokens/admin.token" "$@"; }
call() { curl -sS -X "$1" -H "Authorization: Bearer $(cat "$work/credentials/tokens/admin.token")" "${@:3}" "$url$2"; }
helm() { "$tools/helm" "$@" 2> >(grep -v '^walk.go' >&2); }
is_ready() { [ "$(curl -s --max-time 5 -o /dev/null -w '%{http_code}' "$(gateway)/$1/readyz")" = 200 ]; }
all_ready() { for service in "${services[@]}"; do is_ready "$service" || return 1; done; }
rolled_out() {
    local one
    for one in "${services[@]}" gateway; do kubectl -n atoll rollout status "deployment/one-atoll-$one" --timeout="${1}s" >/dev/null || return 1; done
}
# Of the release's pods, "name restarts" a line.
restarts() {
    kubectl -n atoll get pods -l app.kubernetes.io/name=atoll \
        -o jsonpath='{range .items[*]}{.metadata.name}{" "}{.status.containerStatuses[*].restartCount}{"\n"}{end}'
}
secret() { kubectl -n atoll create secret generic "$@" >/dev/null; }

check_tools() {
    tests/stack/kube/tools.sh "$tools" >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; return 1; }
    tests/stack/kube/hyperkube.sh "$tools" >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; return 1; }
}

check_images() {
    local jars=()
    [ ! -d "$root/build/kafka/lib" ] || jars=(--jars "$root/build/kafka/lib")
    containers/make_images.sh --uid 10001 --programs "$programs" --with site ${ATOLL_DEBIAN:+--debian "$ATOLL_DEBIAN"} "${jars[@]}" 2>&1 |
        sed 's/^/  /' >&2
    docker tag atoll-services:latest atoll-services:before
    docker tag atoll-services:latest atoll-services:after
}

check_cluster() {
    local started=$SECONDS
    start_api
    printf '  the API server answers after %d s\n' $((SECONDS - started)) >&2
    start_network
    start_node node1 atoll-services:before atoll-services:after atoll-postgres:latest atoll-kafka:latest atoll-site:latest
    printf '  the node is ready after %d s\n' $((SECONDS - started)) >&2
    start_node node2 atoll-services:before atoll-services:after
    kubectl cordon node2 >/dev/null # for a_drain_waits_for_the_gateway
    kubectl create namespace atoll >/dev/null
    kubectl label namespace atoll pod-security.kubernetes.io/enforce=restricted pod-security.kubernetes.io/warn=restricted >/dev/null
    local operator
    operator=$(cd / && go mod download -json github.com/prometheus-operator/prometheus-operator@v0.85.0 |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')/example/prometheus-operator-crd
    kubectl create -f "$operator/monitoring.coreos.com_servicemonitors.yaml" -f "$operator/monitoring.coreos.com_prometheusrules.yaml" >/dev/null
}

# The API server looks at every object, with nothing that it does not know and no warning.
check_every_set_of_values_is_taken() {
    local values
    for values in charts/atoll/ci/*.yaml; do
        helm template one charts/atoll -n atoll --kube-version 1.34 --values "$values" >"$work/rendered"
        kubectl -n atoll apply --dry-run=server --validate=strict -f "$work/rendered" >"$work/said" 2>&1 ||
            { tail -5 "$work/said" >&2; return 1; }
        ! grep -i warning "$work/said" >&2 || fail "$values: the API server warns"
        printf '  %s: %d objects\n' "$(basename "$values")" "$(grep -c 'server dry run' "$work/said")" >&2
    done
    # It does look: what the pods would be without a line.
    sed 's/type: RuntimeDefault/type: Unconfined/' "$work/rendered" |
        kubectl -n atoll apply --dry-run=server -f - >"$work/said" 2>&1 || true
    grep -q 'would violate PodSecurity' "$work/said" || { tail -5 "$work/said" >&2; fail "no pod is looked at"; }
}

make_secrets() {
    local password=$1
    "$programs/atoll" credentials --out "$work/credentials" >/dev/null
    secret atoll-credentials --from-file "$work/credentials/keys/private.pem" --from-file "$work/credentials/keys/public.pem" \
        --from-file "$work/credentials/tokens/aggregation.token"
    # Each service has a role of its own.
    local one
    for one in "${services[@]}"; do
        printf '*:*:*:%s:%s\n' "$one" "$password-$one" >"$work/pgpass_$one"
        secret "atoll-postgres-$one" --from-literal "conninfo=host=postgres user=$one password=$password-$one dbname=atoll"
    done
    secret postgres-roles "${services[@]/#/--from-file=$work/pgpass_}"
    # An authority, and the broker's certificate of it.
    (
        cd "$work"
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=authority
        openssl req -newkey rsa:2048 -nodes -keyout kafka.key -out kafka.csr -subj /CN=kafka
        openssl x509 -req -in kafka.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out kafka.crt \
            -extfile <(echo subjectAltName=DNS:kafka)
        cat kafka.key kafka.crt >broker.pem
        ssh-keygen -q -t ed25519 -N '' -C test -f id_ed25519
    ) >"$work/log" 2>&1
    secret kafka-broker --from-file "$work/broker.pem" --from-literal "password=$password"
    cat >"$work/client.properties" <<END
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.username=atoll
sasl.password=$password
ssl.ca.location=/credentials/kafka/ca.crt
END
    secret atoll-kafka --from-file "$work/client.properties" --from-file "$work/ca.crt"
    printf 'Host alpha beta\n  Port 2222\n  User atoll\n  IdentityFile ~/.ssh/id_ed25519\n  IdentitiesOnly yes\n' >"$work/config"
    secret atoll-ssh --from-file "$work/config" --from-file "$work/id_ed25519"
    secret site-keys --from-file "$work/id_ed25519.pub"
}

# Of a directory of this machine, whose group the test gives: such a volume does not know fsGroup. Its class does not let claims grow.
make_volume() {
    mkdir "$work/blobs"
    chown 10001:10001 "$work/blobs"
    kubectl create -f - >/dev/null <<END
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: by-hand}
provisioner: example.org/by-hand
allowVolumeExpansion: false
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: blobs}
spec:
  storageClassName: by-hand
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: $work/blobs}
END
}

# release install|upgrade TAG [OPTION…]
release() {
    local one roles=()
    for one in "${services[@]}"; do roles+=(--set "postgres.existingSecrets.$one=atoll-postgres-$one"); done
    helm "$1" one charts/atoll -n atoll --set image.tag="$2" --set gateway.publicUrl=http://one-atoll-gateway:7400 \
        --set kafka.brokers=kafka:9093 --set kafka.existingSecret=atoll-kafka --set ssh.existingSecret=atoll-ssh --set store.blobs.storageClass=by-hand \
        --set store.blobs.size="$(cat "$work/size" 2>/dev/null || echo 1Gi)" --set settings.dispatch.ssh_logins_max=40 "${roles[@]}" "${@:3}" >"$work/said"
}

check_services_wait_for_a_late_database() {
    make_secrets "$(openssl rand -hex 16)"
    make_volume
    kubectl -n atoll apply -f tests/stack/kube/backing.yaml >"$work/said" 2>&1
    ! grep -i warning "$work/said" >&2 || fail "the API server warns"
    kubectl -n atoll rollout status deployment/kafka --timeout=300s >/dev/null
    release install before
    grep -q 'helm test one' "$work/said" || fail "it does not say how to go on"
    sleep 45
    kubectl -n atoll scale deployment/postgres --replicas=1 >/dev/null
    local started=$SECONDS
    rolled_out 300 || { kubectl -n atoll get pods >&2; return 1; }
    printf '  ready %d s after the database began to start\n' $((SECONDS - started)) >&2
    restarts | sed 's/^/  /' >&2
    [ -z "$(restarts | grep -v ' 0$')" ] || fail "pods were restarted"
}

check_helm_test() {
    within 60 all_ready || fail "the services are not ready"
    helm test one -n atoll --logs >"$work/said" || { cat "$work/said" >&2; return 1; }
    [ "$(grep -c ' 200 ' "$work/said")" = 8 ] || { cat "$work/said" >&2; fail "it did not look at everything"; }
    kubectl -n atoll scale deployment/one-atoll-registry --replicas=0 >/dev/null
    kubectl -n atoll wait --for=delete pod -l app.kubernetes.io/component=registry --timeout=60s >/dev/null
    ! helm test one -n atoll >/dev/null 2>&1 || fail "it passes without a registry"
    kubectl -n atoll scale deployment/one-atoll-registry --replicas=1 >/dev/null
    rolled_out 120
}

# When the token ends that aggregation reads, in seconds since 1970.
token_end() { call GET /aggregation/v1/metrics | awk '/^atoll_token_expiry_timestamp_seconds/ {printf "%d", $2}'; }
token_ends_between() {
    local end
    end=$(token_end)
    [ "${end:-0}" -gt "$(date -d "$1" +%s)" ] && [ "$end" -lt "$(date -d "$2" +%s)" ]
}
# key_of KEY: of the secret with the credentials.
key_of() { kubectl -n atoll get secret atoll-credentials -o jsonpath="{.data.${1/./\\.}}" | base64 -d; }
# renew JOB SAYS: runs the CronJob's job now.
renew() {
    kubectl -n atoll create job --from cronjob/one-atoll-renewal "$1" >"$work/said" 2>&1
    ! grep -i warning "$work/said" >&2 || fail "the API server warns"
    kubectl -n atoll wait --for=condition=complete "job/$1" --timeout=120s >/dev/null 2>&1 ||
        { kubectl -n atoll logs "job/$1" >&2; fail "$1 does not complete"; }
    kubectl -n atoll logs "job/$1" | says "$2" || { kubectl -n atoll logs "job/$1" >&2; fail "$1 does not say: $2"; }
}
# may VERB OBJECT: whether the job's account may do that.
may() { [ "$(kubectl -n atoll auth can-i "$1" "$2" --as system:serviceaccount:atoll:one-atoll-renewal 2>/dev/null)" = yes ]; }

# A token of 200 of its 365 days is renewed by the job, and aggregation goes on with the new one: the old one is revoked, and the job
# that follows needs aggregation.
check_the_token_renews_itself() {
    local before private started id
    url=$(gateway)
    within 60 all_ready || fail "the services are not ready"
    may get secret/atoll-credentials && may patch secret/atoll-credentials || fail "the job may not renew the token"
    for one in 'get secret/atoll-postgres-dispatch' 'list secrets' 'update secret/atoll-credentials' 'delete secret/atoll-credentials' \
        'create pods' 'get configmaps'; do
        # shellcheck disable=SC2086
        ! may $one || fail "the job's account may $one"
    done
    renew renew-early 'has not lived half its life'
    mkdir -p "$work/old"
    cp -r "$work/credentials/keys" "$work/old/"
    faketime '200 days ago' "$programs/atoll" credentials --out "$work/old" >/dev/null
    kubectl -n atoll patch secret atoll-credentials \
        -p "{\"data\": {\"aggregation.token\": \"$(base64 -w 0 "$work/old/tokens/aggregation.token")\"}}" >/dev/null
    within 400 token_ends_between '+164 days' '+166 days' || fail "aggregation does not read the old token: it ends $(token_end)"
    before=$(restarts | grep -- -aggregation-) private=$(key_of private.pem)
    started=$SECONDS
    renew renew-now 'aggregation.token is renewed'
    printf '  renewed %d s after the job was made\n' $((SECONDS - started)) >&2
    [ "$(key_of aggregation.token)" != "$(cat "$work/old/tokens/aggregation.token")" ] || fail "the token is the old one"
    [ "$(key_of private.pem)" = "$private" ] || fail "the signing key is another"
    within 400 token_ends_between '+364 days' '+366 days' || fail "aggregation does not read the new token: it ends $(token_end)"
    printf '  read by aggregation %d s after the job was made\n' $((SECONDS - started)) >&2
    [ "$(restarts | grep -- -aggregation-)" = "$before" ] || fail "aggregation was started again"
    id=$("$programs/atoll" --gateway "$url" token show --token-file "$work/old/tokens/aggregation.token" --json | sed -n 's/.*"id": "\([^"]*\)".*/\1/p' | head -1)
    atoll token revoke "$id" >/dev/null
    renew renew-again 'has not lived half its life'
}

texts_of() { kubectl -n atoll exec "deployment/$1" -- cat /srv/site/work/texts.jsonl; }
check_a_job_has_the_digests_of_atoll_up() {
    local digests
    make_job
    atoll_at() { atoll "$@"; }
    add_sites
    submit_job
    digests=$(await_job 600)
    same_by_atoll_up "on Kubernetes" "$digests"
}

# during WHAT COMMAND…: five requests a second meanwhile, of which none may fail.
during() {
    local what=$1 asking started
    shift
    rm -f "$work/enough" "$work/asked"
    url=$(gateway)
    ask_all_the_time &
    asking=$!
    sleep 2
    started=$SECONDS
    "$@" || { touch "$work/enough"; return 1; }
    local seconds=$((SECONDS - started))
    sleep 3
    touch "$work/enough"
    wait "$asking"
    none_failed "$what: $seconds s"
}
upgrade() { release upgrade after --set logLevel=debug --wait --timeout 10m && rolled_out 300; }
roll_back() { helm rollback one -n atoll --wait --timeout 10m >/dev/null && rolled_out 300; }
images() { kubectl -n atoll get pods -l app.kubernetes.io/name=atoll,app.kubernetes.io/component!=test --field-selector status.phase=Running \
    -o jsonpath='{range .items[*]}{.spec.containers[0].image}{"\n"}{end}' | sort | uniq -c; }

check_nothing_fails_during_upgrade_and_rollback() {
    within 60 all_ready || fail "the services are not ready"
    echo 0 >"$work/number"
    during "upgraded" upgrade
    within 120 eval '[ -z "$(images | grep -v :after)" ]' || { images >&2; fail "pods of the release before run"; }
    during "rolled back" roll_back
    within 120 eval '[ -z "$(images | grep -v :before)" ]' || { images >&2; fail "pods of the release after run"; }
}

# The container's first process, as the node sees it.
process_of() {
    local id node
    id=$(kubectl -n atoll get pods -l "app.kubernetes.io/component=$1,app.kubernetes.io/name=atoll" --field-selector status.phase=Running \
        -o jsonpath="{.items[0].status.containerStatuses[?(@.name==\"$1\")].containerID}")
    for node in "${nodes[@]}"; do on_node "$node" tasks ls; done | awk -v id="${id#*//}" '$1 == id {print $2}'
}
check_what_is_killed_comes_back() {
    local one started
    within 60 all_ready || fail "the services are not ready"
    for one in "${services[@]}" gateway; do
        kill -9 "$(process_of "$one")"
        started=$SECONDS
        within 120 eval "rolled_out 60 && all_ready" || fail "after kill -9 of $one the services are not ready"
        printf '  %s: ready after %d s\n' "$one" $((SECONDS - started)) >&2
    done
    atoll model list | says out || fail "the models are gone"
}

# Of the release's pods on a node: their components. Without "test" and "renewal", which have ended.
components_on() {
    kubectl -n atoll get pods -l 'app.kubernetes.io/name=atoll,app.kubernetes.io/component notin (test,renewal)' --field-selector "spec.nodeName=$1" \
        -o jsonpath='{range .items[*]}{.metadata.labels.app\.kubernetes\.io/component}{"\n"}{end}' | sort | paste -sd ' '
}
# What is the release's alone: what it needs (PostgreSQL, Kafka) would not outlive its pod.
drain() { kubectl drain "$1" --pod-selector app.kubernetes.io/name=atoll --delete-emptydir-data --timeout="${2}s" >"$work/drained" 2>&1; }
drain_to_the_end() { drain "$1" 300 || { tail -5 "$work/drained" >&2; return 1; }; rolled_out 120; }
check_a_drain_waits_for_the_gateway() {
    local everything='aggregation dispatch gateway gateway registry store' held
    within 60 all_ready || fail "the services are not ready"
    [ -e "$work/number" ] || echo 0 >"$work/number"
    # With another node at hand nothing fails.
    kubectl uncordon node2 >/dev/null
    during "drained" drain_to_the_end node1
    [ "$(components_on node2)" = "$everything" ] || fail "on the other node are: $(components_on node2)"
    # Without one the last pod of the gateway stays, and the drain says why. The services, which have one pod each, are let go.
    ! drain node2 45 || fail "no pod is held"
    held=$(sed -n 's|^error when evicting pods/"\([^"]*\)".*Cannot evict pod as it would violate the pod.s disruption budget.*|\1|p' "$work/drained" | sort -u)
    [[ $held == one-atoll-gateway-* && $held != *$'\n'* ]] || { cat "$work/drained" >&2; fail "held are: $held"; }
    within 60 eval '[ "$(components_on node2)" = gateway ]' || fail "on the node are: $(components_on node2)"
    [ "$(kubectl -n atoll get pdb one-atoll-gateway -o jsonpath='{.status.disruptionsAllowed}')" = 0 ]
    [ "$(curl -s --max-time 5 -o /dev/null -w '%{http_code}' "$(gateway)/healthz")" = 200 ] || fail "the gateway does not answer"
    printf '  held without another node: %s\n' "$held" >&2
    # The same drain goes on as soon as there is one.
    kubectl uncordon node1 >/dev/null
    drain_to_the_end node2
    within 60 all_ready || fail "the services are not ready"
    [ "$(components_on node1)" = "$everything" ] || fail "on the first node are: $(components_on node1)"
}

claim() { kubectl -n atoll get pvc one-atoll-blobs -o jsonpath='{.spec.resources.requests.storage}'; }
# refused SIZE WORDS: an upgrade to that size fails with these words, and what runs stays.
refused() {
    local pods
    pods=$(restarts)
    echo "$1" >"$work/size"
    ! release upgrade before 2>"$work/refused" || fail "a claim of $1 is taken"
    within 10 grep -qF "$2" "$work/refused" || { cat "$work/refused" >&2; fail "it does not say: $2"; }
    [ "$(helm status one -n atoll -o json | grep -o '"status":"[a-z]*"' | head -1)" = '"status":"failed"' ] || fail "the release is not called failed"
    [ "$(restarts)" = "$pods" ] && all_ready || fail "pods were replaced: $(restarts)"
}
check_the_volume_grows() {
    local pods
    within 60 all_ready || fail "the services are not ready"
    refused 2Gi 'only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize'
    [ "$(claim)" = 1Gi ] || fail "the claim asks for $(claim)"
    kubectl patch storageclass by-hand -p '{"allowVolumeExpansion": true}' >/dev/null
    pods=$(restarts)
    within 30 release upgrade before --wait || fail "it cannot grow: $(cat "$work/said")"
    [ "$(claim)" = 2Gi ] || fail "the claim asks for $(claim)"
    [ "$(restarts)" = "$pods" ] && all_ready || fail "pods were replaced: $(restarts)"
    refused 1Gi 'field can not be less than'
    echo 2Gi >"$work/size"
    release upgrade before --wait
    [ "$(helm status one -n atoll -o json | grep -o '"status":"[a-z]*"' | head -1)" = '"status":"deployed"' ] || fail "the release is not mended"
}

check_the_volume_outlives_the_release() {
    atoll model verify out@newest >/dev/null
    helm uninstall one -n atoll --wait >/dev/null
    kubectl -n atoll get pvc one-atoll-blobs >/dev/null
    release install after
    rolled_out 300
    within 60 all_ready || fail "the services are not ready"
    atoll model verify out@newest >/dev/null || fail "blobs are gone"
}

[ $# -gt 0 ] || set -- "${all[@]}"
status=0
for check in "$@"; do
    started=$SECONDS
    set +e
    if [ "$check" = cluster ]; then
        # Its processes are this shell's own.
        set -e
        check_cluster
        result=0
    else
        (set -e; trap - EXIT; "check_$check")
        result=$?
    fi
    set -e
    if [ $result = 0 ]; then result=passed; else result=FAILED status=1; fi
    printf '%4d s  %s  %s\n' $((SECONDS - started)) "$result" "$check"
done
exit $status
