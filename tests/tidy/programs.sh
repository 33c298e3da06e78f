#!/bin/bash
# programs.sh SOURCE PROGRAMS: that no program in the directory PROGRAMS holds the path of the sources in SOURCE: the same sources
# give the same programs wherever they are built.
set -euo pipefail
source=$1 programs=$2 status=0 looked=0
for name in atoll atoll-registry atoll-store atoll-dispatch atoll-aggregation atoll-trainer; do
    [ -e "$programs/$name" ] || continue
    looked=$((looked + 1))
    held=$(grep -aoE "$source/[A-Za-z0-9_./-]*" "$programs/$name" | sort -u | head -3) || held=
    [ -z "$held" ] || { printf '%s holds %s\n' "$name" "${held//$'\n'/, }"; status=1; }
done
[ "$looked" -gt 0 ] || { echo "no program is in $programs"; exit 1; }
exit $status
