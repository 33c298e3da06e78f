#!/bin/bash
# collect.sh OUT PROGRAM…: leaves OUT/bin with the programs, without symbols, and OUT/packages: the Debian packages with the
# libraries that they load. ATOLL_CUDA_PACKAGES: the folder of a Python's packages with CUDA's libraries, which are none of Debian's
# (collect_cuda.sh).
set -euo pipefail
out=$1
shift
mkdir -p "$out/bin"
install -s "$@" "$out/bin/"
cuda=${ATOLL_CUDA_PACKAGES:+$(realpath "$ATOLL_CUDA_PACKAGES")}
[ -z "$cuda" ] || export LD_LIBRARY_PATH=$cuda/nvidia/cu13/lib
lacking=$(ldd "$out"/bin/* | awk '/=> not found/ {print $1}' | sort -u)
[ -z "$lacking" ] || { echo "collect.sh: this machine lacks ${lacking//$'\n'/, }" >&2; exit 1; }
# The package of each library, asked at once, as each question reads all of dpkg's lists. dpkg knows some by "/lib/…", though "/lib"
# is a link to "/usr/lib".
mapfile -t libraries < <(ldd "$out"/bin/* | awk '/=> \// {print $3}' | sort -u | xargs readlink -f |
    { [ -z "$cuda" ] && cat || grep -v "^$cuda/"; } | sort -u)
found=$(dpkg -S "${libraries[@]}" "${libraries[@]#/usr}" 2>/dev/null || true)
for library in "${libraries[@]}"; do
    [[ $found$'\n' == *": $library"$'\n'* ]] || [[ $found$'\n' == *": ${library#/usr}"$'\n'* ]] || { echo "collect.sh: no package has $library" >&2; exit 1; }
done
sed 's/:.*//' <<<"$found" | sort -u >"$out/packages"
