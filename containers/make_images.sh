#!/bin/bash
# make_images.sh [OPTION…]
# Makes the coordinator's Docker images: atoll-services, atoll-postgres and atoll-kafka.
#
# --debian IMAGE        an image of Debian bookworm; without it one is made by make_base.sh, and no registry is asked
# --programs DIRECTORY  programs that were built on bookworm, as build/release/bin; without it they are compiled in an
#                       image (about four minutes on two cores)
# --jars DIRECTORY      Kafka's jars as compose/kafka/pom.xml pins them; without it Maven fetches them
# --uid N               the user of all containers (default: yours; 10001 for root)
# --tag TAG             of the images (default: latest)
# --refresh             with Debian's packages of today, where without it an image that was made stays
# --with LIST           further images, comma-separated: observe (Prometheus, Alertmanager), site (a simulated site), trainer
#                       (the CPU trainer with its MPI), trainer-cuda (that for NVIDIA GPUs, on top of it: 1 GB more; of what
#                       `./dev cuda` has built on bookworm)
set -euo pipefail
umask 022  # images are for a user who is not this one
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
fail() { printf 'make_images.sh: %s\n' "$*" >&2; exit 1; }

debian='' programs='' jars='' with='' tag=latest uid=$(id -u) refresh=()
[ "$uid" != 0 ] || uid=10001
while [ $# -gt 0 ]; do
    case $1 in
        --debian | --programs | --jars | --uid | --tag | --with) [ $# -ge 2 ] || usage; declare "${1#--}=$2"; shift ;;
        --refresh) refresh=(--no-cache) ;;
        *) usage ;;
    esac
    shift
done
for image in ${with//,/ }; do
    [[ $image =~ ^(observe|site|trainer|trainer-cuda)$ ]] ||
        fail "--with: must be of observe, site, trainer and trainer-cuda, not '$image'"
done
if [[ ,$with, = *,trainer-cuda,* ]]; then
    [ -x "$here/build/cuda/bin/atoll-trainer" ] ||
        fail "--with trainer-cuda: there is no build/cuda/bin/atoll-trainer; './dev cuda' builds it"
    with+=,trainer
fi
work=$(mktemp -d)
# end_below PID: ends what the process started, and what that started.
end_below() {
    local child
    for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        end_below "$child"
        kill "$child" 2>/dev/null || true
    done
}
trap 'end_below $$; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# step WHAT COMMAND…: says that it begins and how long it took; shows the end of its output if it fails.
step() {
    local what=$1 started=$SECONDS log
    shift
    log=$(mktemp "$work/log.XXXXXX")
    printf '%s …\n' "$what" >&2
    if ! "$@" >"$log" 2>&1; then
        { tail -30 "$log"; printf 'make_images.sh: %s failed\n' "$what"; } >&2
        return 1
    fi
    printf '%s: %d s\n' "$what" $((SECONDS - started)) >&2
}

# together FUNCTION…: runs them side by side. Where one fails the others are ended.
together() {
    local one
    for one in "$@"; do
        "$one" &
    done
    for one in "$@"; do
        wait -n && continue
        end_below "$BASHPID"
        return 1
    done
}

version=$(sed -n 's/^project(atoll VERSION \([0-9.]*\).*/\1/p' "$here/CMakeLists.txt")
revision=$(git -c "safe.directory=$here" -C "$here" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)

# build NAME DOCKERFILE CONTEXT [OPTION…]
build() {
    local name=$1 file=$2 context=$3
    shift 3
    step "image $name" docker build -q -f "$file" -t "$name:$tag" --build-arg "DEBIAN=$debian" \
        "${refresh[@]}" --build-arg "ATOLL_UID=$uid" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" "$@" "$context"
}

# import_programs IMAGE PROGRAM…: the programs and the list of their packages, as an image of files alone.
import_programs() {
    local image=$1
    shift
    "$here/containers/collect.sh" "$work/$image" "${@/#/$programs/}" || return
    import_files "$image"
}

# import_cuda_programs IMAGE: the trainer of build/cuda, with CUDA's libraries.
import_cuda_programs() {
    local packages
    packages=$(realpath "$here/build/cuda-toolkit/../..") || return
    "$here/containers/collect_cuda.sh" "$packages" "$work/$1/cuda" || return
    ATOLL_CUDA_PACKAGES=$packages "$here/containers/collect.sh" "$work/$1" "$here/build/cuda/bin/atoll-trainer" || return
    import_files "$1"
}

# Versions and architectures of what import_cuda_programs IMAGE has taken, as options of docker build.
label_cuda() {
    sed 's/^\([^ ]*\) /--label=\1=/' "$work/$1/cuda/labels"
    LD_LIBRARY_PATH=$work/$1/cuda/lib "$work/$1/bin/atoll-trainer" report |
        sed -n 's/.*"gpu_architectures":\[\([^]]*\)\].*/\1/p' | tr -d '"' | sed 's/^/--label=org.atoll.cuda.architectures=/'
}

# import_files IMAGE: what is in the folder of that name.
import_files() {
    local image=$1
    tar -C "$work/$image" --sort=name --mtime=@0 --owner=0 --group=0 -cf "$work/$image.tar" .
    # The same programs are the same image: containers of it are not made anew.
    local sum
    sum=$(sha256sum <"$work/$image.tar" | cut -d' ' -f1)
    [ "$(docker image inspect --format '{{index .Config.Labels "atoll.sha256"}}' "$image:$tag" 2>/dev/null)" = "$sum" ] ||
        docker import -c "LABEL atoll.sha256=$sum" "$work/$image.tar" "$image:$tag"
}

# make_programs IMAGE TARGET PROGRAM…: of the directory of programs, or compiled as that target of programs.Dockerfile.
make_programs() {
    if [ -n "$programs" ]; then
        step "image $1" import_programs "$1" "${@:3}"
    else
        # What was compiled stays also with --refresh: the libraries are those of the image that it is copied into.
        local refresh=()
        build "$1" "$here/containers/programs.Dockerfile" "$here" --target "$2"
    fi
}

fetch_jars() {
    mvn -B -ntp -q -f "$here/compose/kafka/pom.xml" -Dkafka.lib="$work/kafka/lib" dependency:copy-dependencies
}

make_base() {
    docker image inspect "$debian" >/dev/null 2>&1 || step "image $debian" "$here/containers/make_base.sh" "$debian"
}

get_jars() {
    [ -n "$jars" ] || { [ ! -d "$here/build/kafka/lib" ] || jars=$here/build/kafka/lib; }
    if [ -n "$jars" ]; then
        cp "$jars"/*.jar "$work/kafka/lib/"
    else
        command -v mvn >/dev/null || fail "install maven, which fetches Kafka's jars, or name a directory of them with --jars"
        step "Kafka's jars" fetch_jars ||
            fail "Maven cannot fetch Kafka's jars. It asks Maven Central, or the mirror in ~/.m2/settings.xml; fetched elsewhere, name their directory with --jars"
    fi
    (cd "$work/kafka/lib" && sha256sum --check --strict --status "$here/compose/kafka/checksums.sha256") ||
        fail "Kafka's jars differ from compose/kafka/checksums.sha256"
}

# made_of PROGRAMS IMAGE DIRECTORY [OPTION…]: builds the image of the directory's Dockerfile, with the programs of that image.
made_of() { build "$2" "$3/Dockerfile" "$3" --build-arg "PROGRAMS=$1:$tag" "${@:4}"; }
wants() { [[ ,$with, == *,$1,* ]]; }

make_services() { made_of atoll-programs atoll-services "$here/containers/services"; }
make_sites() {
    wants site || wants trainer || return 0
    make_programs atoll-site-programs site atoll atoll-trainer || return
    for image in site trainer; do
        ! wants "$image" || made_of atoll-site-programs "atoll-$image" "$here/containers/$image" || return
    done
    wants trainer-cuda || return 0
    local labels
    step "image atoll-cuda-programs" import_cuda_programs atoll-cuda-programs || return
    mapfile -t labels < <(label_cuda atoll-cuda-programs)
    made_of atoll-cuda-programs atoll-trainer-cuda "$here/containers/trainer-cuda" --build-arg "TRAINER=atoll-trainer:$tag" "${labels[@]}"
}
# What the compiler leaves idle, as it waits for the network and the disk, is enough for the images that hold no program of ours.
compile() {
    make_programs atoll-programs services atoll atoll-registry atoll-store atoll-dispatch atoll-aggregation &&
        together make_services make_sites
}
install_others() {
    build atoll-postgres "$here/containers/postgres/Dockerfile" "$here/containers/postgres" || return
    build atoll-kafka "$work/kafka/Dockerfile" "$work/kafka" || return
    ! wants observe || build atoll-observe "$here/containers/observe/Dockerfile" "$here/containers/observe"
}

cp -r "$here/containers/kafka" "$work/kafka"
mkdir "$work/kafka/lib"
base=()
[ -n "$debian" ] || { debian=atoll-debian:bookworm base=(make_base); }
{ together "${base[@]}" get_jars && together compile install_others; } ||
    fail "not all images were made, and what was being made has been ended; the same command again begins with what is missing"
