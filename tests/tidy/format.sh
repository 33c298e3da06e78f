#!/usr/bin/env bash
# The formatting of every source file, where clang-format 19 is installed (`./dev check` installs it); exit 77: skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v clang-format-19 >/dev/null || { echo "clang-format-19 is not installed"; exit 77; }
find . \( -name build -o -name .git \) -prune -o \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    xargs -0 clang-format-19 --dry-run --Werror
