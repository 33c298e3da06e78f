#!/bin/bash
# dashboards.sh [PROGRAMS]: dashboards.js with a Prometheus of Debian that scrapes a stack of `atoll up` through its
# gateway, while two local facilities train a small model for some rounds: every query of every dashboard must find a
# series. The store's reserve is more than its disk has, so that an alert fires. PROGRAMS is build/release/bin. Exit 77:
# Prometheus is not installed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
programs=$(realpath "${1:-build/release/bin}")
command -v prometheus >/dev/null || { echo "prometheus is not installed (Debian: prometheus)"; exit 77; }
[ -x "$programs/atoll" ] || { echo "build it first: no $programs/atoll"; exit 1; }
scratch=$(mktemp -d)
chmod 755 "$scratch"
# shellcheck source=tests/stack/watched_stack.sh
. tests/stack/watched_stack.sh
tidy_up() {
    end_watched_stack
    rm -rf "$scratch"
}
trap tidy_up EXIT

mkdir "$scratch/state"
echo "store: {free_bytes_min: $(($(df --output=avail -B1 "$scratch" | tail -1) * 6 / 10))}" >"$scratch/state/settings.yaml"
start_stack
sed 's/for: .*/for: 1s/' compose/observe/alerts.yaml >"$scratch/alerts.yaml"
start_prometheus "$scratch/alerts.yaml"
push_model tiny
for one in alpha beta; do add_local_facility $one; done
for one in alpha beta; do prepare_texts $one tiny; done
submit watched tiny 4 "${ATOLL_STEPS:-600}" alpha beta
printf '%4d s  the federation trains\n' $SECONDS
status=0
node tests/stack/dashboards.js "http://127.0.0.1:$prometheus_port" 180 || status=$?
printf '%4d s  all queries were asked\n' $SECONDS
exit $status
