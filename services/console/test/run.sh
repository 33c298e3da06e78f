#!/usr/bin/env bash
# The console's logic under node, without a browser. 77: there is no node.
set -euo pipefail
cd "$(dirname "$0")"
command -v node >/dev/null || { echo "no node: install nodejs" && exit 77; }
node --test ./*.test.js
