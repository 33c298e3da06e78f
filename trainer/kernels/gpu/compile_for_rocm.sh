#!/usr/bin/env bash
# compile_for_rocm.sh FOLDER: compiles each source of the GPU backend by hipcc to an object in FOLDER, and counts the
# kernels in its code for gfx90a. For a HIP without hipBLASLt, as Debian's is: products are compiled against the tests'
# declarations of it, and nothing is linked.
set -euo pipefail
folder=$1 architecture=gfx90a
mkdir -p "$folder"

# compile SOURCE
compile() {
    local name kernels
    name=$(basename "$1" .cu)
    hipcc -x hip --offload-arch=$architecture -std=c++20 -O3 -Wall -Wextra -Werror -save-temps=obj \
        -DATOLL_HIPBLASLT_SHIM -I. -c "$1" -o "$folder/$name.o"
    kernels=$(cat "$folder/$name-hip-"*"-$architecture.s" | grep -c '^[[:space:]]*\.amdhsa_kernel ' || true)
    if [ "$kernels" = 0 ] && grep -q '\<launch' "$1"; then
        echo "$1 launches kernels, and there are none in its code for $architecture" >&2
        return 1
    fi
    echo "$1: $kernels kernels for $architecture"
}

for source in trainer/kernels/gpu/*.cu; do compile "$source"; done
