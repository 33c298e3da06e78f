#!/bin/bash
# Runs the short demo on processes of this machine, then on Slurm clusters: in the image: the tables of perplexities
# must be the same.
#   slurm_demo.sh DEMO STATE
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
table() { sed -n '/^ round /,/^pooled /p'; }
short=("$here/short_demo.sh" "$1" --state "$2" --rounds 2 --steps 4 --warm-up-steps 4 --port-base 0)
trap '"$1" --state "$2" --down' EXIT
usual=$("${short[@]}" | tee >(cat >&2) | table)
said=$("${short[@]}" --slurm | tee >(cat >&2))
slurm=$(table <<<"$said")
grep -q 'its programs are in an image' <<<"$said" || { echo "the demo ran without the image" >&2; exit 1; }
[ -n "$usual" ]
diff <(echo "$usual") <(echo "$slurm") || { echo "the demo gives something else on Slurm clusters" >&2; exit 1; }
