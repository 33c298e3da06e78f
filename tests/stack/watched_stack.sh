# A stack of `atoll up` that a Prometheus of Debian scrapes through its gateway, as docs/operate/alerts/README.md says, and what
# a small federation needs. A test sets $programs (the built programs), $scratch (an empty directory of mode 755) and $root (the
# checkout), and calls end_watched_stack at its end.

prometheus_pid='' prometheus_port='' gateway=''
free_port() { node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })'; }
atoll() { "$programs/atoll" --gateway "$gateway" --token-file "$scratch/state/tokens/admin.token" "$@"; }
# Runs a program as the stack's user, whom root's `atoll up` becomes.
as_stack() {
    local user
    user=$(stat -c %U "$scratch/state")
    if [ "$(id -un)" = "$user" ]; then "$@"; else runuser -u "$user" -- "$@"; fi
}
give_to_stack() { chown -R --reference="$scratch/state" "$@"; }

# start_stack [OPTION…]: `atoll up` with these options. Later calls start what does not run.
start_stack() {
    local first=()
    [ -n "$gateway" ] || first=(--port-base 0 --kafka-jars "$root/build/kafka/lib")
    "$programs/atoll" up --state "$scratch/state" "${first[@]}" "$@" --json >"$scratch/stack.json" 2>"$scratch/up.log" ||
        { tail -5 "$scratch/up.log" >&2; return 1; }
    gateway=$(node -p 'JSON.parse(require("fs").readFileSync(process.argv[1])).gateway' "$scratch/state/stack.json")
}

# start_prometheus RULES…: it looks once a second.
start_prometheus() {
    local rules
    rules=$(printf '%s, ' "$@")
    prometheus_port=$(free_port)
    install -m 600 "$scratch/state/tokens/metrics.token" "$scratch/metrics.token"
    cat >"$scratch/prometheus.yaml" <<YAML
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [${rules%, }]
scrape_configs:
  - job_name: atoll
    metrics_path: /v1/metrics
    authorization: {credentials_file: $scratch/metrics.token}
    static_configs: [{targets: [registry, store, dispatch, aggregation]}]
    relabel_configs:
      - {source_labels: [__address__], regex: (.*), target_label: __metrics_path__, replacement: /\$1/v1/metrics}
      - {source_labels: [__address__], target_label: instance}
      - {target_label: __address__, replacement: "${gateway#http://}"}
YAML
    prometheus --config.file="$scratch/prometheus.yaml" --storage.tsdb.path="$scratch/tsdb" \
        --web.listen-address="127.0.0.1:$prometheus_port" >"$scratch/prometheus.log" 2>&1 &
    prometheus_pid=$!
}
query() { curl -sfG "http://127.0.0.1:$prometheus_port/api/v1/query" --data-urlencode "query=$1" || true; }
# holds EXPR: whether it finds a series now.
holds() { [[ $(query "$1") == *'"value":'* ]]; }

end_watched_stack() {
    [ -z "$prometheus_pid" ] || kill "$prometheus_pid" 2>/dev/null || true
    "$programs/atoll" down --state "$scratch/state" --cancel-jobs --delete --yes >/dev/null 2>&1 ||
        "$programs/atoll" down --state "$scratch/state" --delete --yes >/dev/null 2>&1 || true
}

# texts SEED COUNT: documents of invented words, a line each; the seed is the language.
texts() {
    awk -v seed="$1" -v count="$2" 'BEGIN {
        srand(seed)
        for (w = 0; w < 60; ++w)
            for (s = 2 + int(rand() * 2); s > 0; --s)
                words[w] = words[w] substr("abcdefghijklmnopqrst", 1 + int(rand() * 20), 1) substr("aeiou", 1 + int(rand() * 5), 1)
        for (d = 0; d < count; ++d) {
            text = d
            for (w = 12 + int(rand() * 12); w > 0; --w) text = text " " words[int(rand() * 60)]
            print "{\"text\": \"" text "\"}"
        }
    }'
}

# push_model NAME: an untrained model, of a size that trains in milliseconds, as NAME@v1.
push_model() {
    { texts 1 100; texts 2 100; } >"$scratch/public.jsonl"
    sed 's/"vocab_size": [0-9]*/"vocab_size": 320/; s/"hidden_size": [0-9]*/"hidden_size": 32/' \
        "$root/containers/site/model.json" >"$scratch/model.json"
    "$programs/atoll-trainer" tokenizer-train --input "$scratch/public.jsonl" --vocab-size 320 --out "$scratch/tokenizer" >/dev/null
    "$programs/atoll-trainer" init --config "$scratch/model.json" --tokenizer "$scratch/tokenizer" --out "$scratch/base" --seed 1 \
        >/dev/null
    atoll model push "$1" "$scratch/base" --tag v1 >/dev/null
}

# prepare_texts FACILITY MODEL: its data set text-FACILITY, of texts.jsonl in its work directory.
prepare_texts() {
    atoll dataset register "text-$1" --language it --license CC0-1.0 --template '{{text}}' >/dev/null
    atoll dataset prepare "text-$1" --facility "$1" --input texts.jsonl --tokenizer "$2@v1" --seq-len 32 --validation-percent 10 \
        >"$scratch/prepare-$1.log" 2>&1 || { tail -5 "$scratch/prepare-$1.log" >&2; return 1; }
}

# add_local_facility NAME: a facility on this machine, with its texts; its programs are the stack's.
add_local_facility() {
    mkdir -p "$scratch/sites/$1"
    texts "$(cksum <<<"$1" | cut -d' ' -f1)" 300 >"$scratch/sites/$1/texts.jsonl"
    give_to_stack "$scratch/sites/$1"
    atoll facility add "$1" --local --work-dir "$scratch/sites/$1" >/dev/null
}

# submit NAME MODEL ROUNDS STEPS FACILITY…
submit() {
    {
        printf 'name: %s\nmodel: {name: %s, version: v1}\nrounds: %s\n' "$1" "$2" "$3"
        printf 'strategy: {name: fedavg, weighting: tokens}\n'
        printf 'training: {steps: %s, batch_size: 8, lr: 0.01, threads: 1, peak_tflops: 1}\nparticipants:\n' "$4"
        printf '  - {facility: %s, dataset: text-%s}\n' $(for one in "${@:5}"; do echo "$one" "$one"; done)
    } >"$scratch/$1.yaml"
    atoll job submit "$scratch/$1.yaml" --key "$1" >/dev/null
}
job_state() { atoll job show "$1" --json | node -p 'JSON.parse(require("fs").readFileSync(0)).state'; }
has_state() { [ "$(job_state "$1")" = "$2" ]; }
