# Registers the two simulated sites, prepares their texts, stores a small untrained model and submits a job: each step once,
# however often this starts. Then it stays: `docker compose up --wait` waits until /tmp/begun is there.
set -eu
simulation=/opt/atoll/simulation
export ATOLL_GATEWAY=http://gateway:7400
atoll() { command atoll --token-file /credentials/tokens/admin.token "$@"; }
# once WHAT COMMAND…: unless `atoll WHAT` succeeds.
once() {
    local what=$1
    shift
    # shellcheck disable=SC2086
    atoll $what >/dev/null 2>&1 || "$@"
}

add_site() { atoll facility add "$1" --ssh "$1" --work-dir /srv/site/work --programs /opt/atoll/bin; }
trust_site() {
    local fingerprint
    fingerprint=$(ssh-keyscan -p 2222 -t ed25519 "$1" 2>/dev/null | ssh-keygen -lf - | awk '{print $2}')
    atoll facility trust "$1" --fingerprint "$fingerprint"
}
prepare() {
    atoll dataset prepare "$2" --facility "$1" --input texts.jsonl --tokenizer simulation-base@v1 --seq-len 64 --validation-percent 10
}
make_model() {
    for language in it cs; do bash $simulation/make_texts.sh "$language" 300; done >/tmp/texts.jsonl
    atoll-trainer tokenizer-train --input /tmp/texts.jsonl --vocab-size 2000 --out /tmp/tokenizer
    atoll-trainer init --config $simulation/model.json --tokenizer /tmp/tokenizer --out /tmp/base --seed 1
    atoll model push simulation-base /tmp/base --tag v1
}

once "model show simulation-base@v1" make_model
for pair in alpha:it beta:cs; do
    site=${pair%:*} language=${pair#*:}
    once "facility show $site" add_site "$site"
    trust_site "$site"
    once "dataset show fortunes-$language" atoll dataset register "fortunes-$language" --language "$language" \
        --license GPL-2.0 --template '{{text}}'
    atoll dataset show "fortunes-$language" --json | grep -q '"fingerprint"' || prepare "$site" "fortunes-$language"
done
once "job show simulation" atoll job submit $simulation/job.yaml --key simulation
touch /tmp/begun
echo "the federation has begun"
exec sleep infinity
