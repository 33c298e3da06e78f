#!/usr/bin/env bash
# measure.sh STAGE: one stage of run.sh, which calls this with what stages.sh promises and
#   ATOLL_GPU_DEVICE      cuda, or cpu for a rehearsal with small models
#   ATOLL_GPU_SCRATCH     a folder for models and logs
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
. bench/gpu/stages.sh
. tests/gpu/gpu_tests.sh
readonly bin=build/gpu/bin device=$ATOLL_GPU_DEVICE scratch=$ATOLL_GPU_SCRATCH
python=$(command -v python3 || command -v python)
SECONDS=0

# Where our programs find the bundle's libraries and CUDA's; empty where CUDA's are not there. For them alone: a Python
# has its own.
library_folder() {
    local path
    path=$([ -z "$python" ] || "$python" bench/gpu/facts.py --library "$1")
    [ -z "$path" ] || dirname "$path"
}
ATOLL_GPU_LIBRARIES=
if [ -n "$(library_folder libcublasLt.so.13)" ]; then
    ATOLL_GPU_LIBRARIES=$PWD/build/gpu/lib
    # The last three are for attention by cuDNN, which is by products without them.
    for library in libcublasLt.so.13 libcudnn.so.9 libnvrtc.so.13 libcudart.so.13; do
        folder=$(library_folder $library)
        [[ -z $folder || :$ATOLL_GPU_LIBRARIES: == *:$folder:* ]] || ATOLL_GPU_LIBRARIES+=:$folder
    done
    ATOLL_GPU_LIBRARIES+=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
export ATOLL_GPU_LIBRARIES
if [ -d build/gpu/mpi ]; then
    export PATH=$PWD/build/gpu/mpi/bin:$PATH
    export OPAL_PREFIX=$PWD/build/gpu/mpi PMIX_INSTALL_PREFIX=$PWD/build/gpu/mpi/pmix2
fi

rehearses() { [ "$device" = cpu ]; }
# lack TEXT: why this stage cannot run.
lack() {
    printf '%s\n' "$*" | tee -a "$STAGE_WHY"
    exit "$stage_lacks"
}
need_card() {
    rehearses && return
    compgen -G '/dev/nvidia[0-9]*' >/dev/null || command -v nvidia-smi >/dev/null || lack "there is no NVIDIA card here"
    nvidia-smi -L >/dev/null 2>&1 || lack "nvidia-smi finds no card: $(nvidia-smi -L 2>&1 | head -n 1)"
}
need_programs() {
    local program
    for program in "$@"; do
        [ -x "$bin/$program" ] || lack "$bin/$program is not there: './dev cuda --bundle' makes build/gpu-bundle.tar.xz"
    done
    [ -n "$ATOLL_GPU_LIBRARIES" ] || lack "there is no libcublasLt.so.13: neither in a package of $python nor in /usr/local/cuda"
}
need_python() { [ -n "$python" ] || lack "there is no Python"; }

# ours COMMAND…: one of our programs, with the bundle's libraries.
ours() { LD_LIBRARY_PATH=$ATOLL_GPU_LIBRARIES "$@"; }

measure_unpack() {
    [ -e build/gpu-bundle.tar.xz ] || lack "build/gpu-bundle.tar.xz is not there: './dev cuda --bundle' makes it"
    if command -v xz >/dev/null; then
        tar -C build -xJf build/gpu-bundle.tar.xz
    else
        need_python
        "$python" -c 'import tarfile; tarfile.open("build/gpu-bundle.tar.xz").extractall("build")'
    fi
}

measure_facts() {
    need_python
    "$python" bench/gpu/facts.py | tee -a "$STAGE_MEASURES"
    need_card
    need_programs kernel_bench
    run_kernel_bench --ceilings
}

# run_kernel_bench FLAG…: a status that is not that of tee.
run_kernel_bench() {
    local flags=("$@") status
    ! rehearses || flags+=(--small)
    ours "$bin/kernel_bench" "$device" "${flags[@]}" | tee -a "$STAGE_MEASURES"
    status=${PIPESTATUS[0]}
    return "$status"
}

# run_tests NAME FILTER COMMAND…: one program of tests in what is left of the stage; a line of what came of it.
run_tests() {
    local name=$1 filter=$2 left_s log passed failed rc=0 began_ms
    shift 2
    left_s=$((STAGE_LIMIT_S - SECONDS - 2))
    if ((left_s < 5)); then
        printf '{"name": "tests.%s", "left_out": "%d s were left"}\n' "$name" "$left_s" | tee -a "$STAGE_MEASURES"
        printf '%s ' "$name" >>"$STAGE_WHY"
        tests_left_out=1
        return
    fi
    log=$scratch/tests-$name.log
    began_ms=$(now_ms)
    ours timeout --kill-after=2 "$left_s" "$@" --gtest_filter="$filter" >"$log" 2>&1 || rc=$?
    passed=$(grep -c '^\[       OK \]' "$log")
    failed=$(grep -cE '^\[  FAILED  \] .*\([0-9]+ ms' "$log")
    printf '{"name": "tests.%s", "passed": %d, "failed": %d, "rc": %d, "seconds": %s}\n' "$name" "$passed" "$failed" \
        "$rc" "$(seconds_since "$began_ms")" | tee -a "$STAGE_MEASURES"
    if [ "$rc" = 124 ]; then
        printf '%s (stopped after %d passed) ' "$name" "$passed" >>"$STAGE_WHY"
        tests_left_out=1
    elif [ "$rc" != 0 ]; then
        grep -E ': Failure|FAILED|rror' "$log" | head -n 20
        tail -n 10 "$log"
        tests_failed=1
    fi
}
# Ends a stage of tests.
end_tests() {
    ((tests_failed == 0)) || exit 1
    ((tests_left_out == 0)) || exit "$stage_in_part"
}

measure_numerics() {
    local test tests_failed=0 tests_left_out=0
    need_card
    need_programs atoll-trainer "${gpu_tests[@]/#/atoll_}"
    if ! rehearses &&
        [ "$(ours "$bin/atoll_kernels_test" --gtest_list_tests --gtest_filter='*gpu*' | grep -c gpu)" = 0 ]; then
        echo "there is a card, but its driver shows none to the tests" | tee -a "$STAGE_WHY"
        return 1
    fi
    ours "$bin/atoll-trainer" verify >"$scratch/verify.log" 2>&1 || tests_failed=1
    printf '{"name": "verify", "lines": %d, "failed": %d}\n' "$(wc -l <"$scratch/verify.log")" "$tests_failed" |
        tee -a "$STAGE_MEASURES"
    for test in "${gpu_tests[@]}"; do run_tests "$test" "$gpu_test_filter" "$bin/atoll_$test"; done
    run_tests two_ranks_that_share_the_card 'GpuDeviceTest.*' tests/mpirun.sh 2 "$bin/atoll_engine_test"
    end_tests
}

measure_autotune() {
    lack "the backend has no table of kernels to tune yet: products take the first that cuBLASLt offers"
}

measure_kernels() {
    local status=0
    need_card
    need_programs kernel_bench
    run_kernel_bench --seconds $((STAGE_LIMIT_S * 6 / 10)) || return
    ! grep -q '"left_out"' "$STAGE_MEASURES" || status=$stage_in_part
    STAGE_LIMIT_S=$((STAGE_LIMIT_S - SECONDS)) python_stage sdpa.py --device "$device" || status=$?
    return "$status"
}

# python_stage SCRIPT ARGUMENT…
python_stage() {
    local script=$1 small=()
    shift
    need_python
    case $script in
        edge.py | sdpa.py) ! rehearses || small=(--small) ;;
    esac
    "$python" "bench/gpu/$script" "$@" "${small[@]}"
}

measure_program() {
    local tests_failed=0 tests_left_out=0 filter=$gpu_program_tests
    need_card
    need_programs atoll-trainer atoll_trainer_program_test
    ! rehearses || filter='StandingStillTest.*'
    ATOLL_TEST_DEVICE=$device run_tests program "$filter" "$bin/atoll_trainer_program_test"
    end_tests
}

measure_memcheck() {
    local sanitizer tests_failed=0 tests_left_out=0
    need_card
    need_programs atoll_kernels_test
    sanitizer=$(command -v compute-sanitizer || compgen -G '/usr/local/cuda*/bin/compute-sanitizer' | head -n 1)
    [ -n "$sanitizer" ] || lack "there is no compute-sanitizer here"
    run_tests memcheck '*gpu*:GpuDeviceTest.*' "$sanitizer" --tool memcheck --error-exitcode 9 "$bin/atoll_kernels_test"
    end_tests
}

# train MODEL FLAG…
train() {
    local model=$1
    shift
    need_card
    need_programs atoll-trainer
    ! rehearses || model=tiny
    python_stage train.py "$model" --trainer "$bin/atoll-trainer" --device "$device" --scratch "$scratch" "$@"
}
measure_compiled() {
    local status=0
    STAGE_LIMIT_S=$((STAGE_LIMIT_S * 2 / 3)) train 852m --compiled || status=$?
    STAGE_LIMIT_S=$((STAGE_LIMIT_S - SECONDS)) train 33m --compiled || status=$?
    return "$status"
}

measure_adapters() {
    train 852m --adapters
}

measure_curves() {
    local fewer=()
    need_card
    need_programs atoll-trainer
    ! rehearses || fewer=(--steps 30)
    python_stage curves.py compare --trainer "$bin/atoll-trainer" --device "$device" --scratch "$scratch" "${fewer[@]}"
}

measure_edge() {
    need_card
    need_programs atoll-trainer
    python_stage edge.py --trainer "$bin/atoll-trainer" --device "$device" --scratch "$scratch"
}

case ${1:-} in
    unpack) measure_unpack ;;
    facts) measure_facts ;;
    numerics) measure_numerics ;;
    autotune) measure_autotune ;;
    kernels) measure_kernels ;;
    program) measure_program ;;
    memcheck) measure_memcheck ;;
    train-33m) train 33m ;;
    train-852m) train 852m ;;
    adapters) measure_adapters ;;
    curves) measure_curves ;;
    compiled) measure_compiled ;;
    edge) measure_edge ;;
    *) printf 'measure.sh: there is no stage "%s"\n' "${1:-}" >&2 && exit 2 ;;
esac
