#!/bin/bash
# collect_cuda.sh PACKAGES OUT: copies the files of cuda_libraries.txt from PACKAGES, the folder of a Python's packages, to OUT/lib,
# with their packages' licences in OUT/licenses; OUT/labels has their versions, as labels of an image.
set -euo pipefail
packages=$1 out=$2
here=$(dirname "${BASH_SOURCE[0]}")
fail() { printf 'collect_cuda.sh: %s\n' "$*" >&2; exit 1; }

# about NAME: the folder with a package's version and licence.
about() {
    local found
    found=$(compgen -G "$packages/${1//-/_}-*.dist-info") || fail "$1 is not in $packages: './dev cuda --toolkit' gets it"
    printf '%s\n' "$found"
}
version_of() { basename "$(about "$1")" .dist-info | sed 's/.*-//'; }

mkdir -p "$out/lib" "$out/licenses"
while read -r package file; do
    case $package in '' | '#'*) continue ;; esac
    folder=$(about "$package")
    install -m 644 "$packages/$file" "$out/lib/"
    find "$folder" -iname 'license*' -type f -exec install -m 644 {} "$out/licenses/$package" \;
done <"$here/cuda_libraries.txt"
{
    echo "org.atoll.cuda.toolkit $(version_of nvidia-cuda-nvcc)"
    echo "org.atoll.cuda.cublas $(version_of nvidia-cublas)"
    echo "org.atoll.cuda.cudnn $(version_of nvidia-cudnn-cu13)"
    echo "org.atoll.cuda.nccl $(version_of nvidia-nccl-cu13)"
} >"$out/labels"
