#!/bin/bash
# parts_test.sh: what `./dev test --stack` says of parts that are skipped or fail, and how it exits, with parts made up for it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/tests/stack" "$tree/tests/skips" "$tree/bin"
cp "$root/dev" "$tree/"
failures=0
unset CI
# part NAME STATUS LINE
part() { printf '#!/bin/bash\necho "%s"\nexit %s\n' "$3" "$2" >"$tree/tests/stack/$1.sh"; chmod 755 "$tree/tests/stack/$1.sh"; }
# A docker that does not answer, and one that does; programs that are built at once.
docker() { printf '#!/bin/bash\n[ "$1" = %s ] && exit 1\nexit 0\n' "$1" >"$tree/bin/docker"; chmod 755 "$tree/bin/docker"; }
printf '#!/bin/bash\nexit 0\n' | tee "$tree/bin/cmake" >"$tree/bin/id"
printf '#!/bin/bash\necho 0\n' >"$tree/bin/id"
chmod 755 "$tree/bin/cmake" "$tree/bin/id"
# expect STATUS [ARGUMENT…]: how it exits; what it says goes to $tree/said.
expect() {
    local status=0
    PATH=$tree/bin:$PATH ATOLL_NO_INSTALL=1 "$tree/dev" test --stack "${@:2}" >"$tree/said" 2>&1 || status=$?
    [ "$status" = "$1" ] || wrong "exits with $status, not with $1"
}
says() { grep -qE -- "$1" "$tree/said" || wrong "does not say: $1"; }
wrong() {
    printf '%s; it says:\n%s\n' "$*" "$(cat "$tree/said")"
    failures=$((failures + 1))
}

part chart 77 'there is no Go'
part compose 0 '   7 s  passed  images'
part dashboards 77 'prometheus is not installed'
part alerts 0 '   5 s  passed  AtollServiceDown'
part kubernetes 0 '   9 s  passed  cluster'
printf 'stack.chart  # needs Go\nstack.compose  # needs Docker\nstack.dashboards_in_prometheus  # needs Prometheus\n' >"$tree/tests/skips/allowed.txt"
docker info
expect 0 --quick
says '^skipped: stack.chart: there is no Go$'
says "^skipped: stack.compose: needs Docker's daemon"
expect 1
says "test --stack needs Docker's daemon"
docker none
expect 0
says '^skipped: stack.dashboards_in_prometheus: prometheus is not installed$'
says '^stack.compose: [0-9]+ s$'
says '^stack.alerts: [0-9]+ s$'
says '^apart: stack.kubernetes:'
says '^test --stack: [0-9]+ s$'
ATOLL_KUBE_TOOLS=/tools expect 0
says '^stack.kubernetes: [0-9]+ s$'
CI=true expect 0
sed -i '/^stack.chart/d' "$tree/tests/skips/allowed.txt"
expect 0
CI=true expect 1
says 'CI=true: stack.chart is not in tests/skips/allowed.txt'
part chart 1 '   1 s  FAILED  lint'
expect 1
says '^stack.compose: [0-9]+ s$'
part chart 0 '   1 s  passed  lint'
part compose 1 '   1 s  FAILED  images'
expect 1

((failures == 0)) && echo "each part is named, with its seconds or why it is skipped"
