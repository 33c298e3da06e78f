#!/bin/bash
# compose.sh PROGRAMS [--quick | CHECK…]: the compose stack, run for real by Docker: images of the built programs in the
# directory PROGRAMS, started by compose/init and `docker compose up`. Needs root, Docker's daemon and Docker Compose 2. Every
# check prints its seconds; the stack has a name, a port and a network of its own, and is removed at the end.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=$(realpath "${1:?usage: compose.sh PROGRAMS [--quick | CHECK…]}")
shift
quick=(alert_rules images init_refuses_what_cannot_work init_again_changes_only_what_is_asked_for up_means_ready
    a_second_up_changes_nothing down_and_up_keep_everything no_secret_is_in_the_build
    no_secret_shows containers_may_do_little)
all=("${quick[@]}" after_a_break_in_all_is_made_anew a_facility_elsewhere_needs_a_public_url what_is_killed_comes_back tokens_are_renewed certificates_are_renewed
    up_fails_where_a_key_cannot_be_read
    a_proxys_clients_are_told_apart a_service_is_found_at_another_address requests_wait_while_a_service_is_recreated uploads_take_no_memory_of_the_gateway
    alerts_are_seen_and_sent
    a_simulated_federation_begins_by_itself all_profiles_hold_the_same_promises
    two_ranks_train_in_the_trainers_image a_job_goes_on_with_the_digests_of_atoll_up two_stacks_run_side_by_side
    a_year_later_everything_works_after_the_renewal a_refresh_takes_todays_packages)
name=atoll-test-$$ tag=atoll-test port=$((20000 + $$ % 10000)) network=172.29.$(($$ % 200 + 20))
services=(registry store dispatch aggregation)
containers=(postgres kafka "${services[@]}" gateway renewal)
work=$(mktemp -d)
chmod 755 "$work"
fail() { printf '  %s\n' "$*" >&2; return 1; }

# The checkout's files in a directory of the test's: compose/init writes beside them.
checkout=$work/atoll
mkdir "$checkout"
git -c "safe.directory=$root" -C "$root" ls-files -z --cached --others --exclude-standard |
    (cd "$root" && xargs -0 tar -c --ignore-failed-read 2>/dev/null) | tar -C "$checkout" -x
cd "$checkout"
for part in load.sh job.sh compose/init_checks.sh compose/job_checks.sh compose/mail_checks.sh compose/secret_checks.sh compose/trainer_checks.sh compose/clock_checks.sh; do
    # shellcheck disable=SC1090
    . "tests/stack/$part"
done

clean_up() {
    nobody_outside
    docker compose down --volumes --timeout 5 >/dev/null 2>&1 || true
    clean_up_init
    "$programs/atoll" down --state "$work/up" --delete --yes >/dev/null 2>&1 || true
    cd /
    rm -rf "$work"
}
trap clean_up EXIT

# What somebody exported would name another's stack.
unset "${!COMPOSE_@}" ATOLL_NAME ATOLL_SECRETS DOCKER_HOST DOCKER_CONTEXT
# Kafka's jars are those that `./dev install` fetched, where it did.
jars=()
[ ! -d "$root/build/kafka/lib" ] || jars=(--jars "$root/build/kafka/lib")
debian=(${ATOLL_DEBIAN:+--debian "$ATOLL_DEBIAN"})
# The images' tag stays from run to run, so that most of them is there already.
printf 'ATOLL_TAG=%s\nCOMPOSE_PROJECT_NAME=%s\nCOMPOSE_FILE=compose/compose.yaml\n' "$tag" "$name" >.env
init() { compose/init --name "$name" --port "$port" --network "$network" "${jars[@]}" "$@"; }
id_of() { docker compose ps -q "$1"; }
inspect() { docker inspect --format "$2" "$(id_of "$1")"; }
atoll() { "$programs/atoll" --gateway "http://127.0.0.1:$port" --token-file "$work/admin.token" "$@"; }
is_ready() { [ "$(curl -s --max-time 5 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/$1/readyz")" = 200 ]; }
all_ready() { for service in "${services[@]}"; do is_ready "$service" || return 1; done; }
up() { docker compose up --wait "$@" >"$work/up.log" 2>&1 || { tail -20 "$work/up.log" >&2; return 1; }; }
take_token() { docker compose cp credentials:/credentials/tokens/admin.token "$work/admin.token" >/dev/null 2>&1; }
# The next check's stack is a new one.
remove_stack() {
    docker compose down --volumes --timeout 5 --remove-orphans >/dev/null 2>&1
    rm -f "$work/admin.token"
}
# The last check may have left none, or the stack as it was when it failed.
is_up() {
    { [ -s "$work/admin.token" ] && all_ready; } || { up && take_token; }
    within 300 all_ready || fail "the stack is not up"
}
# call METHOD PATH [OPTION…]: curl at the gateway as an admin.
call() { curl -sS -X "$1" -H "Authorization: Bearer $(cat "$work/admin.token")" "${@:3}" "http://127.0.0.1:$port$2"; }

check_alert_rules() {
    local result=0
    tests/stack/rules.sh >"$work/rules.log" 2>&1 || result=$?
    [ $result = 0 ] || [ $result = 77 ] || { tail -20 "$work/rules.log" >&2; return 1; }
    [ $result = 0 ] || printf '  skipped: %s\n' "$(cat "$work/rules.log")" >&2
}

check_images() {
    init --programs "$programs" "${debian[@]}" 2>&1 | sed 's/^/  /' >&2
    image_says_what_it_is services nginx
    image_says_what_it_is postgres postgresql-15
    image_says_what_it_is kafka openjdk-17-jre-headless
}

# Debian's fixes come with a refresh; without one the images stay as they were made.
check_a_refresh_takes_todays_packages() {
    local one before
    id_of_image() { docker image inspect --format '{{.Id}}' "atoll-services:$tag"; }
    before=$(id_of_image)
    init --programs "$programs" "${debian[@]}" >/dev/null 2>&1
    [ "$(id_of_image)" = "$before" ] || fail "images are made anew without --refresh"
    init --refresh --with '' --programs "$programs" "${debian[@]}" 2>&1 | grep image | sed 's/^/  /' >&2
    [ "$(id_of_image)" != "$before" ] || fail "--refresh makes no new images"
    for one in services postgres kafka; do
        docker run --rm --user 0 --entrypoint sh "atoll-$one:$tag" -c 'apt-get update -q >/dev/null && apt-get -s upgrade' >"$work/said"
        ! grep '^Inst' "$work/said" >&2 || fail "the refreshed image $one has older packages than Debian"
    done
}

check_init_again_changes_only_what_is_asked_for() {
    init --no-images >/dev/null
    local before
    before=$(cat compose/secrets/* .env)
    printf 'MINE=1\n' >>.env
    compose/init --no-images >/dev/null
    [ "$(cat compose/secrets/* .env)" = "$before"$'\nMINE=1' ] || fail "the second init changed something: $(cat .env)"
    compose/init --no-images --public-url https://c.example.org:7443 >/dev/null
    grep -q '^ATOLL_PUBLIC_URL=https://c.example.org:7443$' .env || fail "the URL was not taken"
    compose/init --no-images >/dev/null
    grep -q '^ATOLL_PUBLIC_URL=https://c.example.org:7443$' .env || fail "the URL was lost"
    [ "$(stat -c %a .env)" = 600 ] || fail ".env is open to others"
    local wrong
    for wrong in "--public-url gateway" "--public-url https://a/b" "--port 0" "--port x" "--prometheus-port 70000" "--alertmanager-port -1" \
        "--tls-listen a:7" "--trusted-proxies proxy" "--network 1.2" "--name A b" "--with all" \
        "--alerts-to nobody" "--alerts-to a@example.org"; do
        # shellcheck disable=SC2086
        ! compose/init --no-images ${wrong% *} "${wrong#* }" >/dev/null 2>"$work/said" || fail "init takes $wrong"
        grep -qE -- "${wrong%% *}|--smtp" "$work/said" || fail "of $wrong it says: $(cat "$work/said")"
    done
    ! compose/init --no-images --alerts-to a@example.org --smtp a:25 --smtp-without-tls --smtp-user atoll 2>"$work/said" ||
        fail "init sends a password in the clear"
    grep -q 'in the clear' "$work/said" || fail "it says: $(cat "$work/said")"
    [ "$(cat compose/secrets/* .env | grep -c .)" = "$(printf '%s\nMINE=1\n' "$before" | grep -c .)" ]
}

check_up_means_ready() {
    up
    all_ready || fail "up --wait returned before all services were ready"
    take_token
    atoll model list >/dev/null || fail "the API does not answer"
}

check_a_second_up_changes_nothing() {
    local before
    before=$(docker compose ps -q | sort)
    up
    all_ready
    env -i PATH="$PATH" HOME=/nonexistent docker compose up --wait >/dev/null 2>&1 || fail "up fails from another shell"
    [ "$(docker compose ps -q | sort)" = "$before" ] || fail "containers were made anew"
}

check_down_and_up_keep_everything() {
    atoll facility add kept --local --work-dir /tmp/kept >/dev/null
    docker compose down >/dev/null 2>&1
    up
    all_ready
    atoll facility list | says kept || fail "the facility is gone"
}

# A new password of the database, new keys and tokens, as docs/operate/compose.md says: the old ones are refused, the data is still there.
# PostgreSQL was killed, and finds its lock file.
check_after_a_break_in_all_is_made_anew() {
    is_up
    local password
    password=$(sed 's/.*://' compose/secrets/pgpass_registry)
    docker compose kill postgres >/dev/null 2>&1
    mv "$work/admin.token" "$work/old.token"
    docker compose down >/dev/null 2>&1
    rm compose/secrets/pgpass_registry
    compose/init --no-images >/dev/null
    [ "$(sed 's/.*://' compose/secrets/pgpass_registry)" != "$password" ] || fail "init makes no new password"
    docker volume rm "${name}_credentials" >/dev/null
    is_up
    atoll facility list | says kept || fail "the facility is gone"
    [ "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $(cat "$work/old.token")" \
        "http://127.0.0.1:$port/registry/v1/datasets")" = 401 ] || fail "the old token is valid"
    ! docker compose exec -T -e PGPASSWORD="$password" postgres psql -qAt -w -h /run/postgresql -U registry -d atoll -c 'SELECT 1' \
        >/dev/null 2>"$work/said" || fail "the old password opens the database"
    says 'password authentication failed' <"$work/said" || fail "it says: $(head -1 "$work/said")"
    check_events_flow
}

check_a_facility_elsewhere_needs_a_public_url() {
    is_up
    compose/init --no-images --public-url '' >/dev/null
    up
    ! atoll facility add far --ssh far --work-dir /work 2>"$work/said" || fail "a facility is added that reaches no store"
    grep -q -- '--public-url' "$work/said" || fail "it says: $(cat "$work/said")"
    atoll facility add far --ssh far --work-dir /work --data ssh >/dev/null
    compose/init --no-images --public-url https://c.example.org >/dev/null
    up
    atoll facility set far --data store >/dev/null
    atoll facility rm far --yes >/dev/null 2>&1 || atoll facility rm far >/dev/null
    compose/init --no-images --public-url '' >/dev/null
    up
}

runs_since_another() { [ "$(inspect "$1" '{{.State.Running}} {{.State.StartedAt}}')" != "true $2" ] && runs "$1"; }
check_what_is_killed_comes_back() {
    local one started
    is_up
    for one in "${containers[@]}"; do
        started=$(inspect "$one" '{{.State.StartedAt}}')
        kill -9 "$(inspect "$one" '{{.State.Pid}}')"
        within 60 runs_since_another "$one" "$started" || fail "$one stays down"
        within 300 all_ready || fail "after kill -9 of $one the services are not ready"
    done
    within 60 atoll facility list >"$work/list"
    grep -q kept "$work/list" || fail "the facility is gone"
}

# make_certificate: a new pair in the place of the one before.
make_certificate() {
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout "$work/key.new" -out "$work/cert.new" \
        >/dev/null 2>&1
    chown "$(sed -n 's/^ATOLL_UID=//p' .env)" "$work/key.new"
    mv "$work/cert.new" "$work/tls/cert.pem"
    mv "$work/key.new" "$work/tls/key.pem"
}
shown_serial() { openssl s_client -connect "127.0.0.1:$((port + 1))" </dev/null 2>/dev/null | openssl x509 -noout -serial; }
shows_new_certificate() { [ "$(shown_serial)" = "$(openssl x509 -noout -serial -in "$work/tls/cert.pem")" ]; }

# As an hour later, of a token that is too old: the service has a new one, and works with it.
check_tokens_are_renewed() {
    is_up
    local before
    token_of_aggregation() { docker compose exec -T aggregation cat /credentials/aggregation/aggregation.token; }
    is_renewed() { [ "$(token_of_aggregation)" != "$before" ]; }
    before=$(token_of_aggregation)
    docker compose exec -T renewal rm /credentials/tokens/aggregation.token
    docker compose restart renewal >/dev/null 2>&1
    within 60 is_renewed || { docker compose logs --tail 5 renewal >&2; fail "aggregation has the token that it had"; }
    [ "$(inspect renewal '{{.RestartCount}}')" = 0 ] || fail "renewal ends again and again"
}

# Asked in the stack's network, which this machine is not in. The broker goes on to refuse who shows no certificate.
shown_by_broker() {
    { docker compose exec -T registry openssl s_client -connect kafka:9092 </dev/null 2>/dev/null || true; } | openssl x509 -noout -serial 2>/dev/null || true
}
shows_another_certificate() { [ -n "$(shown_by_broker)" ] && [ "$(shown_by_broker)" != "$1" ]; }
# By itself, as a service has no other's: the broker, when it has seen that it has a new one, and the services.
check_certificates_are_renewed() {
    is_up
    local before running one
    for one in "${services[@]}"; do
        [ "$(docker compose exec -T "$one" cat /credentials/kafka/kafka.pem | openssl x509 -noout -subject -nameopt RFC2253)" = "subject=CN=$one" ] ||
            fail "$one shows another's certificate"
        [ "$(docker compose exec -T "$one" sh -c 'find /credentials -name "*.pem" ! -perm 400 ! -name public.pem; grep -l PRIVATE -r /credentials' | sort |
            tr '\n' ' ')" = "/credentials/kafka/kafka.pem $([ "$one" != dispatch ] || echo '/credentials/signing/private.pem ')" ] ||
            fail "$one reads other keys than its own"
    done
    check_events_flow
    before=$(shown_by_broker)
    [ -n "$before" ] || fail "the broker shows no certificate"
    running=$(docker compose ps -q | sort)
    docker compose exec -T renewal sh -c 'rm /credentials/keys/kafka-*.pem'
    docker compose restart renewal >/dev/null 2>&1
    local started=$SECONDS
    within 120 shows_another_certificate "$before" || fail "the broker shows its old certificate"
    within 120 all_ready || fail "the services do not come to the broker"
    printf '  ready with new certificates after %d s\n' $((SECONDS - started)) >&2
    check_events_flow
    for one in dispatch aggregation; do
        docker compose logs "$one" 2>&1 | says 'certificate was renewed' || fail "the reader of $one has its old certificate"
    done
    [ "$(docker compose ps -q | sort)" = "$running" ] || fail "containers were made anew"
}

check_up_fails_where_a_key_cannot_be_read() {
    is_up
    mkdir -p "$work/tls"
    ! compose/init --no-images --tls "$work/tls" >/dev/null 2>"$work/said" || fail "init takes a directory without a key"
    make_certificate
    chown 0:0 "$work/tls/key.pem"
    chmod 600 "$work/tls/key.pem"
    chmod 755 "$work" "$work/tls"
    compose/init --no-images --tls "$work/tls" --tls-listen "127.0.0.1:$((port + 1))" >/dev/null
    local status=0
    timeout 180 docker compose up --wait >"$work/up.log" 2>&1 || status=$?
    [ "$status" != 0 ] || fail "up --wait succeeds with a key that nobody can read"
    docker compose logs public 2>&1 | says key.pem || { tail -3 "$work/up.log" >&2; fail "its log does not name the key"; }
    chown "$(sed -n 's/^ATOLL_UID=//p' .env)" "$work/tls/key.pem"
    up
    curl -sk "https://127.0.0.1:$((port + 1))/healthz" | says ok || fail "HTTPS does not answer"
    check_a_renewed_certificate_is_taken
    compose/init --no-images --tls '' >/dev/null
    docker compose up --wait --remove-orphans >/dev/null 2>&1
    [ -z "$(docker compose ps -q public 2>/dev/null)" ] || fail "the HTTPS gateway is still there"
}

# While the HTTPS gateway sends a blob, slowly.
check_a_renewed_certificate_is_taken() {
    local sum download
    head -c 8388608 /dev/urandom >"$work/blob"
    sum=$(sha256sum "$work/blob" | cut -d' ' -f1)
    call PUT "/store/v1/blobs/$sum" --data-binary "@$work/blob" -f >/dev/null
    curl -sSfk --limit-rate 400k -H "Authorization: Bearer $(cat "$work/admin.token")" -o "$work/copy" \
        "https://127.0.0.1:$((port + 1))/store/v1/blobs/$sum" &
    download=$!
    sleep 2
    make_certificate
    local started=$SECONDS
    within 60 shows_new_certificate || fail "the new certificate is not shown after a minute"
    printf '  the new certificate is shown after %d s\n' $((SECONDS - started)) >&2
    kill -0 "$download" 2>/dev/null || fail "the download ended before the certificate was renewed"
    wait "$download" || fail "the download broke"
    cmp "$work/blob" "$work/copy"
}

# What a proxy on this machine says of its clients is believed where init was told so, and from nobody else.
check_a_proxys_clients_are_told_apart() {
    is_up
    # HEAD, which nobody else asks.
    logged() { docker compose logs --no-log-prefix gateway 2>&1 | says " $1 HEAD /registry/v1/datasets "; }
    ask_as() { call HEAD /registry/v1/datasets -f -I -H "X-Forwarded-For: 192.0.2.1, $1" >/dev/null; }
    ask_as 198.51.100.1
    within 10 logged "$network.129" || fail "the log does not have this machine's address"
    ! logged 198.51.100.1 || fail "anybody's X-Forwarded-For is believed"
    compose/init --no-images --trusted-proxies "$network.129" >/dev/null
    up
    ask_as 198.51.100.2
    within 10 logged 198.51.100.2 || fail "the proxy's X-Forwarded-For is not believed"
    compose/init --no-images --trusted-proxies '' >/dev/null
    up
}

check_a_service_is_found_at_another_address() {
    is_up
    local container started
    container=$(id_of registry)
    docker network disconnect "${name}_default" "$container"
    docker network connect --alias registry --ip "$network.77" "${name}_default" "$container"
    started=$SECONDS
    # What was asked of the old address meanwhile waits for its timeout, and so do the registry's connections to the database.
    within 150 is_ready registry || fail "the gateway does not find the registry at its new address"
    printf '  found after %d s\n' $((SECONDS - started)) >&2
    up --force-recreate --no-deps registry
    within 60 is_ready registry || fail "the gateway does not find the registry at its old address"
}

# recreate SERVICE [OPTION…]: makes its container anew while requests are made, of which none may fail.
recreate() {
    local service=$1 asking seconds
    rm -f "$work/enough" "$work/asked"
    ask_all_the_time "${@:2}" &
    asking=$!
    sleep 2
    local started=$SECONDS
    up --force-recreate --no-deps "$service" || { touch "$work/enough"; return 1; }
    seconds=$((SECONDS - started))
    sleep 3
    touch "$work/enough"
    wait "$asking"
    none_failed "$service: recreated in $seconds s"
}

check_requests_wait_while_a_service_is_recreated() {
    is_up
    local one
    echo 0 >"$work/number"
    for one in "${services[@]}"; do recreate "$one"; done
    # Its port is closed meanwhile: as all our clients do, these try again.
    recreate gateway --retry 60 --retry-delay 1 --retry-all-errors
    # What clients lose that do not: nobody else holds the port.
    (recreate gateway) 2>&1 | sed -n '/recreated/s/gateway/gateway, with clients that try once/p' >&2 || true
    within 60 all_ready
}

# As many and as large at once as two people may send; each body stays with the gateway until it is whole.
check_uploads_take_no_memory_of_the_gateway() {
    is_up
    local token number body bad started
    docker compose cp credentials:/credentials/tokens/operator.token "$work/operator.token" >/dev/null 2>&1
    rm -f "$work/uploaded"
    started=$(inspect gateway '{{.State.StartedAt}}')
    for token in admin operator; do
        for number in {1..16}; do
            body=$work/body-$token-$number
            head -c 16777216 /dev/urandom >"$body"
            curl -sS -o /dev/null -w '%{http_code}\n' --limit-rate 1M -T "$body" -H "Authorization: Bearer $(cat "$work/$token.token")" \
                "http://127.0.0.1:$port/store/v1/blobs/$(sha256sum "$body" | cut -d' ' -f1)" >>"$work/uploaded" &
        done
    done
    wait
    rm -f "$work"/body-*
    bad=$(grep -cv '^20' "$work/uploaded" || true)
    [ "$(inspect gateway '{{.State.OOMKilled}} {{.State.StartedAt}}')" = "false $started" ] || fail "the gateway had no memory left"
    [ "$bad $(wc -l <"$work/uploaded")" = "0 32" ] || fail "$bad of 32 uploads failed: $(sort "$work/uploaded" | uniq -c)"
}

# webhook PORT FILE: keeps what is posted, a line each. To be started in the background.
webhook() {
    exec python3 - "$1" "$2" <<'PYTHON'
import http.server, sys
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with open(sys.argv[2], "ab") as kept:
            kept.write(self.rfile.read(int(self.headers["Content-Length"])) + b"\n")
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("0.0.0.0", int(sys.argv[1])), Hook).serve_forever()
PYTHON
}
# observer PORT PATH [OPTION…]: curl at Prometheus or Alertmanager, as the user who may.
observer() { curl -sS -u "atoll:$(cat compose/secrets/observe_password)" "${@:3}" "http://127.0.0.1:$1$2"; }
prometheus() { observer $((port + 2)) "/api/v1/$1"; }
targets_up() { [ "$(prometheus targets | grep -o '"health":"up"' | wc -l)" = 6 ]; }
was_sent() { grep -F '"alertname":"AtollServiceDown"' "$work/alerts" 2>/dev/null | says -F "\"status\":\"$1\""; }

check_alerts_are_seen_and_sent() {
    is_up
    local hook started
    webhook $((port + 4)) "$work/alerts" &
    hook=$!
    # shellcheck disable=SC2064
    trap "kill $hook" EXIT
    # This machine's own address in the network that leads outside is the first there.
    init --prometheus-port $((port + 2)) --alertmanager-port $((port + 3)) --programs "$programs" "${debian[@]}" --alerts-to "http://$network.129:$((port + 4))/hook" \
        >/dev/null 2>&1
    [ "$(stat -c %a compose/secrets/alertmanager.yml)" = 600 ] || fail "others can read where alerts go"
    up
    within 120 targets_up || fail "targets: $(prometheus targets | grep -oE '"(lastError|health|scrapeUrl)":"[^"]*"')"
    [ "$(prometheus rules | grep -o '"type":"alerting"' | wc -l)" = "$(grep -c 'alert:' compose/observe/alerts.yaml)" ] ||
        fail "Prometheus has other rules than compose/observe/alerts.yaml"
    started=$SECONDS
    docker compose stop store >/dev/null 2>&1
    within 300 was_sent firing || fail "no alert came to the webhook"
    printf '  fired after %d s\n' $((SECONDS - started)) >&2
    started=$SECONDS
    docker compose start store >/dev/null 2>&1
    within 300 was_sent resolved || fail "the alert is not resolved"
    printf '  resolved after %d s\n' $((SECONDS - started)) >&2
    kill $hook
    trap - EXIT
    check_mail_is_sent
    compose/init --no-images --alerts-to '' --with '' >/dev/null
    up --remove-orphans
}

first_round_is_closed() { atoll round show simulation 1 --json 2>/dev/null | says '"state": "closed"'; }

check_a_simulated_federation_begins_by_itself() {
    is_up
    init --programs "$programs" "${debian[@]}" --with simulate >/dev/null 2>&1
    local started=$SECONDS
    up
    printf '  begun after %d s\n' $((SECONDS - started)) >&2
    within 600 first_round_is_closed || fail "no round is closed: $(atoll job show simulation 2>&1)"
    printf '  the first round closed after %d s\n' $((SECONDS - started)) >&2
    atoll round show simulation 1 | sed 's/^/  /' >&2
    docker compose restart federation >/dev/null 2>&1
    up
    [ "$(atoll job list --json | grep -c '"name": "simulation"')" = 1 ] || fail "a second start made a second job"
    atoll job cancel simulation >/dev/null
    compose/init --no-images --with '' >/dev/null
    up --remove-orphans
}

case ${1-} in
    '') set -- "${all[@]}" ;;
    --quick) set -- "${quick[@]}" ;;
esac
status=0
for check in "$@"; do
    started=$SECONDS
    # Not in a condition, in which the first command that fails would not end the check.
    set +e
    (set -e; "check_$check")
    result=$?
    set -e
    if [ $result = 0 ]; then result=passed; else result=FAILED status=1; fi
    printf '%4d s  %s  %s\n' $((SECONDS - started)) "$result" "$check"
done
exit $status
