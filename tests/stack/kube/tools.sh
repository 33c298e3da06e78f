#!/bin/bash
# tools.sh DIRECTORY: leaves there helm, kubeconform, dashboards (../grafana), and in schemas/ strict JSON schemas of every kind of
# Kubernetes and of ServiceMonitor and PrometheusRule: all from Go modules, by `go install` and `go mod download`. What is there stays; the first
# time it takes two CPU minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "${1:?usage: tools.sh DIRECTORY}"
out=$(realpath "$1")
export GOBIN=$out
# What fetches modules is tried again: a module proxy may be slow to answer.
again() { "$@" || { sleep 5 && "$@"; } || { sleep 30 && "$@"; }; }
[ -x "$out/helm" ] || again go install helm.sh/helm/v3/cmd/helm@v3.20.2
[ -x "$out/dashboards" ] || again go build -C "$here/../grafana" -o "$out/dashboards" .
[ -x "$out/kubeconform" ] || again go install github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0
download() { again go mod download -json "$1"; }
directory_of() { cd / && download "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])'; }
if [ ! -e "$out/schemas/complete" ]; then
    rm -rf "$out/schemas"
    "$here/schemas.py" "$out/schemas" "$(directory_of k8s.io/kubernetes@v1.34.3)" \
        "$(directory_of github.com/prometheus-operator/prometheus-operator@v0.85.0)"
    touch "$out/schemas/complete"
fi
