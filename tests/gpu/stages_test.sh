#!/usr/bin/env bash
# The stages of bench/gpu/run.sh keep their limits, a call keeps its deadline, and what did not fit or is lacking is named.
# shellcheck disable=SC2016  # the stages expand their variables themselves
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
. bench/gpu/stages.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# expect STAGE TEXT…: its line in the results has each of these.
expect() {
    local stage=$1 line text
    shift
    line=$(grep -F "{\"stage\": \"$stage\"" "$call_lines")
    for text in "$@"; do
        case $line in *"$text"*) ;; *) wrong "$stage: '$text' is not in: $line" ;; esac
    done
}
wrong() {
    printf '%s\n' "$*"
    failures=$((failures + 1))
}

# Those that are stopped would take a minute.
stage_kill_s=1 stage_end_s=1
begin_call one 600 "$tree/out" "$tree/scratch"
{
    run_stage measures 60 1 sh -c 'echo "{\"name\": \"x\", \"value\": 1}" >"$STAGE_MEASURES"; [ "$STAGE_LIMIT_S" = 60 ]'
    run_stage lacks 60 1 sh -c 'printf "there is no \"card\"\nhere" >"$STAGE_WHY"; exit 69'
    run_stage partly 60 1 sh -c 'echo "b and c" >"$STAGE_WHY"; exit 75'
    run_stage breaks 60 1 sh -c 'exit 3'
    run_stage slow 1 1 sleep 60
    run_stage deaf 1 1 bash -c 'trap "" TERM; echo half >"$STAGE_MEASURES"; while :; do sleep 60 & wait; done'
    run_stage forks 1 1 sh -c "sleep 61 & echo \$! >'$tree/child'; sleep 60"
    run_stage too-long 900 800 touch "$tree/too-long-began"
} >"$tree/said" 2>&1
! end_call >"$tree/summary" || wrong 'a call with a failed stage ends with 0'

expect measures '"status": "done", "rc": 0'
grep -qx '{"name": "x", "value": 1}' "$tree/scratch/measures.jsonl" || wrong 'a measure is not kept'
expect lacks '"status": "lacking", "rc": 69' '"why": "there is no \"card\" here"'
expect partly '"status": "in part", "rc": 75' '"why": "b and c"'
expect breaks '"status": "failed", "rc": 3'
expect slow '"status": "stopped", "rc": 124' 'its limit of 1 s was over'
expect deaf '"status": "stopped", "rc": 137'
grep -qx half "$tree/scratch/deaf.jsonl" || wrong 'what a stopped stage had measured is lost'
# One that has ended may wait for its parent: it has no command line then.
[ -z "$(tr -d '\0' 2>/dev/null <"/proc/$(cat "$tree/child")/cmdline")" ] || wrong 'a process of a stopped stage still runs'
expect too-long '"status": "left out"' "were left of the call's 600, and it takes 800 at least"
[ ! -e "$tree/too-long-began" ] || wrong 'a stage began that has not enough time'
grep -q '^  too-long: left out' "$tree/summary" || wrong 'the summary does not name what was left out'

begin_call short 5 "$tree/out" "$tree/scratch"
run_stage cut-short 600 1 sleep 60 >/dev/null 2>&1
run_stage too-late 600 1 touch "$tree/too-late-began" >/dev/null 2>&1
! end_call >/dev/null || wrong 'a call with a stopped stage ends with 0'
expect cut-short '"status": "stopped"'
expect too-late '"status": "left out"'
[ ! -e "$tree/too-late-began" ] || wrong 'a stage began after the deadline'

begin_call good 600 "$tree/out" "$tree/scratch"
run_stage fine 60 1 true >/dev/null
run_stage without 60 1 sh -c 'exit 69' >/dev/null
end_call >/dev/null || wrong 'a call without a failure does not end with 0'

[ "$failures" = 0 ] || exit 1
