# shellcheck shell=bash
# Sourced by run.sh: runs the stages of a call, each within a limit of its own and all within the call's deadline.
#
#   begin_call first 300 OUT SCRATCH   # from here on the clock runs; OUT/first.stages.jsonl gets a line a stage
#   run_stage facts 30 5 COMMAND…      # for at most 30 s; left out where fewer than 5 are left of the call
#   end_call                           # what became of each; status 1 where one failed or was stopped
#
# A stage's command finds in its environment STAGE_LIMIT_S (whole seconds that it has), STAGE_ENDS_MS (when they are
# over, by the clock), STAGE_MEASURES (a file for its JSON lines) and STAGE_WHY (a file for a sentence). It exits with 0,
# with 69 where it lacks something that STAGE_WHY names, with 75 where it left out what STAGE_WHY names; all else is a
# failure. Its output goes to SCRATCH/STAGE.log too.
stage_lacks=69
stage_in_part=75
# Seconds kept back: for a stage that has to be killed, and for what end_call and its caller write.
stage_kill_s=2
stage_end_s=4

begin_call() {
    call=$1 call_deadline_s=$2 call_out=$3 call_scratch=$4 call_failures=0 call_began_ms=$(now_ms)
    mkdir -p "$call_out" "$call_scratch"
    call_lines=$call_out/$call.stages.jsonl
    : >"$call_lines"
}

now_ms() { printf '%s' $((${EPOCHREALTIME/[.,]/} / 1000)); }
# seconds_since MS: with a tenth.
seconds_since() {
    local tenths=$((($(now_ms) - $1) / 100))
    printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}
# Whole seconds that a stage may still take.
call_left_s() {
    printf '%d' $((call_deadline_s - stage_kill_s - stage_end_s - ($(now_ms) - call_began_ms + 999) / 1000))
}

# run_stage NAME LIMIT_S LEAST_S COMMAND…
run_stage() {
    local name=$1 limit_s=$2 least_s=$3 left_s began_ms rc=0 status why=
    shift 3
    left_s=$(call_left_s)
    if ((left_s < least_s)); then
        ((left_s > 0)) || left_s=0
        note_stage "$name" "left out" 0 0.0 0 "$left_s s were left of the call's $call_deadline_s, and it takes $least_s at least"
        return
    fi
    ((limit_s < left_s)) || limit_s=$left_s
    : >"$call_scratch/$name.why"
    : >"$call_scratch/$name.jsonl"
    printf '\n== %s (at most %d s)\n' "$name" "$limit_s"
    began_ms=$(now_ms)
    STAGE_LIMIT_S=$limit_s STAGE_ENDS_MS=$((began_ms + 1000 * limit_s)) \
        STAGE_MEASURES=$call_scratch/$name.jsonl STAGE_WHY=$call_scratch/$name.why \
        timeout --kill-after="$stage_kill_s" "$limit_s" "$@" </dev/null > >(tee "$call_scratch/$name.log") 2>&1 || rc=$?
    why=$(<"$call_scratch/$name.why")
    case $rc in
        0) status="done" ;;
        "$stage_lacks") status=lacking ;;
        "$stage_in_part") status="in part" ;;
        124 | 137) status=stopped why="its limit of $limit_s s was over${why:+; $why}" ;;
        *) status=failed ;;
    esac
    note_stage "$name" "$status" "$rc" "$(seconds_since "$began_ms")" "$limit_s" "$why"
}

# note_stage NAME STATUS RC SECONDS LIMIT_S WHY
note_stage() {
    local why
    case $2 in failed | stopped) call_failures=$((call_failures + 1)) ;; esac
    why=$(printf '%s' "$6" | tr '\n\t' '  ' | tr -d '\000-\037' | sed 's/[\\"]/\\&/g; s/ *$//')
    printf '{"stage": "%s", "status": "%s", "rc": %d, "seconds": %s, "limit_s": %d, "why": "%s"}\n' \
        "$1" "$2" "$3" "$4" "$5" "$why" >>"$call_lines"
    printf '== %s: %s, %s s%s\n' "$1" "$2" "$4" "${6:+: $6}"
}

end_call() {
    printf '\n%s: %s s of %d\n' "$call" "$(seconds_since "$call_began_ms")" "$call_deadline_s"
    sed -E 's/^\{"stage": "([^"]*)", "status": "([^"]*)", "rc": ([0-9]+), "seconds": ([0-9.]+), "limit_s": ([0-9]+), "why": "(.*)"\}$/  \1: \2 (\4 s) \6/' \
        "$call_lines"
    ((call_failures == 0))
}
