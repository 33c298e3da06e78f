#!/usr/bin/env bash
# What run_tests.sh says and how it exits, with tests made up for it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0
unset CI

# plant NAME STATUS TEXT: a test that prints the text and exits with the status, of which 77 skips it.
plant() {
    printf '%b' "$3" >"$tree/$1.txt"
    printf 'add_test([=[%s]=] sh -c "cat %s/%s.txt; exit %s")\n' "$1" "$tree" "$1" "$2" >>"$tree/CTestTestfile.cmake"
    printf 'set_tests_properties([=[%s]=] PROPERTIES SKIP_RETURN_CODE 77)\n' "$1" >>"$tree/CTestTestfile.cmake"
}

# expect STATUS [CI]: how run_tests.sh exits; its output goes to $tree/said.
expect() {
    local status=0
    CI=${2:-} SKIPS_ALLOWED=$tree/allowed "$here/run_tests.sh" "$tree" >"$tree/said" 2>&1 || status=$?
    [ "$status" = "$1" ] || wrong "exits with $status, not with $1"
}
# says LINE…: these lines, in this order, are the last ones that it prints.
says() {
    printf '%s\n' "$@" | cmp -s - <(tail -n $# "$tree/said") || wrong "does not end with: $*"
}
wrong() {
    printf '%s; it says:\n%s\n' "$*" "$(cat "$tree/said")"
    failures=$((failures + 1))
}

printf '# a remark\n\nneeds_tool  # on a bare machine\nDisk*.Full*  # needs a disk\n' >"$tree/allowed"
plant passes 0 ''
expect 0 true
says '0 skipped' '100% tests passed, 0 tests failed out of 1'

plant needs_tool 77 'looking\nno such tool: install it\n'
plant DiskTest.FullDisk 77 '[ RUN      ] DiskTest.FullDisk\n/a/b.cpp:7: Skipped\nno disk\nhere\n\n[  SKIPPED ] DiskTest.FullDisk (0 ms)\n'
listed=('  needs_tool: no such tool: install it' '  DiskTest.FullDisk: no disk here')
expect 0 true
says '2 skipped:' "${listed[@]}" '100% tests passed, 0 tests failed out of 3'

# A program of several tests, which ctest counts as passed.
plant ranks 0 '[ RUN      ] A.B\nx.cpp:1: Skipped\none rank\n\n[  SKIPPED ] A.B (0 ms)\n[ RUN      ] A.C\n[       OK ] A.C (0 ms)\n'
last=('  ranks:A.B: one rank [not in tests/skips/allowed.txt]' '100% tests passed, 0 tests failed out of 4')
expect 0
says '3 skipped:' "${listed[@]}" "${last[@]}"
expect 1 true
grep -qx 'CI=true: 1 of the skipped tests may not be skipped.*' "$tree/said" || wrong 'does not say why it fails'

plant unlisted 77 ''
expect 1 true
expect 0
grep -qx '  unlisted: no reason given \[not in tests/skips/allowed.txt\]' "$tree/said" || wrong 'does not mark the unlisted test'

plant fails 1 ''
expect 8
tail -n 1 "$tree/said" | grep -q 'failed out of 6$' || wrong 'does not end with the summary'
expect 8 true

# What takes too long, with a limit of a second in place of a minute.
expect_slow() {
    local status=0
    CI=${2:-} SKIPS_ALLOWED=$tree/allowed SLOW_LISTED=$tree/slow SLOW_S=1 "$here/run_tests.sh" "$tree" >"$tree/said" 2>&1 ||
        status=$?
    [ "$status" = "$1" ] || wrong "exits with $status, not with $1"
}
: >"$tree/CTestTestfile.cmake"
: >"$tree/slow"
plant quick 0 ''
printf 'add_test([=[%s]=] sleep 1.2)\n' A.Slow A.SlowToo long_one >>"$tree/CTestTestfile.cmake"
echo 'set_tests_properties([=[long_one]=] PROPERTIES LABELS LONG2:a)' >>"$tree/CTestTestfile.cmake"
expect_slow 1 true
grep -q '^CI=true: over 1 s; make them shorter or LONG' "$tree/said" || wrong 'does not say why it fails'
grep -qE '^A\.Slow 1\.[0-9] s$' "$tree/said" || wrong 'does not name the slow test'
grep -qE '^(quick|long_one) ' "$tree/said" && wrong 'names a quick or LONG test'
expect_slow 0
echo 'A.Slow*  waits' >"$tree/slow"
expect_slow 0 true
: >"$tree/slow"
echo 'ATOLL_SANITIZE:STRING=thread' >"$tree/CMakeCache.txt"
expect_slow 0 true
rm "$tree/CMakeCache.txt"
ATOLL_LONG_TESTS=1 expect_slow 0 true

# The seconds, from a log that is made up.
logged() { printf '1/3 Testing: %s\n1/3 Test: %s\nCommand: "%s"\nOutput:\n<end of output>\nTest time = %6.2f sec\n' "$1" "$1" "$2" "$3"; }
{
    logged A.Quick "/b/bin/atoll_json_test" 0.52
    logged engine_ranks /tests/mpirun.sh" \"2\" \"/b/bin/atoll_engine_test" 31.5
    logged A.Slow "/b/bin/atoll_json_test" 7
    logged demo.down "/b/bin/atoll" 0.2
} >"$tree/log"
printf '# a list\nengine_r*  eight ranks\n' >"$tree/slow"
awk -f "$here/list_seconds.awk" "$tree/slow" "$tree/log" >"$tree/said"
says '39 s of tests, by module: engine 31, json 7' 'the ten slowest:' '    31.5 s  engine_ranks' '     7.0 s  A.Slow' \
    '     0.5 s  A.Quick' '     0.2 s  demo.down'

! grep -q 'over 20 s' "$tree/said" || wrong "a test that the list explains is told all the same"
echo 'engine_r.n*  of another name' >"$tree/slow"
awk -f "$here/list_seconds.awk" "$tree/slow" "$tree/log" >"$tree/said"
says 'over 20 s and not in tests/skips/slow.txt (make them shorter or LONG, or say why):' '    31.5 s  engine_ranks'

((failures == 0)) && echo "every skip is listed"
