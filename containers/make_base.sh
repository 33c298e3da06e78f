#!/bin/bash
# make_base.sh IMAGE: makes a Docker image of a minimal Debian bookworm without a registry, from the packages of this
# machine's Debian mirrors (ATOLL_DEBIAN_MIRROR and ATOLL_DEBIAN_SECURITY_MIRROR name others). Needs root and debootstrap, or mmdebstrap.
set -euo pipefail
umask 022
image=${1:?usage: make_base.sh IMAGE}
fail() { printf 'make_base.sh: %s\n' "$*" >&2; exit 1; }
suite=bookworm

# uri_of SUITE: the address from which this machine gets the suite's packages, or those of another release, as an archive has several;
# empty: it has no such source.
uri_of() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' 'Origin: Debian' 2>/dev/null |
        awk -v suite="$1" '$3 != "main" {next} $2 == suite {same = $1} ($2 ~ /-security$/) == (suite ~ /-security$/) {other = other ? other : $1}
            END {if (same || other) print same ? same : other}'
}
mirror=${ATOLL_DEBIAN_MIRROR:-$(uri_of "$suite")}
security=${ATOLL_DEBIAN_SECURITY_MIRROR:-$(uri_of "$suite-security")}
[ -n "$mirror" ] || fail "apt has no source for Debian $suite here: set ATOLL_DEBIAN_MIRROR to the URL of a mirror, or name an image with --debian"
sources="deb $mirror $suite main"
[ -n "$security" ] || printf 'WARNING: apt has no source for %s-security here, and the images get no security fixes: set ATOLL_DEBIAN_SECURITY_MIRROR\n' "$suite" >&2
[ -z "$security" ] || sources+=$'\n'"deb $security $suite-security main"

# A layer is kept or thrown away as a whole: dpkg need not wait for the disk after each file.
unsafe_io=etc/dpkg/dpkg.cfg.d/unsafe-io
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null; then
    debootstrap --force-check-gpg --variant=minbase --include=ca-certificates "$suite" "$work/root" "$mirror" >"$work/log" ||
        { tail -5 "$work/log" >&2; fail "debootstrap failed"; }
    printf '%s\n' "$sources" >"$work/root/etc/apt/sources.list"
    echo force-unsafe-io >"$work/root/$unsafe_io"
    rm -rf "$work/root"/var/cache/apt/archives/*.deb "$work/root"/var/lib/apt/lists/* "$work/root"/dev/*
    tar -C "$work/root" -c .
elif command -v mmdebstrap >/dev/null; then
    printf '%s\n' "$sources" | mmdebstrap --variant=minbase --include=ca-certificates --quiet \
        --customize-hook="echo force-unsafe-io >\"\$1/$unsafe_io\"" "$suite" - -
else
    fail "install mmdebstrap (or debootstrap, and run this as root), or name an image of Debian $suite with --debian"
fi >"$work/tar"
docker import -c 'CMD ["bash"]' "$work/tar" "$image" >/dev/null
