#!/usr/bin/env bash
# The CPU trainer's image as an ordinary user of this machine builds it, without a registry. For tests; needs root.
#
#   image.sh why-not USER                       says why USER cannot run containers here; nothing: USER can
#   image.sh build USER PROGRAMS OUT.sif        from a Debian that debootstrap makes once ($ATOLL_IMAGE_BASE, default:
#                                               /var/tmp/atoll-image-base), with the programs of that directory
#   image.sh directory USER IMAGE.sif DIRECTORY makes a directory of the image, DIRECTORY/atoll-trainer
#   image.sh in-bare USER DIRECTORY COMMAND…    runs it in that Debian, as root, with the directory at /mnt and no network
#                                               but lo: MPI takes no bridge of this machine for one that joins ranks
#
# Needs debootstrap; installs Apptainer where it is missing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
base=${ATOLL_IMAGE_BASE:-/var/tmp/atoll-image-base}
action=$1 user=$2
as_user() { setpriv --reuid="$user" --regid="$user" --init-groups env HOME="$(getent passwd "$user" | cut -d: -f6)" "$@"; }

case $action in
    why-not)
        as_user unshare --user --map-root-user true 2>/dev/null || echo "users have no user namespaces on this machine"
        ;;
    build)
        [ -n "$(command -v apptainer)" ] || "$root/containers/install_apptainer.sh"
        if [ ! -d "$base" ]; then
            release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
            rm -rf "$base.new"
            debootstrap --variant=minbase "$release" "$base.new"
            mv "$base.new" "$base"
        fi
        cd /
        as_user TMPDIR=/var/tmp "$root/containers/build_trainer.sh" "$4" --base "$base" --programs "$3"
        ;;
    directory)
        cd /
        as_user TMPDIR=/var/tmp "$root/containers/make_directory.sh" "$3" "$4/atoll-trainer.tar.gz"
        as_user tar -C "$4" -xf "$4/atoll-trainer.tar.gz"
        ;;
    in-bare)
        directory=$3
        shift 3
        # shellcheck disable=SC2016  # of the inner shell
        unshare --mount --net --propagation private sh -c 'ip link set lo up && mount --bind "$1" "$2/mnt" &&
            mount -t proc proc "$2/proc" && cd / && root=$2 && shift 2 && exec chroot "$root" env -i PATH=/mnt/atoll-trainer/bin:/usr/bin:/bin "$@"' \
            sh "$directory" "$base" "$@"
        ;;
esac
