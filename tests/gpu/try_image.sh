#!/usr/bin/env bash
# try_image.sh IMAGE.sif: what the image for NVIDIA GPUs can do on a machine without one: its own test, its labels, a training on the
# CPU by two ranks, and the refusal of --device cuda, which names --nv. With build/cuda-check (`./dev cuda --check`) also plans of
# attention by the image's cuDNN. For a person, as building the image takes CUDA's toolkit; needs Apptainer.
set -euo pipefail
image=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
runtime=$(command -v apptainer || command -v singularity)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
inside() { "$runtime" --quiet exec --no-home --cleanenv --bind "$work" --pwd "$work" "$image" "$@"; }
fail() { printf 'try_image.sh: %s\n' "$*" >&2; exit 1; }
# expect TEXT PATTERN
expect() { grep -qE -- "$2" <<<"$1" || fail "'$2' is not in: $1"; }

"$runtime" test "$image" >"$work/test.log" 2>&1 || { cat "$work/test.log"; fail "its own test fails"; }
labels=$("$runtime" inspect --labels "$image")
for label in 'gpu: cuda' 'cuda.toolkit: 13\.' 'cuda.cublas: 13\.' 'cuda.cudnn: 9\.' 'cuda.nccl: 2\.' 'cuda.architectures: sm_'; do
    expect "$labels" "org\.atoll\.$label"
done

cat >"$work/config.json" <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
 "tie_word_embeddings": false}
JSON
for i in $(seq 200); do printf '{"text": "line %d of a text that is here to be learnt"}\n' "$i"; done >"$work/texts.jsonl"
{
    inside atoll-trainer tokenizer-train --input texts.jsonl --vocab-size 300 --out tokenizer
    inside atoll-trainer init --config config.json --tokenizer tokenizer --out model
    inside atoll-trainer tokenize --tokenizer tokenizer --input texts.jsonl --template '{{text}}' --seq-len 64 --out data
} >"$work/made.log" 2>&1 || { cat "$work/made.log"; fail "no model could be made"; }
inside mpirun --allow-run-as-root --oversubscribe -n 2 atoll-trainer train --model model --data data --out trained --steps 5 \
    --batch-size 2 >"$work/trained.log" 2>&1 || { cat "$work/trained.log"; fail "two ranks do not train on the CPU"; }
tail -n 1 "$work/trained.log"

if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    refused=$(inside atoll-trainer train --model model --data data --out refused --steps 1 --device cuda 2>&1) &&
        fail "it trains on a GPU that is not here"
    printf '%s\n' "$refused"
    expect "$refused" 'no driver of a GPU is found here; this is a container: .*--nv'
    expect "$(inside atoll-trainer report)" '"visible_gpus":0'
fi

planner=build/cuda-check/attention_plans
if [ -x $planner ]; then
    cp $planner build/cuda-check/libcuda.so.1 trainer/kernels/gpu/cards/h100.json "$work"
    for shape in 'bf16 1 4096 32 32 128 0' 'bf16 1 8192 32 8 128 32'; do
        plan=$(inside env LD_LIBRARY_PATH="$work" ./attention_plans h100.json <<<"$shape")
        printf 'cuDNN of the image: h100 %s\n' "$plan"
        grep -qxF "h100 $plan" trainer/kernels/gpu/attention_plans.txt || fail "attention_plans.txt has another plan"
    done
fi
echo "the image can do what it can without a GPU"
