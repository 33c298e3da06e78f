#!/bin/sh
# liars.sh PROGRAMS DIRECTORY: some of liars.py's cases, in an empty directory; exit 77: there is no python3.
set -eu
command -v python3 >/dev/null || { echo "there is no python3"; exit 77; }
rm -rf "$2"
! grep -q avx2 /proc/cpuinfo || export ATOLL_INSTRUCTION_SET=avx2  # the same rounds on every processor (replica.sh)
exec python3 "$(dirname "$0")/liars.py" --programs "$1" --dir "$2" --check \
    --only "italian alone" "honest, plain mean" "honest" "-9 x" "-1 x" "-9 x, plain mean"
