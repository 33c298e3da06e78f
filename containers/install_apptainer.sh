#!/bin/bash
# Installs Apptainer on Debian, as root: the distribution's package where there is one. Bookworm and trixie have none; there
# it is the one of Debian's unstable release, whose programs get that release's C library in a directory of their own.
set -euo pipefail
! command -v apptainer >/dev/null || exit 0
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -q --no-install-recommends "$@"; }
apt-get update -q
install squashfs-tools squashfuse fuse2fs fuse-overlayfs uidmap ca-certificates debian-archive-keyring
if ! install apptainer; then
    install patchelf
    private=/opt/apptainer-sid libraries=/opt/apptainer-sid/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work"/{state/lists/partial,cache/archives/partial} "$private"
    : >"$work/status" # apt's state for it is apart: the machine's own sources stay as they are
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' | head -n 1)
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$work/sid.list"
    apt=(apt-get -qq -o "Dir::State=$work/state" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache"
        -o "Dir::Etc::sourcelist=$work/sid.list" -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=root)
    cd "$work"
    "${apt[@]}" update
    "${apt[@]}" download apptainer libc6 libseccomp2 libsqlite3-0
    for package in libc6 libseccomp2 libsqlite3-0; do dpkg-deb -x "$package"_*.deb "$private"; done
    dpkg-deb -x apptainer_*.deb app
    for program in app/usr/bin/apptainer app/usr/lib/*/apptainer/bin/starter; do
        # DT_RPATH is inherited by what a library loads, DT_RUNPATH is not.
        patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$libraries" "$program"
    done
    cp -a app/usr/bin/apptainer /usr/bin/
    cp -a app/usr/lib/*/apptainer "/usr/lib/$(basename "$libraries")/"
    cp -a app/etc/apptainer /etc/
    mkdir -p /var/lib/apptainer/mnt/session
fi
[ ! -e /dev/fuse ] || chmod 666 /dev/fuse # as udev has it
apptainer --version
