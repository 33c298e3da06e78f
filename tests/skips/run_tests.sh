#!/usr/bin/env bash
# run_tests.sh BUILD [ARGUMENTS…]: runs ctest in a build directory, then lists the seconds by module, the ten slowest tests,
# those over 20 s that slow.txt does not explain, and every skipped test with its reason. Exits with the status of ctest.
# With CI=true it exits with 1 where every test passed but one was skipped that allowed.txt, or the file named by
# SKIPS_ALLOWED, does not list, or one took over a minute that is neither LONG nor in slow.txt, or the file named by
# SLOW_LISTED (SLOW_S: another limit). A minute is three times what a test may take, as a busy machine is slower; a build
# with sanitizers and the long form of tests (ATOLL_LONG_TESTS) have no limit.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$1" && pwd)
shift
list=${SKIPS_ALLOWED:-$here/allowed.txt}
slow=${SLOW_LISTED:-$here/slow.txt}
slow_s=${SLOW_S:-60}
output=$build/Testing/output.log long=$build/Testing/long_tests.txt log=$build/Testing/Temporary/LastTest.log

is_allowed() {
    local pattern _why
    while read -r pattern _why; do
        # shellcheck disable=SC2053  # a glob
        [[ -z $pattern || $pattern == \#* || $1 != $pattern ]] || return 0
    done <"$list"
    return 1
}

# Names and seconds of the tests that took over slow_s and may not, a line each.
list_too_slow() {
    if [ -n "${ATOLL_LONG_TESTS:-}" ] || grep -qs '^ATOLL_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt"; then return; fi
    awk -v over_s="$slow_s" -f "$here/list_seconds.awk" "$slow" "$log" |
        awk 'FILENAME == ARGV[1] { is_long[$1] = 1; next } !($1 in is_long)' "$long" -
}

# Two tests a core, as most wait more than they compute; up to eight more than cores, as all share one PostgreSQL.
cores=$(nproc)
jobs=$((cores + (cores < 8 ? cores : 8)))

mkdir -p "$build/Testing/Temporary"
ctest --test-dir "$build" -N -L '^LONG' | sed -n 's/^ *Test *#[0-9]*: //p' >"$long"
: >"$output"
: >"$log" # ctest replaces it if it runs any test
status=0
ctest --test-dir "$build" --output-on-failure -j "$jobs" --no-label-summary --output-log "$output" "$@" || status=$?
awk -f "$here/list_seconds.awk" "$slow" "$log"

skips=$(awk -f "$here/list_skips.awk" "$output" "$log")
lines=() unlisted=0
while IFS=$'\t' read -r name reason; do
    [ -n "$name" ] || continue
    line="  $name: $reason"
    if ! is_allowed "$name"; then
        line+=" [not in tests/skips/allowed.txt]"
        unlisted=$((unlisted + 1))
    fi
    lines+=("$line")
done <<<"$skips"

if [ ${#lines[@]} = 0 ]; then
    printf '\n0 skipped\n'
else
    printf '\n%d skipped:\n' ${#lines[@]}
    printf '%s\n' "${lines[@]}"
fi
grep -E '^[0-9]+% tests passed' "$output" | tail -n 1 || true
if [ "${CI:-}" = true ] && ((unlisted > 0)); then
    echo "CI=true: $unlisted of the skipped tests may not be skipped; give them what they lack, or list them with a reason" >&2
    [ "$status" != 0 ] || status=1
fi
if [ "${CI:-}" = true ] && too_slow=$(list_too_slow) && [ -n "$too_slow" ]; then
    {
        echo "CI=true: over $slow_s s; make them shorter or LONG, or list them in tests/skips/slow.txt with a reason:"
        printf '%s\n' "$too_slow"
    } >&2
    [ "$status" != 0 ] || status=1
fi
# The reasons once more, as what stands between may be hundreds of thousands of lines.
if [ "$status" != 0 ] && grep -qE ': Failure$|Sanitizer: ' "$output"; then
    printf '\nthe failures, in short (all of it: %s):\n' "$output"
    grep -E -A 8 ': Failure$|Sanitizer: |^The following tests FAILED' "$output" | cut -c 1-300 | tail -n 120
fi
exit "$status"
