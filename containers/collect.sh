#!/bin/bash
# collect.sh OUT PROGRAM…: leaves OUT/bin with the programs, without symbols, and OUT/packages: the Debian packages with the
# libraries that they load.
set -euo pipefail
out=$1
shift
mkdir -p "$out/bin"
install -s "$@" "$out/bin/"
# The package of each library. dpkg knows some by "/lib/…", though "/lib" is a link to "/usr/lib".
ldd "$out"/bin/* | awk '/=> \// {print $3}' | sort -u | xargs readlink -f | sort -u | while read -r library; do
    dpkg -S "$library" 2>/dev/null || dpkg -S "${library#/usr}"
done | sed 's/:.*//' | sort -u >"$out/packages"
