#!/usr/bin/env bash
# Runs the named benchmarks, or all: `./dev bench NAME…` builds what they need and calls this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=build/bench/bin python=$PWD/build/oracle/bin/python
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE # the machine's own kernels

all=(passes trainer aggregate)
for name in "${@:-${all[@]}}"; do
    printf '\n== %s\n' "$name"
    case $name in
        passes) "$bin/pass_bench" ;;
        trainer) bench/trainer/compare.py --trainer "$bin/atoll-trainer" --python "$python" ;;
        aggregate) bench/aggregate/compare.py --atoll "$PWD/$bin/atoll" --python "$python" ;;
        *) printf 'bench: unknown benchmark "%s"; there are: %s\n' "$name" "${all[*]}" >&2 && exit 2 ;;
    esac
done
