#!/bin/bash
# kubernetes.sh PROGRAMS [CHECK…]: the Helm chart installed on a real Kubernetes of one node that is built and run here
# (kube/cluster.sh), with images of the built programs in the directory PROGRAMS. Needs root, Docker's daemon, Go, kubectl, and
# of Debian containerd, runc, iptables, dnsmasq-base, containernetworking-plugins. Every check prints its seconds; all is removed at
# the end. What this cluster cannot enforce (NetworkPolicies, an ingress, a volume that grows) chart.sh looks at, rendered.
set -euo pipefail
shopt -s inherit_errexit
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=$(realpath "${1:?usage: kubernetes.sh PROGRAMS [CHECK…]}")
shift
tools=${ATOLL_KUBE_TOOLS:-$root/build/kube}
all=(tools images cluster every_set_of_values_is_taken services_wait_for_a_late_database helm_test
    a_job_has_the_digests_of_atoll_up nothing_fails_during_upgrade_and_rollback what_is_killed_comes_back the_volume_outlives_the_release)
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
export KUBECONFIG=$cluster/kubeconfig

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
    start_node atoll-services:before atoll-services:after atoll-postgres:latest atoll-kafka:latest atoll-site:latest
    printf '  the node is ready after %d s\n' $((SECONDS - started)) >&2
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
    secret postgres-password --from-literal "password=$password"
    secret atoll-postgres --from-literal "conninfo=host=postgres user=atoll password=$password dbname=atoll"
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

# Of a directory of this machine, whose group the test gives: such a volume does not know fsGroup.
make_volume() {
    mkdir "$work/blobs"
    chown 10001:10001 "$work/blobs"
    kubectl create -f - >/dev/null <<END
apiVersion: v1
kind: PersistentVolume
metadata: {name: blobs}
spec:
  capacity: {storage: 2Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: $work/blobs}
END
}

release() {
    helm "$1" one charts/atoll -n atoll --set image.tag="$2" --set gateway.publicUrl=http://one-atoll-gateway:7400 \
        --set kafka.brokers=kafka:9093 --set kafka.existingSecret=atoll-kafka --set ssh.existingSecret=atoll-ssh --set store.blobs.size=1Gi \
        --set settings.dispatch.ssh_logins_max=40 "${@:3}" >"$work/said"
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
    local id
    id=$(kubectl -n atoll get pods -l "app.kubernetes.io/component=$1,app.kubernetes.io/name=atoll" --field-selector status.phase=Running \
        -o jsonpath="{.items[0].status.containerStatuses[?(@.name==\"$1\")].containerID}")
    ctr -a "$socket" -n k8s.io tasks ls | awk -v id="${id#*//}" '$1 == id {print $2}'
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
