#!/bin/sh
# replica.sh PROGRAMS DIRECTORY: replica.py in an empty directory; exit 77: there is no python3.
set -eu
command -v python3 >/dev/null || { echo "there is no python3"; exit 77; }
rm -rf "$2"
exec python3 "$(dirname "$0")/replica.py" --programs "$1" --dir "$2"
