#!/bin/bash
# build_trainer.sh OUT.sif [OPTION…]: builds the trainer's image as an ordinary user.
#
# --gpu cuda            for NVIDIA GPUs (trainer-cuda.def, 0.7 GB), not for CPUs alone (trainer-cpu.def)
# --base BASE           a Debian root: a directory or a tar file, as debootstrap and mmdebstrap make them, which needs no
#                       registry; or the name of one in a registry (default: debian:bookworm-slim)
# --programs DIRECTORY  of atoll and atoll-trainer as they were built on the base's release of Debian, as
#                       build/release/bin; without it they are built in the base from the sources. Of several, as
#                       build/cuda/bin:build/release/bin, each program is from the first that has it
# --cuda DIRECTORY      of Python's packages with CUDA's toolkit, cuDNN and NCCL; default: those of `./dev cuda`, which are got
#                       where they are not there (1.9 GB from PyPI)
#
# Needs Apptainer (containers/install_apptainer.sh), or SingularityCE 4, with a line of the user's in /etc/subuid; apt in
# the base. Files on the way are in $TMPDIR.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
fail() { printf 'build_trainer.sh: %s\n' "$*" >&2; exit 1; }

out='' base=debian:bookworm-slim programs='' gpu='' cuda=''
while [ $# -gt 0 ]; do
    case $1 in
        --base | --programs | --gpu | --cuda) [ $# -ge 2 ] || usage; declare "${1#--}=$2"; shift ;;
        -*) usage ;;
        *) [ -z "$out" ] || usage; out=$1 ;;
    esac
    shift
done
[ -n "$out" ] || usage
[ -z "$gpu" ] || [ "$gpu" = cuda ] || fail "--gpu: there is an image for cuda, not for '$gpu'"
[ -z "$cuda" ] || [ -n "$gpu" ] || fail "--cuda means nothing without --gpu cuda"
[ -e "$here/CMakeLists.txt" ] || fail "$here is no checkout of Atoll: the build needs all of it"
out=$(realpath "$out")
runtime=$(command -v apptainer || command -v singularity) || fail "no apptainer in PATH; containers/install_apptainer.sh"
work=$(mktemp -d)
trap 'chmod -R u+rwX "$work" && rm -rf "$work"' EXIT

# Device nodes and files that others may not read stay behind: the build has its own.
bootstrap=docker
if [ -e "$base" ]; then
    mkdir "$work/base"
    without=(--exclude=./dev/* --exclude=./proc/* --exclude=./sys/* --exclude=./var/cache/*)
    if [ -d "$base" ]; then
        tar -C "$base" -c --ignore-failed-read --warning=no-failed-read "${without[@]}" .
    else
        cat "$base"
    fi | tar -C "$work/base" -x --no-same-owner "${without[@]}"
    mkdir -p "$work/base"/{dev,proc,sys,root,var/cache/apt/archives/partial}
    bootstrap=localimage base=$work/base
fi

# program_of NAME: its file in the first of the directories that has it.
program_of() {
    local directory directories
    IFS=: read -ra directories <<<"$programs"
    for directory in "${directories[@]}"; do
        [ ! -x "$directory/$1" ] || { printf '%s\n' "$directory/$1"; return; }
    done
    fail "there is no $1 in $programs"
}

definition=trainer-${gpu:-cpu}.def
arguments=(--build-arg "BOOTSTRAP=$bootstrap" --build-arg "BASE=$base")
if [ "$gpu" = cuda ]; then
    if [ -z "$cuda" ]; then
        [ -x "$here/build/cuda-toolkit/bin/nvcc" ] || "$here/dev" cuda --toolkit
        cuda=$(realpath "$here/build/cuda-toolkit")/../..
    fi
    "$here/containers/collect_cuda.sh" "$cuda" "$work/cuda"
    export ATOLL_CUDA_PACKAGES=$cuda
    arguments+=(--build-arg "LIBRARIES=$work/cuda")
    [ -n "$programs" ] || arguments+=(--build-arg "PACKAGES=$(realpath "$cuda")")
fi
if [ -n "$programs" ]; then
    atoll=$(program_of atoll) trainer=$(program_of atoll-trainer)
    release() { sed -n 's/^VERSION_CODENAME=//p' "$1/etc/os-release"; }
    [ "$bootstrap" = docker ] || [ "$(release "$base")" = "$(release "")" ] ||
        fail "the programs are built for $(release ""), the base is $(release "$base"): leave --programs out"
    "$here/containers/collect.sh" "$work/programs" "$atoll" "$trainer"
    arguments+=(--build-arg "PROGRAMS=$work/programs")
fi
version=$(sed -n 's/^project(atoll VERSION \([0-9.]*\).*/\1/p' "$here/CMakeLists.txt")
source=$(git -c "safe.directory=$here" -C "$here" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
arguments+=(--build-arg "VERSION=$version" --build-arg "SOURCE=$source")

cd "$here"
"$runtime" build --force --fakeroot "${arguments[@]}" "$work/out.sif" "containers/$definition"
mv "$work/out.sif" "$out"
echo "$out: $(($(stat -c %s "$out") / 1000000)) MB, sha256 $(sha256sum "$out" | cut -d' ' -f1)"
