#!/bin/bash
# chart.sh [TOOLS] [CHECK…]: the Helm chart, rendered with each set of values in charts/atoll/ci: helm's own lint, strict schemas
# of Kubernetes, values that are refused, what it rendered before (chart_goldens.py) and what it promises (chart_policies.py).
# Starts nothing. TOOLS is a directory that kube/tools.sh fills (build/kube). Exit 77: there is no Go that could build helm, or no python3-yaml.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tools=$(realpath -m "${1:-$root/build/kube}")
[ $# = 0 ] || shift
cd "$root"
command -v go >/dev/null || [ -x "$tools/helm" ] || { echo "there is no Go, which builds helm (Debian: golang)"; exit 77; }
python3 -c 'import yaml' 2>/dev/null || { echo "python3 has no yaml (Debian: python3-yaml)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf '  %s\n' "$*" >&2; return 1; }
all=(tools lint package kinds_and_members dashboards wrong_values goldens promises promises_are_proved)

# template SET [OPTION…]
template() {
    "$tools/helm" template one charts/atoll --namespace atoll --kube-version 1.34 --values "charts/atoll/ci/$1.yaml" "${@:2}" \
        2>"$work/said" || { grep -v '^walk.go' "$work/said" >&2; return 1; }
}

check_tools() { tests/stack/kube/tools.sh "$tools" >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; return 1; }; }

check_lint() {
    local values
    for values in charts/atoll/ci/*.yaml; do
        "$tools/helm" lint --strict --kube-version 1.34 --values "$values" charts/atoll >"$work/said" 2>&1 ||
            { cat "$work/said" >&2; return 1; }
    done
}

# The links to what compose uses are files in a package.
check_package() {
    "$tools/helm" package charts/atoll --destination "$work" >/dev/null 2>&1
    [ -z "$(tar -tvzf "$work"/atoll-*.tgz | grep '^l')" ] || fail "links are in the package"
    template observed >"$work/rendered"
    "$tools/helm" template one "$work"/atoll-*.tgz --namespace atoll --kube-version 1.34 --values charts/atoll/ci/observed.yaml |
        cmp - "$work/rendered" || fail "the package renders other objects"
}

conform() { "$tools/kubeconform" -strict -schema-location "$tools/schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json" "$@"; }
# A member that a kind does not have is refused, here and in what is planted.
check_kinds_and_members() {
    local values
    for values in charts/atoll/ci/*.yaml; do
        template "$(basename "$values" .yaml)" >"$work/rendered"
        conform -summary <"$work/rendered" >"$work/said" || { cat "$work/said" >&2; return 1; }
        grep -qE 'Valid: [1-9]' "$work/said" || fail "nothing was looked at"
        printf '  %s: %s\n' "$(basename "$values")" "$(tail -1 "$work/said")" >&2
    done
    sed 's/^  replicas:/  replcas:/' "$work/rendered" | conform >"$work/said" && fail "replcas is taken"
    template observed | sed 's/jobLabel:/jobLable:/' | conform >"$work/said" && fail "jobLable is taken"
    return 0
}

# By Grafana's own types; what is not of them is told by its path.
check_dashboards() {
    "$tools/dashboards" compose/observe/dashboards/*.json >&2
    sed 's/"unit": "s"/"unit": 7/' compose/observe/dashboards/training.json >"$work/wrong.json"
    ! "$tools/dashboards" "$work/wrong.json" >"$work/said" || fail "a unit that is a number is taken"
    grep -q 'unit' "$work/said" || fail "of such a unit it says: $(cat "$work/said")"
}

# Each is refused with its key.
check_wrong_values() {
    local wrong key
    while read -r wrong key; do
        ! template least --set "$wrong" >/dev/null 2>"$work/refused" || fail "$wrong is taken"
        grep -qF "$key" "$work/refused" || fail "of $wrong it says: $(cat "$work/refused")"
    done <<'END'
dispach.replicas=9 'dispach' not allowed
gateway.publicURL=https://a 'publicURL' not allowed
gateway.publicUrl=atoll.example.org '/gateway/publicUrl'
gateway.replicas=two '/gateway/replicas'
gateway.tls.secret=a 'secret' not allowed
postgres.secret=a 'secret' not allowed
kafka.secret=a 'secret' not allowed
kafka.brokers=a@b:1 '/kafka/brokers'
store.blobs.sise=1Gi 'sise' not allowed
store.blobs.size=much '/store/blobs/size'
store.replicas=2 'replicas' not allowed
networkPolicy.enable=true 'enable' not allowed
networkPolicy.kafka.ports[0]=0 '/networkPolicy/kafka/ports/0'
monitoring.rules.on=true 'on' not allowed
logLevel=loud '/logLevel'
image.uid=0 '/image/uid'
settings.gateway.a=1 'gateway' not allowed
settings.dispatch.ssh_logins_maxx=1 invalid propertyName 'ssh_logins_maxx'
settings.store.keep=1 invalid propertyName 'keep'
gateway.trustedProxies[0]=proxy '/gateway/trustedProxies/0'
kafka.existingSecrets.gateway=a 'gateway' not allowed
networkPolicy.dns.ports[0]=53 'ports' not allowed
settings.dispatch.store_url_for_sites=https://a settings.dispatch.store_url_for_sites: the chart sets it
networkPolicy.public.port=443 'port' not allowed
credentials.renewal.enabled=daily '/credentials/renewal/enabled'
credentials.renewal.schedule=daily 'schedule' not allowed
networkPolicy.apiServer.ports=443 '/networkPolicy/apiServer/ports'
END
    ! template least --set gateway.publicUrl= >/dev/null 2>"$work/refused" || fail "it needs no public URL"
    grep -q 'gateway.publicUrl' "$work/refused" || fail "it says: $(cat "$work/refused")"
    ! template least --set gateway.ingress.enabled=true >/dev/null 2>"$work/refused" || fail "an ingress needs no host"
    grep -q 'gateway.ingress.host' "$work/refused" || fail "it says: $(cat "$work/refused")"
}

check_goldens() { tests/stack/chart_goldens.py "$tools/helm" >&2; }
check_promises() { tests/stack/chart_policies.py "$tools/helm" >&2; }
check_promises_are_proved() { tests/stack/chart_policies.py "$tools/helm" --proved >&2; }

[ $# -gt 0 ] || set -- "${all[@]}"
status=0
for check in "$@"; do
    started=$SECONDS
    set +e
    (set -e; "check_$check")
    result=$?
    set -e
    if [ $result = 0 ]; then result=passed; else result=FAILED status=1; fi
    printf '%4d s  %s  %s\n' $((SECONDS - started)) "$result" "$check"
    [ "$check $result" != "tools FAILED" ] || break # all others need them
done
exit $status
