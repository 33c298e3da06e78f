#!/bin/bash
# alerts.sh [PROGRAMS]: each alert of compose/observe/alerts.yaml provoked on a running stack, seen firing by a Prometheus of
# Debian and gone after a repair. The stack is one of `atoll up` with a local facility and a Slurm cluster of this machine
# behind ssh; a job runs through all of it and must complete. The rules' times alone are shorter: each `for`, and how old a
# silence, an event or a due task must be, is seconds here. Prints the seconds of each alert. Needs root; PROGRAMS is
# build/release/bin. Exit 77: something that it needs is not installed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
programs=$(realpath "${1:-build/release/bin}")
for one in prometheus slurmctld munged /usr/sbin/sshd psql node; do
    command -v "$one" >/dev/null || { echo "$one is not installed (Debian: prometheus slurm-wlm munge openssh-server postgresql-client nodejs)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "needs root: it starts a Slurm cluster"; exit 77; }
[ -x "$programs/atoll" ] || { echo "build it first: no $programs/atoll"; exit 1; }
scratch=$(mktemp -d)
chmod 755 "$scratch"
work=$scratch
begun=$SECONDS
# shellcheck source=tests/stack/load.sh
. tests/stack/load.sh
# shellcheck source=tests/stack/watched_stack.sh
. tests/stack/watched_stack.sh
export ATOLL_CLUSTERS=$scratch/clusters
cluster=x$$ cluster_port=$((21000 + $$ % 600 * 14)) site=$scratch/clusters/x$$ lock_pid=''
fail() { printf '  %s\n' "$*" >&2; exit 1; }
say() { printf '%4d s  %s\n' $((SECONDS - begun)) "$*"; }
call() { curl -sS -X "$1" -H "Authorization: Bearer $(cat "$scratch/state/tokens/admin.token")" "${@:3}" "$gateway$2"; }
tidy_up() {
    [ -z "$lock_pid" ] || kill "$lock_pid" 2>/dev/null || true
    end_watched_stack
    tests/slurm/cluster.sh purge "$cluster" >/dev/null 2>&1 || true
    [ -n "${ATOLL_KEEP:-}" ] && echo "kept: $scratch" || rm -rf "$scratch"
}
trap tidy_up EXIT

declare -A since fired resolved
firing() { { query 'ALERTS{alertstate="firing"}' | grep -o '"alertname":"[A-Za-z]*"' || true; } | cut -d'"' -f4 | sort -u; }
is_firing() { firing | says -xF "$1"; }
# provoked ALERT…, mended ALERT…: now.
provoked() { for one in "$@"; do since[$one]=$SECONDS; done; }
mended() { provoked "$@"; }
# await SECONDS firing|gone ALERT…
await() {
    local end=$((SECONDS + $1)) state=$2 left=("${@:3}") still now one
    while [ ${#left[@]} -gt 0 ]; do
        now=$(firing) still=()
        for one in "${left[@]}"; do
            if { grep -xqF "$one" <<<"$now" && [ "$state" = gone ]; } || { ! grep -xqF "$one" <<<"$now" && [ "$state" = firing ]; }; then
                still+=("$one")
            elif [ "$state" = firing ]; then
                fired[$one]=$((SECONDS - since[$one]))
                say "$one fires"
            else
                resolved[$one]=$((SECONDS - since[$one]))
                say "$one is resolved"
            fi
        done
        left=("${still[@]}")
        [ ${#left[@]} = 0 ] || [ $SECONDS -lt $end ] || fail "not $state after $1 s: ${left[*]}"
        sleep 0.5
    done
}
# shows EXPR…: within some seconds each finds a series, which also tests what only stands in a table.
shows() { for one in "$@"; do within 30 holds "$one" || fail "nothing is found by $one"; done; }

# --- the stack, with what ends soon, a disk that is nearly full, and the two facilities

sign_user_key() { # LASTS
    ssh-keygen -q -s "$site/ssh/authority" -I test -n "atoll-$cluster" -V "$1" "$site/ssh/user_key.pub"
    give_to_stack "$site/ssh/user_key-cert.pub"
}
make_certificate() { # DAYS
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -days "$1" \
        -keyout "$scratch/key.new" -out "$scratch/cert.new" >/dev/null 2>&1
    mv "$scratch/cert.new" "$scratch/cert.pem"
    mv "$scratch/key.new" "$scratch/key.pem"
}
write_settings() { # BYTES that must be free
    cat >"$scratch/state/settings.yaml" <<YAML
store: {free_bytes_min: $1}
dispatch: {workers: 4, ssh_logins_max: 1000, ssh_poll_interval_max_ms: 3000, ssh_retry_interval_ms: 500, batch_poll_interval_ms: 1000}
YAML
}
cluster_up() { tests/slurm/cluster.sh up "$cluster" --port "$cluster_port" --nodes 1 >"$scratch/cluster.log" 2>&1 || { cat "$scratch/cluster.log" >&2; return 1; }; }

sed -E 's/for: [0-9]+m/for: 1s/; s/(seconds(:max|\))) > [0-9]+$/\1 > 5/' compose/observe/alerts.yaml >"$scratch/alerts.yaml"
mkdir "$scratch/state" "$scratch/clusters"
chmod 755 "$scratch/clusters"
public=127.0.0.1:$(free_port)
make_certificate 5
write_settings $(($(df --output=avail -B1 "$scratch" | tail -1) * 6 / 10))
cluster_up &
cluster_pid=$!
up() {
    start_stack --no-supervise --public-url "https://$public" --public-listen "$public" --tls-certificate "$scratch/cert.pem" \
        --tls-key "$scratch/key.pem"
}
up
wait "$cluster_pid"
say "the stack and the cluster run"
start_prometheus "$scratch/alerts.yaml"

chmod 755 "$site/ssh"
give_to_stack "$site/ssh"
sign_user_key +3d
mkdir "$scratch/bin"
cp "$programs/atoll" "$programs/atoll-trainer" "$scratch/bin"
texts 3 300 >"$site/scratch/texts.jsonl"
chmod 644 "$site/scratch/texts.jsonl"
push_model tiny
add_local_facility alpha
atoll facility add beta --ssh "$cluster" --ssh-config "$site/ssh/config" --data ssh --batch slurm --work-dir "$site/scratch" \
    --programs "$scratch/bin" --set 'batch.queues.main={"partition": "main"}' --set batch.default_queue=main >/dev/null
atoll token issue soon --role admin --days 3 --out "$scratch/aggregation.token" >/dev/null
give_to_stack "$scratch/aggregation.token"
mv "$scratch/aggregation.token" "$scratch/state/tokens/aggregation.token"
provoked AtollDiskFull AtollCertificateEnds AtollCredentialEnds AtollTokenEnds

head -c 100000 /dev/urandom >"$scratch/blob"
sum=$(sha256sum "$scratch/blob" | cut -d' ' -f1)
call PUT "/store/v1/blobs/$sum" --data-binary "@$scratch/blob" -f >/dev/null
blob=$(find "$scratch/state/store" -name "*${sum:2}" | head -1)
chmod u+w "$blob"
printf x | dd of="$blob" bs=1 seek=5000 conv=notrunc status=none
call POST "/store/v1/blobs/$sum/check" -o /dev/null
provoked AtollBlobsDamaged

prepare_texts alpha tiny &
preparing=$!
prepare_texts beta tiny
wait $preparing
submit rounds tiny 4 4 alpha beta
say "a job runs at both facilities"

# --- another's job takes the only node; a round waits in the queue until nearly the end

first_round_is_closed() { atoll round show rounds 1 --json 2>/dev/null | says '"state": "closed"'; }
within 240 first_round_is_closed || fail "no round is closed: $(atoll job show rounds)"
site_ssh() { as_stack ssh -F "$site/ssh/config" "$cluster" "$@"; }
site_ssh 'sbatch --quiet --exclusive --time=50 --job-name=others --output=/dev/null --wrap "sleep 3000"'
provoked AtollRoundLate
say "the first round is closed; the next one waits in the queue"
shows 'atoll_tasks_waiting{facility="beta",reason="queue"} > 0'
await 120 firing AtollDiskFull AtollBlobsDamaged AtollTokenEnds AtollCredentialEnds AtollCertificateEnds
shows 'atoll_facility_up{facility="beta"} == 1' 'atoll_facility_batch_system_up{facility="beta"} == 1' \
    'atoll_facility_silent_seconds{facility="beta"} == 0' 'atoll_facility_logins_total{facility="beta",result="success"} > 0' \
    'atoll_facility_login_budget_remaining{facility="beta"} > 900' \
    'abs(atoll_facility_credential_expiry_timestamp_seconds{facility="beta"} - time() - 3 * 86400) < 3600' \
    'abs(atoll_certificate_expiry_timestamp_seconds{use="gateway"} - time() - 5 * 86400) < 3600' \
    'abs(atoll_token_expiry_timestamp_seconds{token="aggregation"} - time() - 3 * 86400) < 3600' \
    'atoll_certificate_expiry_timestamp_seconds{instance="dispatch",use="kafka"} > time() + 365 * 86400'

# --- the batch system, Kafka and a service are killed; an event is in their way

psql_as_stack() { as_stack psql -qtAX "host=$(sed -n "s/.*host='\([^']*\)'.*/\1/p" "$scratch/state/config/dispatch.yaml") port=5432 user=atoll dbname=atoll" "$@"; }
kill_component() { kill -9 "$(head -1 "$scratch/state/run/$1.pid" | cut -d' ' -f1)"; }
kill "$(cat "$site/run/slurmctld.pid")"
kill_component kafka
kill_component aggregation
provoked AtollBatchSystemAway AtollDependencyAway AtollServiceDown
await 60 firing AtollDependencyAway AtollServiceDown
shows 'atoll_ready{dependency="kafka"} == 0' 'atoll_outbox_waiting == 0'
submit later tiny 1 4 alpha
provoked AtollOutboxStuck
await 60 firing AtollOutboxStuck
await 120 firing AtollBatchSystemAway
shows 'atoll_facility_batch_system_up{facility="beta"} == 0' 'atoll_tasks_waiting{facility="beta",reason="batch-system"} > 0'
write_settings 1000000
kill_component store
cluster_up &
cluster_pid=$!
sign_user_key +300d
make_certificate 300
up # takes a new copy of the key, which root alone can read
kill -HUP "$(cat "$scratch/state/nginx/nginx.pid")"
mended AtollDependencyAway AtollServiceDown AtollOutboxStuck AtollDiskFull AtollBatchSystemAway AtollTokenEnds AtollCredentialEnds \
    AtollCertificateEnds
call PUT "/store/v1/blobs/$sum" --data-binary "@$scratch/blob" -f >/dev/null
mended AtollBlobsDamaged
wait "$cluster_pid"
await 120 gone AtollDependencyAway AtollServiceDown AtollOutboxStuck AtollDiskFull AtollTokenEnds AtollBlobsDamaged AtollBatchSystemAway

# --- the login node is away

pkill -F "$site/run/sshd.1.pid"
for one in $(pgrep -f "sshd: atoll-$cluster"); do kill "$one" 2>/dev/null || true; done
provoked AtollFacilityUnreachable
await 120 firing AtollFacilityUnreachable
shows 'atoll_facility_up{facility="beta"} == 0' 'atoll_facility_silent_seconds{facility="beta"} > 5' \
    'atoll_tasks_waiting{facility="beta",reason="unreachable"} > 0' 'atoll_facility_logins_total{facility="beta",result="failure"} > 0'
cluster_up
atoll facility check beta >/dev/null 2>&1 || true
mended AtollFacilityUnreachable
await 120 gone AtollFacilityUnreachable
await 150 gone AtollCredentialEnds AtollCertificateEnds

# --- a forgotten transaction holds the due tasks, which no worker can take

psql_as_stack -c "BEGIN; SELECT id FROM dispatch.tasks WHERE state IN ('pending', 'running') AND lease_until < now()
    FOR UPDATE SKIP LOCKED; SELECT pg_sleep(300)" >/dev/null 2>&1 &
lock_pid=$!
provoked AtollTasksNotTakenUp
await 90 firing AtollTasksNotTakenUp
shows 'atoll_due_tasks > 0' 'atoll_due_task_age_seconds > 5'
psql_as_stack -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(300)%' AND pid <> pg_backend_pid()" >/dev/null
mended AtollTasksNotTakenUp
await 60 gone AtollTasksNotTakenUp

# --- an event that dispatch refuses: it names a version that no round has made

job=$(atoll job show rounds --json | node -p 'JSON.parse(require("fs").readFileSync(0)).id')
round=$(atoll job show rounds --json | node -p 'JSON.parse(require("fs").readFileSync(0)).round')
psql_as_stack >/dev/null <<SQL
INSERT INTO aggregation.outbox (topic, key, event) VALUES ('atoll.aggregations', '$job', '{"specversion": "1.0", "id": "01900000-0000-7000-8000-000000000000",
    "type": "atoll.aggregation.completed.v1", "source": "/aggregation", "time": "2026-01-01T00:00:00Z",
    "data": {"job": "$job", "round": $round, "version": "$(printf x | sha256sum | cut -d' ' -f1)"}}');
SELECT pg_notify('atoll_outbox_aggregation', '');
SQL
provoked AtollDeadLetters
await 60 firing AtollDeadLetters
atoll events list

# --- the round has waited for three minutes; then events do not take effect at aggregation, as its inbox is locked

await 240 firing AtollRoundLate
shows 'atoll_round_age_ratio > 3'
psql_as_stack -c "BEGIN; LOCK TABLE aggregation.inbox IN SHARE MODE; SELECT pg_sleep(300)" >/dev/null 2>&1 &
lock_pid=$!
site_ssh scancel --name=others
mended AtollRoundLate
provoked AtollConsumerLags
await 180 firing AtollConsumerLags
psql_as_stack -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(300)%' AND pid <> pg_backend_pid()" >/dev/null
mended AtollConsumerLags
await 120 gone AtollConsumerLags AtollRoundLate
within 240 has_state rounds completed || fail "the job did not complete: $(atoll job show rounds)"
say "the job has completed"

# The job has ended: what the event says no longer matters.
atoll events replay --all
mended AtollDeadLetters
await 60 gone AtollDeadLetters

[ -z "$(firing)" ] || fail "still firing: $(firing)"
printf '%-26s %8s %10s\n' alert 'fires' 'resolved'
status=0
for one in $(sed -n 's/^ *- alert: //p' compose/observe/alerts.yaml); do
    printf '%-26s %6s s %8s s\n' "$one" "${fired[$one]:--}" "${resolved[$one]:--}"
    [ -n "${fired[$one]:-}" ] && [ -n "${resolved[$one]:-}" ] || status=1
done
exit $status
