#!/usr/bin/env bash
# What a machine with one NVIDIA card is asked in two calls; bench/README.md says how to prepare and read them.
#
#   run.sh first             facts, numerics, autotune, kernels, program, memcheck   at most 300 s
#   run.sh second            facts, train-33m, train-852m, adapters, curves, compiled, edge    at most 420 s
#   run.sh STAGE…            only these, within 600 s
#   run.sh table [FILE…]     what was measured beside what was predicted
#
#   --out FOLDER    gets the results, one JSON file a call; default: bench/gpu/results
#   --seconds S     another deadline of the call
#   --rehearse      on the CPU with small models, to see that every stage runs; its figures say nothing
#
# Needs build/gpu-bundle.tar.xz (`./dev cuda --bundle`, on a machine with a compiler), a Python with PyTorch and
# transformers, whose cuBLASLt our programs take as well, and no network. Stages stand in the order of their worth: what
# does not fit into the call is left out from the end, and named. Exit code 1: a stage failed or was stopped.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
. bench/gpu/stages.sh
readonly bin=build/gpu/bin
python=$(command -v python3 || command -v python)
scratch=${ATOLL_GPU_SCRATCH:-${TMPDIR:-/tmp}/atoll-gpu-$(id -u)}
device=${ATOLL_GPU_DEVICE:-cuda}

# Its limit, and the least that it is begun with, in seconds.
limits_of() {
    case $1 in
        unpack) echo 30 5 ;;
        facts) echo 40 5 ;;
        numerics) echo 120 20 ;;
        autotune) echo 5 1 ;;
        kernels) echo 75 20 ;;
        program) echo 60 20 ;;
        memcheck) echo 60 15 ;;
        train-33m) echo 90 30 ;;
        train-852m) echo 150 45 ;;
        adapters) echo 50 30 ;;
        curves) echo 45 20 ;;
        compiled) echo 120 45 ;;
        edge) echo 90 30 ;;
        *) return 1 ;;
    esac
}
readonly first=(facts numerics autotune kernels program memcheck) second=(facts train-33m train-852m adapters curves compiled edge)

if [ "${1:-}" = table ]; then
    shift
    exec "$python" bench/gpu/results.py table "$@"
fi

usage() {
    sed -n '2,/^set -uo/{/^set -uo/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
}
out=bench/gpu/results seconds='' stages=() call=''
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=${2:?} && shift ;;
        --seconds) seconds=${2:?} && shift ;;
        --rehearse) device=cpu ;;
        first) call=first stages+=("${first[@]}") default_s=300 ;;
        second) call=second stages+=("${second[@]}") default_s=420 ;;
        *) limits_of "$1" >/dev/null || usage && stages+=("$1") ;;
    esac
    shift
done
[ ${#stages[@]} -gt 0 ] || usage
[ -x "$bin/atoll-trainer" ] || stages=(unpack "${stages[@]}")

begin_call "${call:-some}" "${seconds:-${default_s:-600}}" "$out" "$scratch"
export ATOLL_GPU_DEVICE=$device ATOLL_GPU_SCRATCH=$scratch
for stage in "${stages[@]}"; do
    read -r limit_s least_s < <(limits_of "$stage")
    run_stage "$stage" "$limit_s" "$least_s" bench/gpu/measure.sh "$stage"
done
status=0
end_call || status=1
rehearsal=()
[ "$device" != cpu ] || rehearsal=(--rehearsal)
[ -z "$python" ] || "$python" bench/gpu/results.py collect "$call" --out "$out" --scratch "$scratch" \
    --deadline "$call_deadline_s" "${rehearsal[@]}"
exit "$status"
