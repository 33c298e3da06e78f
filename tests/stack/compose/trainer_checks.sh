# The trainer's image: a check of compose.sh.

# Two ranks train in it, as an ordinary user who may change nothing but the work directory; and their weights are those of two ranks of
# the program outside.
check_two_ranks_train_in_the_trainers_image() {
    local model=$work/trainer train run
    containers/make_images.sh --tag "$tag" --uid 10001 --programs "$programs" --with trainer "${jars[@]}" "${debian[@]}" >/dev/null 2>&1
    image_says_what_it_is trainer openmpi-bin
    mkdir -p "$model"
    sed 's/"vocab_size": 2000/"vocab_size": 288/' containers/site/model.json >"$model/config.json"
    for number in $(seq 400); do printf '{"text": "the %dth of some short lines, of which none is worth to be read"}\n' "$number"; done >"$model/texts.jsonl"
    chown -R 10001:10001 "$model"
    run=(docker run --rm --network none --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges -v "$model:/work")
    trainer() { "${run[@]}" "atoll-trainer:$tag" "$@" >"$work/said" 2>&1 || { tail -5 "$work/said" >&2; fail "atoll-trainer $1 failed"; }; }
    trainer tokenizer-train --input texts.jsonl --vocab-size 288 --out tokenizer
    trainer init --config config.json --tokenizer tokenizer --out model --seed 1
    trainer tokenize --tokenizer tokenizer --input texts.jsonl --template '{{text}}' --seq-len 64 --split train --validation-percent 10 --out data
    train=(--model model --data data --steps 5 --batch-size 4 --lr 0.003 --threads 1 --deterministic)
    "${run[@]}" --entrypoint mpirun "atoll-trainer:$tag" -n 2 --oversubscribe atoll-trainer train "${train[@]}" --out trained >"$work/said" 2>&1 ||
        { tail -5 "$work/said" >&2; fail "two ranks do not train"; }
    [ "$("${run[@]}" --entrypoint mpirun "atoll-trainer:$tag" -n 2 --oversubscribe atoll-trainer report 2>/dev/null | grep -o '"rank":[01],' |
        sort -u | wc -l)" = 2 ] || fail "there are not two ranks"
    (
        cd "$model"
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n 2 --oversubscribe "$programs/atoll-trainer" train "${train[@]}" \
            --out outside >"$work/said" 2>&1
    ) || { tail -5 "$work/said" >&2; fail "two ranks do not train outside"; }
    cmp "$model/trained/model.safetensors" "$model/outside/model.safetensors" || fail "the image's ranks train another model"
}
