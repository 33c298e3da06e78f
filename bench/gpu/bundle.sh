#!/usr/bin/env bash
# bundle.sh: packs what run.sh needs on a machine with a card, out of build/gpu, into build/gpu-bundle.tar.xz: the
# programs, stripped, the libraries that they need but for the C library's and CUDA's, and Open MPI to start ranks.
# Prints what is in it, and fails where it and the checkout are more than 64 MiB together. `./dev cuda --bundle` builds
# and calls this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/gpu/gpu_tests.sh
readonly most_bytes=$((64 << 20)) build=build/gpu staging=build/gpu-bundle archive=build/gpu-bundle.tar.xz
readonly system=/usr/lib/x86_64-linux-gnu

programs=(atoll-trainer kernel_bench atoll_trainer_program_test "${gpu_tests[@]/#/atoll_}")
missing=()
for program in "${programs[@]}"; do [ -x "$build/bin/$program" ] || missing+=("$program"); done
[ ${#missing[@]} = 0 ] || { echo "build/gpu/bin lacks ${missing[*]}; './dev cuda --bundle' builds them" >&2 && exit 1; }

rm -rf "$staging" "$archive"
mkdir -p "$staging/gpu/bin" "$staging/gpu/lib" "$staging/gpu/trainer/program" "$staging/gpu/mpi/bin"
for program in "${programs[@]}"; do strip -o "$staging/gpu/bin/$program" "$build/bin/$program"; done
# What tests of the program preload into it.
for preloaded in "$build"/trainer/program/libatoll_*.so; do
    strip -o "$staging/gpu/trainer/program/${preloaded##*/}" "$preloaded"
done

# Open MPI and the PMIx that it starts ranks by, in the folders that OPAL_PREFIX and PMIX_INSTALL_PREFIX lead to.
# Plugins that need a network card's libraries stay here.
cp -L "$(readlink -f "$(command -v mpirun)")" "$staging/gpu/mpi/bin/mpirun"
copy_plugins() { # FOLDER INTO
    local plugin needed
    mkdir -p "$2"
    for plugin in "$1"/*.so; do
        needed=$(ldd "$plugin")
        [[ $needed =~ lib(fabric|ucp|uct|ucs|psm2|psm_infinipath|rdmacm|ibverbs|cuda)|not\ found ]] || cp -L "$plugin" "$2"
    done
}
copy_plugins "$system/openmpi/lib/openmpi3" "$staging/gpu/mpi/lib/x86_64-linux-gnu/openmpi/lib/openmpi3"
copy_plugins "$system/pmix2/lib/pmix" "$staging/gpu/mpi/pmix2/lib/pmix"
mkdir -p "$staging/gpu/mpi/share/openmpi" "$staging/gpu/mpi/pmix2/share/pmix"
cp -L /usr/share/openmpi/*.txt "$staging/gpu/mpi/share/openmpi"

# Every library but those that must be the machine's own.
find "$staging" -type f \( -perm -u+x -o -name '*.so' \) -print0 |
    LD_LIBRARY_PATH=build/cuda-toolkit/lib xargs -0 ldd 2>/dev/null |
    awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
    grep -vE '^(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|nsl|anl|cublasLt|cudart|cuda)\.so)' |
    while read -r name path; do strip -o "$staging/gpu/lib/$name" "$(readlink -f "$path")"; done

commit=$(git rev-parse --short=12 HEAD)
[ -z "$(git status --porcelain --untracked-files=no)" ] || commit+=" and changes"
architectures=$(sed -n 's/^CMAKE_CUDA_ARCHITECTURES:[A-Z]*=//p' "$build/CMakeCache.txt")
cat >"$staging/gpu/bundle.json" <<JSON
{"commit": "$commit", "built": "$(date -u +%FT%TZ)", "architectures": "$architectures"}
JSON
cp "$staging/gpu/bundle.json" "$build/bundle.json"

tar -C "$staging" --sort=name --owner=0 --group=0 -cf - gpu | xz -1 >"$archive"
checkout_bytes=$(git ls-files -z | xargs -0 stat -c %s | awk '{ sum += $1 } END { print sum }')
archive_bytes=$(stat -c %s "$archive")

mib() { awk -v bytes="$1" 'BEGIN { printf "%.1f MiB", bytes / 1048576 }'; }
printf 'in %s, unpacked:\n' "$archive"
find "$staging/gpu/bin" "$staging/gpu/lib" -type f -printf '%s %P\n' | sort -rn |
    while read -r bytes name; do printf '  %10s  %s\n' "$(mib "$bytes")" "$name"; done
printf '  %10s  Open MPI\n' "$(mib "$(du -sb "$staging/gpu/mpi" | cut -f 1)")"
printf 'packed %s, the checkout %s, together %s of %s; %s, architectures %s\n' "$(mib "$archive_bytes")" \
    "$(mib "$checkout_bytes")" "$(mib $((archive_bytes + checkout_bytes)))" "$(mib "$most_bytes")" "$commit" \
    "$architectures"
if ((archive_bytes + checkout_bytes > most_bytes)); then
    echo "that is too much to take along: build for one architecture, or take fewer tests (tests/gpu/gpu_tests.sh)" >&2
    exit 1
fi
