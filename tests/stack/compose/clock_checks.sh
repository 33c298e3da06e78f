# The stack a year later: a check of compose.sh.
later=366  # days

# write_clock FILE CONTAINER…: a Compose file with which these have their clock so many days ahead.
write_clock() {
    local file=$1 one
    shift
    {
        echo services:
        for one; do
            printf '  %s:\n    environment: {LD_PRELOAD: /later.so, SECONDS_LATER: "%d"}\n' "$one" $((later * 86400))
            printf '    volumes: ["%s:/later.so:ro"]\n' "$work/later.so"
        done
    } >"$file"
}
# with_clock FILE… -- ARGUMENT…: docker compose with these files besides.
with_clock() {
    local files
    files=$(sed -n 's/^COMPOSE_FILE=//p' .env | tail -1)
    while [ "$1" != -- ]; do files+=:$1; shift; done
    shift
    COMPOSE_FILE=$files docker compose --env-file .env "$@"
}
# status_of TOKEN PATH
status_of() { curl -s --max-time 10 -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $1" "http://127.0.0.1:$port$2"; }
token_of() { docker compose exec -T renewal cat "/credentials/tokens/$1.token"; }
# The seconds since 1970 at which the certificate of $1 ends.
certificate_end() {
    date -d "$(docker compose exec -T renewal cat "/credentials/keys/kafka-$1.pem" | openssl x509 -noout -enddate | cut -d= -f2)" +%s
}
# How many events the broker has confirmed to the store.
events_sent() { call GET /store/v1/metrics | awk '/^atoll_outbox_sent_total/ {print int($2)}'; }
event_was_sent() { [ "$(events_sent)" -gt "$1" ]; }
# A new model version, of which the store tells the others.
check_events_flow() {
    local before model=$work/tiny
    if [ ! -d "$model" ]; then
        for number in $(seq 200); do printf '{"text": "the %dth line"}\n' "$number"; done >"$work/lines.jsonl"
        sed 's/"vocab_size": 2000/"vocab_size": 288/' containers/site/model.json >"$work/tiny.json"
        "$programs/atoll-trainer" tokenizer-train --input "$work/lines.jsonl" --vocab-size 288 --out "$work/lines" >/dev/null 2>&1
        "$programs/atoll-trainer" init --config "$work/tiny.json" --tokenizer "$work/lines" --out "$model" --seed 1 >/dev/null 2>&1
    fi
    before=$(events_sent)
    atoll model push "tiny-$SECONDS" "$model" >/dev/null
    within 60 event_was_sent "$before" || fail "the store sends no event"
}
all_tokens_work() {
    local one
    for one in /registry/v1/datasets /store/v1/models /dispatch/v1/jobs /aggregation/v1/aggregations; do
        [ "$(status_of "$(token_of admin)" $one)" = 200 ] || return 1
    done
    # What aggregation shows to the two that it calls.
    for one in /store/v1/models /dispatch/v1/jobs; do
        [ "$(status_of "$(docker compose exec -T aggregation cat /credentials/aggregation/aggregation.token)" $one)" = 200 ] || return 1
    done
}

say_why_not_ready() {
    local service
    for service in "${services[@]}"; do curl -s --max-time 10 "http://127.0.0.1:$port/$service/readyz" >&2; done
    for service in kafka dispatch; do docker compose logs --tail 15 "$service" >&2; done
}

# All clocks but that of the renewal first: tokens and certificates have ended. Then the renewal's, too.
check_a_year_later_everything_works_after_the_renewal() {
    is_up
    gcc -shared -fPIC -O2 -o "$work/later.so" tests/stack/compose/later.c
    chmod 755 "$work/later.so"
    local old running one
    old=$(cat "$work/admin.token")
    write_clock compose/year.yaml postgres kafka "${services[@]}" gateway
    write_clock compose/renewal.yaml renewal
    # One by one, as nothing that waits for another would start.
    for one in postgres kafka "${services[@]}" gateway; do
        with_clock compose/year.yaml -- up -d --no-deps "$one" >"$work/up.log" 2>&1 || { tail -5 "$work/up.log" >&2; fail "$one does not start"; }
    done
    within 120 test_status 401 "$old" /registry/v1/datasets || fail "a token of last year is not refused: $(status_of "$old" /registry/v1/datasets)"
    running=$(docker compose ps -q "${services[@]}" | sort)
    with_clock compose/year.yaml compose/renewal.yaml -- up -d --no-deps renewal >/dev/null 2>&1
    local started=$SECONDS
    within 300 all_ready || { say_why_not_ready; fail "the services are not ready after the renewal"; }
    within 60 all_tokens_work || fail "renewed tokens are refused"
    printf '  ready with renewed tokens and certificates after %d s\n' $((SECONDS - started)) >&2
    [ "$(docker compose ps -q "${services[@]}" | sort)" = "$running" ] || fail "services were made anew"
    for one in broker "${services[@]}"; do
        [ "$(certificate_end "$one")" -gt $(($(date +%s) + 700 * 86400)) ] || fail "the certificate of $one is not renewed"
    done
    [ "$(status_of "$old" /registry/v1/datasets)" = 401 ] || fail "the old token is taken"
    token_of admin >"$work/admin.token"
    check_events_flow
    # Its tokens and certificates are of the future.
    remove_stack
}
test_status() { [ "$(status_of "$2" "$3")" = "$1" ]; }
