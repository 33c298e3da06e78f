#!/bin/bash
# build.sh OUT TARGET…: the build stage of every image, in the root of the sources. Installs what building needs,
# builds the targets, and leaves OUT/bin and OUT/packages: the Debian packages with the libraries that they load.
# ATOLL_PRESET: another preset than release. ATOLL_CUDA_PACKAGES: as collect.sh has it.
set -euo pipefail
out=$1
shift
export DEBIAN_FRONTEND=noninteractive
if ! command -v cmake >/dev/null; then  # else the stage before installed all of it
    apt-get update -q
    # Not the stack's own programs, nor what only tests need.
    grep -vE '^(#|$|postgresql|maven|default-jre|nginx|libgtest|libbenchmark|wrk|nodejs|fortunes|git|curl|procps|openssh|slurm|munge)' packages.txt |
        xargs apt-get install -y -q --no-install-recommends
fi
preset=${ATOLL_PRESET:-release}
cmake --preset "$preset" -DATOLL_TESTS=OFF -DATOLL_DEMO=OFF ${ATOLL_CMAKE_OPTIONS:-}
cmake --build "build/$preset" -j "$(nproc)" --target "$@"
containers/collect.sh "$out" "${@/#/build/$preset/bin/}"
