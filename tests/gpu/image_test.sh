#!/usr/bin/env bash
# The image for NVIDIA GPUs: it holds what the program opens, of packages that are pinned; containers/README.md says what is in it; and
# where it need not differ from the CPU's it does not. Builds nothing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
failures=0
wrong() {
    printf '%s\n' "$*"
    failures=$((failures + 1))
}
readonly list=containers/cuda_libraries.txt pins=trainer/kernels/gpu/requirements.txt readme=containers/README.md
held=$(sed '/^#/d' $list | awk 'NF {print $2}' | xargs -n 1 basename)
pin_of() { sed -n "s/^$1==\([0-9.]*\) .*/\1/p" $pins; }

# What is linked or opened, by name.
opened=$(grep -ohE 'lib[A-Za-z]+\.so\.[0-9]+' trainer/kernels/CMakeLists.txt trainer/kernels/gpu/sdpa_cudnn.cpp trainer/comm/nccl.cpp |
    sort -u)
[ "$(wc -l <<<"$opened")" -ge 4 ] || wrong "the sources name fewer libraries than they open: $opened"
for library in $opened; do
    grep -qxF "$library" <<<"$held" || wrong "the program opens $library, and $list does not have it"
done
while read -r package file; do
    [ -n "$(pin_of "$package")" ] || wrong "$pins does not pin $package, of which $list has $file"
    [[ $file == nvidia/* ]] || wrong "$list: $file"
done < <(sed '/^#/d; /^$/d' $list)

architectures=$(sed -n 's/.*"CMAKE_CUDA_ARCHITECTURES": "\([^"]*\)".*/\1/p' CMakePresets.json | tr ';' '\n' |
    sed -E 's/^(.*)-real$/sm_\1/; s/^(.*)-virtual$/compute_\1/' | paste -sd, | sed 's/,/, /g')
for said in "$architectures" "cuDNN $(pin_of nvidia-cudnn-cu13)" "NCCL $(pin_of nvidia-nccl-cu13)" \
    "cuBLAS $(pin_of nvidia-cublas)" "toolkit $(pin_of nvidia-cuda-nvcc)"; do
    grep -qF "$said" $readme || wrong "$readme does not say '$said'"
done

# section FILE NAME…: those sections of a definition, without comments.
section() {
    local file=$1 name
    shift
    for name in "$@"; do
        awk -v name="%$name" '/^%/ {within = $0 == name} within && !/^#/ && NF' "$file"
    done
}
same=(environment runscript 'apprun report' 'apprun train' 'apprun eval' 'apprun tokenize' 'apprun atoll')
[ "$(section containers/trainer-cpu.def "${same[@]}" | wc -l)" -ge 14 ] || wrong "trainer-cpu.def has not the sections that are compared"
readonly jit='CUDNN_LIB_CONFIG=GRAPH_JIT_ONLY'
diff <(section containers/trainer-cpu.def "${same[@]}") <(section containers/trainer-cuda.def "${same[@]}" | grep -v "$jit") ||
    wrong "the definitions differ in ${same[*]}"
# Without it cuDNN wants all of its libraries.
for file in containers/trainer-cuda.def containers/trainer-cuda/Dockerfile containers/make_directory.sh; do
    grep -q "$jit" $file || wrong "$file does not set $jit"
done

[ "$failures" = 0 ] || exit 1
