#!/usr/bin/env bash
# Runs the named benchmarks, or all: `./dev bench NAME…` builds what they need and calls this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$PWD/build/bench/bin python=$PWD/build/oracle/bin/python scratch=$PWD/build/bench/scratch
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE # the machine's own kernels
mkdir -p "$scratch"

# A Llama of 1.03 GB in fp32 with random weights.
model_of_a_gigabyte() {
    [ -e "$scratch/gigabyte/config.json" ] && return
    cat >"$scratch/gigabyte.json" <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 1024,
 "intermediate_size": 2816, "num_hidden_layers": 15, "num_attention_heads": 16, "num_key_value_heads": 16,
 "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
 "tie_word_embeddings": false, "torch_dtype": "float32"}
JSON
    "$bin/atoll-trainer" init --config "$scratch/gigabyte.json" --out "$scratch/gigabyte"
}

all=(passes trainer load state tokenize aggregate product gateway rounds thousand transfer history)
for name in "${@:-${all[@]}}"; do
    printf '\n== %s\n' "$name"
    case $name in
        passes) "$bin/pass_bench" ;;
        trainer) bench/trainer/compare.py --trainer "$bin/atoll-trainer" --python "$python" ;;
        load) model_of_a_gigabyte && "$bin/load_bench" "$scratch/gigabyte" 15 ;;
        state) bench/trainer/state_compare.py --trainer "$bin/atoll-trainer" --dir "$scratch/state" ;;
        tokenize) "$python" bench/trainer/tokenize_compare.py --trainer "$bin/atoll-trainer" --out "$scratch/tokenize" ;;
        aggregate) bench/aggregate/compare.py --atoll "$bin/atoll" --python "$python" --dir "$scratch/aggregate" ;;
        product) "$python" bench/aggregate/product.py --atoll "$bin/atoll" --dir "$scratch/product" ;;
        gateway | rounds | thousand | transfer | history)
            "bench/coordinator/$name.py" --bin "$bin" --state "$scratch/$name"
            ;;
        *) printf 'bench: unknown benchmark "%s"; there are: %s\n' "$name" "${all[*]}" >&2 && exit 2 ;;
    esac
done
