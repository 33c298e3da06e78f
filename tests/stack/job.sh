# One deterministic job of two sites over two rounds, for the tests of a running stack, as functions: it must give the same
# models by `atoll up`, by Compose and on Kubernetes. A test defines `texts_of SITE`, which prints a site's texts, and
# `address_of SITE`, where its sshd has port 2222, and has the directories $work and $programs and `fail` (load.sh).

# The trainings take AVX2: with AVX-512 the order of a product's sums depends on the processor's caches, and so do the last bits.
portable='ATOLL_INSTRUCTION_SET=avx2'

# The models' digests after each round, with the texts and the libraries of Debian 12.
job_digests=(
    de96b90e6f08b6603c426f5950dd7a14d25426f3bf167c25ab6624c6ec31e2e7
    a36d16e87b5b1dfc089cabd483f527a837cacad46c88f50f1c88b65298e5f01c
)

# prepare_dataset SITE LANGUAGE
prepare_dataset() {
    atoll_at dataset register "fortunes-$2" --language "$2" --license GPL-2.0 --template '{{text}}' >/dev/null
    atoll_at dataset prepare "fortunes-$2" --facility "$1" --input texts.jsonl --tokenizer base@v1 --seq-len 64 --validation-percent 10 >/dev/null
}
# The untrained model and the job's description, of the sites' texts.
make_job() {
    texts_of alpha >"$work/alpha.jsonl"
    texts_of beta >"$work/beta.jsonl"
    head -q -n 300 "$work/alpha.jsonl" "$work/beta.jsonl" >"$work/texts.jsonl"
    "$programs/atoll-trainer" tokenizer-train --input "$work/texts.jsonl" --vocab-size 2000 --out "$work/tokenizer" >/dev/null
    "$programs/atoll-trainer" init --config containers/site/model.json --tokenizer "$work/tokenizer" --out "$work/base" --seed 1 >/dev/null
    cat >"$work/job.yaml" <<'END'
name: federation
model: {name: base, version: v1}
output_model: out
rounds: 2
participants: [{facility: alpha, dataset: fortunes-it}, {facility: beta, dataset: fortunes-cs}]
strategy: {name: fedavg, weighting: tokens}
training: {steps: 10, batch_size: 8, lr: 0.003, threads: 1, deterministic: true}
END
}
# Registers alpha and beta, which are reached by ssh, with their hosts' keys.
add_sites() {
    local site fingerprint
    for site in alpha beta; do
        atoll_at facility add "$site" --ssh "$site" --work-dir /srv/site/work --programs /opt/atoll/bin --env "$portable" >/dev/null
        fingerprint=$(ssh-keyscan -p 2222 -t ed25519 "$(address_of "$site")" 2>/dev/null | ssh-keygen -lf - | awk '{print $2}')
        atoll_at facility trust "$site" --fingerprint "$fingerprint" >/dev/null
    done
}
# The job at the coordinator of which `atoll_at` is the command line, until it has been submitted; its end.
submit_job() {
    atoll_at model push base "$work/base" --tag v1 >/dev/null
    prepare_dataset alpha it
    prepare_dataset beta cs
    atoll_at job submit "$work/job.yaml" >/dev/null
}
job_has_ended() { atoll_at job show federation --json 2>/dev/null | says -E '"state": "(completed|failed|cancelled|paused)"'; }
# await_job SECONDS: prints the digests of its models.
await_job() {
    within "$1" job_has_ended || { atoll_at job show federation >&2; fail "the job does not end"; }
    atoll_at job show federation --json | says '"state": "completed"' || { atoll_at job show federation >&2; return 1; }
    for round in 1 2; do atoll_at model show "out@round$round" --json | grep -o '"digest": "[0-9a-f]*"' | head -1; done
}

# same_by_atoll_up WHERE DIGESTS: whether they are those of the same job by `atoll up`, and those above.
same_by_atoll_up() {
    local site there
    "$programs/atoll" up --state "$work/up" --port-base 0 --kafka-jars "$root/build/kafka/lib" --json >"$work/stack.json" 2>"$work/log" ||
        { tail -3 "$work/log" >&2; return 1; }
    atoll_at() { "$programs/atoll" --state "$work/up" "$@"; }
    for site in alpha beta; do
        mkdir -p "$work/$site"
        cp "$work/$site.jsonl" "$work/$site/texts.jsonl"
        chown -R "$(stat -c %U "$work/up")" "$work/$site"
        atoll_at facility add "$site" --local --work-dir "$work/$site" --env "$portable" >/dev/null
    done
    submit_job
    there=$(await_job 600)
    printf '  %-14s %s\n' "$1:" "${2//$'\n'/ }" "by atoll up:" "${there//$'\n'/ }" >&2
    "$programs/atoll" down --state "$work/up" --delete --yes >/dev/null 2>&1
    [ -n "$2" ] && [ "$2" = "$there" ] || fail "the digests differ"
    [ "$2" = "$(printf '"digest": "%s"\n' "${job_digests[@]}")" ] || fail "the digests are not those of tests/stack/job.sh"
}
