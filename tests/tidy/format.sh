#!/usr/bin/env bash
# The formatting of every source file, where clang-format 19 is installed (`./dev check` installs it); exit 77: skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v clang-format-19 >/dev/null || { echo "clang-format-19 is not installed"; exit 77; }
git ls-files -z '*.cpp' '*.h' '*.cu' '*.cuh' | xargs -0 clang-format-19 --dry-run --Werror
