#!/bin/bash
# dev_demo_test.sh DEV PROGRAMS: what `./dev demo` does with wrong arguments, asked for help and when it is interrupted,
# in a tree of its own where nothing is built.
set -euo pipefail
dev=$1 programs=$2
tree=$(mktemp -d)
chmod 711 "$tree"
trap 'rm -rf "$tree"' EXIT
fail() {
    echo "$*" >&2
    exit 1
}

mkdir -p "$tree/path" "$tree/stub" "$tree/build/release" "$tree/build/demo"
cp "$dev" "$tree/dev"
ln -s "$programs" "$tree/build/release/bin"
printf '#!/bin/sh\n' >"$tree/path/cmake"
chmod +x "$tree/path/cmake"
export PATH=$tree/path:$PATH ATOLL_NO_INSTALL=1
unset ATOLL_PRESET
echo '{}' >"$tree/build/demo/report.json"

"$tree/dev" demo --help >"$tree/help" 2>&1 || fail "--help failed: $(cat "$tree/help")"
grep -q -- --rounds "$tree/help" || fail "no help: $(cat "$tree/help")"
[ -e "$tree/build/demo/report.json" ] || fail "--help deleted the demo before"
! "$tree/dev" demo --dwon >"$tree/typo" 2>&1 || fail "a mistyped flag was taken"
grep -q -- --dwon "$tree/typo" || fail "the mistyped flag is not named: $(cat "$tree/typo")"
[ -e "$tree/build/demo/report.json" ] || fail "a mistyped flag deleted the demo before"

# Interrupted while its stack starts. The stub's own end is none of its business.
printf '#!/bin/sh\necho $$ >"%s/starting"\nexec sleep 60\n' "$tree" >"$tree/stub/atoll"
chmod +x "$tree/stub/atoll"
"$programs/atoll-demo" --state "$tree/demo" --programs "$tree/stub" >"$tree/out" 2>&1 &
demo=$!
for _ in $(seq 600); do
    [ ! -s "$tree/starting" ] || break
    sleep 0.1
done
[ -s "$tree/starting" ] || fail "the stack was not started: $(cat "$tree/out")"
kill -INT "$demo"
status=0
kill "$(cat "$tree/starting")"
wait "$demo" || status=$?
[ "$status" = 130 ] || fail "an interrupt ended it with status $status"
grep -q 'dev demo --down' "$tree/out" || fail "an interrupted demo does not say how to end it: $(cat "$tree/out")"
