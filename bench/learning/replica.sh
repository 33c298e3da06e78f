#!/bin/sh
# replica.sh PROGRAMS DIRECTORY: replica.py in an empty directory; exit 77: there is no python3.
set -eu
command -v python3 >/dev/null || { echo "there is no python3"; exit 77; }
rm -rf "$2"
# With AVX-512 the order of a product's sums depends on the processor, and ten rounds make 8 % of the last bits' difference; with AVX2
# the rounds are the same on every one, within 0.2 % of the replica's.
! grep -q avx2 /proc/cpuinfo || export ATOLL_INSTRUCTION_SET=avx2
exec python3 "$(dirname "$0")/replica.py" --programs "$1" --dir "$2"
