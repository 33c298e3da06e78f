#!/usr/bin/env bash
# Makes the golden numbers anew: all, or the named ones. `./dev oracle` calls it with the references' Python in PATH.
# Each script's first argument is where the files go (those of tokenizers, chat templates and other programs' configurations
# always go to tests/fixtures). With the adapters it
# also checks that peft reads ours.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(printf '%s\n' make_*_goldens.py | sed 's/^make_//; s/_goldens.py$//')
for name in "${names[@]}"; do
    printf '== %s\n' "$name"
    arguments=("goldens/$name")
    case $name in control_variate | curve | lora | perplexity | qlora | storage | training) arguments+=("$(command -v atoll-trainer)") ;; esac
    python3 "make_${name}_goldens.py" "${arguments[@]}"
    [ "$name" != lora ] || python3 check_adapter_with_peft.py "$(command -v atoll-trainer)"
done
