#!/bin/bash
# dashboards.sh [PROGRAMS]: dashboards.js with a Prometheus of Debian that scrapes a stack of `atoll up` through its
# gateway, with a token of the role metrics, as docs/operate/alerts/README.md says; PROGRAMS is build/release/bin. Exit 77:
# Prometheus is not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=$PWD/${1:-build/release/bin}
command -v prometheus >/dev/null || { echo "prometheus is not installed (Debian: prometheus)"; exit 77; }
[ -x "$programs/atoll" ] || { echo "build it first: no $programs/atoll"; exit 1; }
scratch=$(mktemp -d)
chmod 755 "$scratch"
prometheus_pid=
tidy_up() {
    [ -z "$prometheus_pid" ] || kill "$prometheus_pid" 2>/dev/null || true
    "$programs/atoll" down --state "$scratch/state" --delete --yes >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap tidy_up EXIT

"$programs/atoll" up --state "$scratch/state" --port-base 0 --kafka-jars "$PWD/build/kafka/lib" --json >"$scratch/stack.json"
address() { node -p 'new URL(JSON.parse(require("fs").readFileSync(process.argv[1])).gateway).host' "$1"; }
cp "$scratch/state/tokens/metrics.token" "$scratch/metrics.token"
port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })')
cat >"$scratch/prometheus.yaml" <<YAML
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [$PWD/compose/observe/alerts.yaml]
scrape_configs:
  - job_name: atoll
    metrics_path: /v1/metrics
    authorization: {credentials_file: $scratch/metrics.token}
    static_configs: [{targets: [registry, store, dispatch, aggregation]}]
    relabel_configs:
      - {source_labels: [__address__], regex: (.*), target_label: __metrics_path__, replacement: /\$1/v1/metrics}
      - {source_labels: [__address__], target_label: instance}
      - {target_label: __address__, replacement: "$(address "$scratch/stack.json")"}
YAML
prometheus --config.file="$scratch/prometheus.yaml" --storage.tsdb.path="$scratch/tsdb" \
    --web.listen-address="127.0.0.1:$port" >"$scratch/prometheus.log" 2>&1 &
prometheus_pid=$!
query() { curl -sfG "http://127.0.0.1:$port/api/v1/query" --data-urlencode "query=$1" || true; }
for _ in $(seq 120); do
    [[ $(query 'sum(up{job="atoll"}) == 4 and count(atoll_jobs) > 0 and sum(rate(process_cpu_seconds_total[1m])) >= 0') == *value* ]] && break
    sleep 1
done
node tests/stack/dashboards.js "http://127.0.0.1:$port"
