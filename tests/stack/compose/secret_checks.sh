# What shows of the stack's secrets, and what its containers may do: checks of compose.sh.

# gather_secrets: into the array `secrets`, each password, token and key that this stack has.
gather_secrets() {
    local one
    mapfile -t secrets < <(sed 's/.*://' compose/secrets/{postgres_password,pgpass_*,observe_password})
    [ ${#secrets[@]} = 6 ] || fail "there should be six passwords, and there are ${#secrets[@]}"
    for one in admin operator viewer metrics aggregation; do
        secrets+=("$(docker compose exec -T renewal cat "/credentials/tokens/$one.token")")
    done
    # Of each PEM with a private key, the key's first line.
    for one in $(docker compose exec -T renewal sh -c 'grep -l PRIVATE /credentials/keys/*.pem'); do
        secrets+=("$(docker compose exec -T renewal grep -A 1 PRIVATE "$one" | sed -n 2p)")
    done
    secrets+=("$@")
    [ ${#secrets[@]} -ge 12 ] || fail "there should be more secrets than ${#secrets[@]}"
    for one in "${secrets[@]}"; do [ ${#one} -ge 20 ] || fail "a secret was not read"; done
}

# no_secret_is_in CONTAINERS IMAGES [SECRET…]: in what Docker shows of them, their logs, their settings and their environment.
no_secret_is_in() {
    local secrets one
    gather_secrets "${@:3}"
    {
        for one in $(docker compose ps -qa); do docker inspect "$one"; done
        docker compose logs --no-color
        docker compose config
        for one in $2; do docker history --no-trunc "atoll-$one:$tag"; docker image inspect "atoll-$one:$tag"; done
        for one in $1; do docker compose exec -T "$one" sh -c 'cat /proc/1/environ /proc/1/cmdline | tr "\0" "\n"'; done
    } >"$work/shown" 2>/dev/null
    for one in $1; do docker compose exec -T "$one" true || fail "$one was not looked at"; done
    for one in "${secrets[@]}"; do
        ! grep -qF -- "$one" "$work/shown" || fail "a secret shows: $(grep -F -- "$one" "$work/shown" | head -1 | cut -c1-80)"
    done
    printf '  %d secrets are in none of %d lines\n' ${#secrets[@]} "$(wc -l <"$work/shown")" >&2
}

check_no_secret_shows() { no_secret_is_in "${containers[*]}" "services postgres kafka programs"; }

# may_do_little CONTAINER…
may_do_little() {
    local one seen inside host='{{.HostConfig.'
    for one; do
        mapfile -t seen < <(inspect "$one" "${host}ReadonlyRootfs}}
${host}CapDrop}}
${host}SecurityOpt}}
${host}Memory}}
${host}PidsLimit}}
${host}LogConfig.Config}}
{{.State.Health.Status}}")
        [ "${seen[0]}" = true ] || fail "$one can write its root"
        [ "${seen[1]}" = '[ALL]' ] || fail "$one keeps capabilities"
        [[ ${seen[2]} == *no-new-privileges* ]] || fail "$one may gain privileges"
        [ "${seen[3]}" -gt 0 ] || fail "$one has no limit of memory"
        [ "${seen[4]}" -gt 0 ] || fail "$one has no limit of processes"
        [[ ${seen[5]} == *max-size* ]] || fail "$one fills the disk with its log"
        [ "${seen[6]}" = healthy ] || fail "$one is not healthy"
        inside=$(docker compose exec -T "$one" sh -c 'id -u; grep "^CapEff:" /proc/1/status')
        [[ $inside =~ ^[1-9] ]] || fail "$one runs as root"
        [[ $inside =~ CapEff:[[:space:]]0+$ ]] || fail "$one has capabilities: $inside"
    done
}
# have_ports PORT…: on loopback, and no others anywhere.
have_ports() {
    local shown
    shown=$(docker compose ps --format '{{.Ports}}' | grep -oE '[0-9.:]+:[0-9]+->' | sort -u)
    [ "$shown" = "$(printf '127.0.0.1:%s->\n' "$@" | sort -u)" ] || fail "ports: $shown"
}

# send_x ADDRESS PORT: an x to whoever comes there.
send_x() {
    exec python3 -c 'import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True: listener.accept()[0].send(b"x")' "$@"
}
# Somebody outside the stack's network, in a network namespace behind this machine; and this machine's own address there.
somebody_outside() {
    local space=$name-outside
    ip netns add "$space"
    ip link add "out$$" type veth peer name eth0 netns "$space"
    ip address add 198.18.74.1/30 dev "out$$"
    ip link set "out$$" up
    ip -n "$space" address add 198.18.74.2/30 dev eth0
    ip -n "$space" link set eth0 up
    ip -n "$space" route add default via 198.18.74.1
    (export -f send_x && ip netns exec "$space" bash -c 'send_x 198.18.74.2 7') &
    outside=($!)
    send_x 198.18.74.1 7 &
    outside+=($!)
}
nobody_outside() {
    [ -z "${outside[*]:-}" ] || { kill "${outside[@]}" && wait "${outside[@]}" || true; outside=(); }
    ip link delete "out$$" 2>/dev/null || true
    ip netns delete "$name-outside" 2>/dev/null || true
}
# reaches CONTAINER ADDRESS
reaches() { docker compose exec -T "$1" timeout 5 bash -c "exec 3<>/dev/tcp/$2/7 && head -c 1 <&3 | grep -q x" 2>/dev/null; }
# only_these_have_a_way_out "CONTAINER…" "OTHER…"
only_these_have_a_way_out() (
    local one address outside=()
    trap nobody_outside EXIT
    somebody_outside
    for address in 198.18.74.2 198.18.74.1; do
        for one in $1; do within 10 reaches "$one" $address || fail "$one does not reach $address"; done
        for one in $2; do ! reaches "$one" $address || fail "$one reaches $address"; done
    done
)

# Without the password neither Prometheus nor Alertmanager says or does anything, also for who is in their network.
observers_ask_for_a_password() {
    local one
    for one in "$((port + 2))/api/v1/targets" "$((port + 3))/api/v2/status"; do
        [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$one")" = 401 ] || fail "$one is open"
    done
    docker compose exec -T registry bash -c \
        'exec 3<>/dev/tcp/alertmanager/9093; printf "GET /api/v2/status HTTP/1.0\r\n\r\n" >&3; head -1 <&3' | says ' 401 ' ||
        fail "Alertmanager is open to the stack's network"
    observer $((port + 3)) /api/v2/status | says '"uptime"' || fail "Alertmanager refuses the password"
    docker compose exec -T prometheus sh -c 'cat /tmp/web.yml' | says '^  atoll: \$2b\$' || fail "the password is not hashed"
}

check_containers_may_do_little() {
    may_do_little "${containers[@]}"
    only_these_have_a_way_out "dispatch gateway" "registry store aggregation kafka"
    have_ports "$port"
    [ "$(inspect postgres '{{.HostConfig.NetworkMode}}')" = none ] || fail "the database is in a network"
    roles_keep_apart
}

# Each service's role in the database has its own schema alone; all read which tokens are revoked, which dispatch writes.
roles_keep_apart() {
    local one other
    [ "$(docker compose exec -T -e PGPASSWORD="$(sed 's/.*://' compose/secrets/pgpass_registry)" postgres psql -qAt -w -h /run/postgresql -U registry \
        -d atoll -c "SELECT sum(rolconnlimit) <= current_setting('max_connections')::int - 3 AND min(rolconnlimit) > 0 FROM pg_roles
                     WHERE rolname IN ('registry', 'store', 'dispatch', 'aggregation')")" = t ] || fail "a role can take all connections"
    # as ROLE SQL [DATABASE]
    as() {
        docker compose exec -T -e PGPASSWORD="$(sed 's/.*://' "compose/secrets/pgpass_$1")" postgres \
            psql -qAt -w -h /run/postgresql -U "$1" -d "${3:-atoll}" -c "$2"
    }
    # may_not ROLE SQL
    may_not() {
        ! as "$1" "$2" >/dev/null 2>"$work/said" || fail "$1 may $2"
        says 'permission denied\|must be superuser\|must be owner' <"$work/said" || fail "$1, $2: $(head -1 "$work/said")"
    }
    for one in "${services[@]}"; do
        as "$one" "SELECT 1 FROM $one.outbox LIMIT 1" >/dev/null
        as "$one" 'SELECT count(*) FROM auth.revocations' >/dev/null
        for other in "${services[@]}"; do
            [ "$other" = "$one" ] || may_not "$one" "SELECT 1 FROM $other.outbox"
        done
        may_not "$one" 'CREATE SCHEMA mine'
        may_not "$one" 'CREATE TABLE public.mine ()'
        may_not "$one" "COPY $one.outbox TO PROGRAM 'true'"
        [ "$one" = dispatch ] || may_not "$one" 'DELETE FROM auth.revocations'
        may_not "$one" 'ALTER TABLE auth.revocations ENABLE ROW LEVEL SECURITY'
        may_not "$one" 'CREATE TABLE auth.mine ()'
        ! docker compose exec -T "$one" touch /run/postgresql/new 2>"$work/said" || fail "$one may put a socket in the place of the database's"
        says 'Read-only file system' <"$work/said" || fail "$one, a new socket: $(head -1 "$work/said")"
        for other in postgres template1; do
            ! as "$one" 'SELECT 1' $other >/dev/null 2>"$work/said" || fail "$one may use the database $other"
            says 'permission denied for database' <"$work/said" || fail "$one, database $other: $(head -1 "$work/said")"
        done
    done
    ! docker compose exec -T postgres psql -w -h /run/postgresql -U postgres -d atoll -c 'SELECT 1' >/dev/null 2>"$work/said" ||
        fail "the superuser needs no password"
    says 'no password supplied' <"$work/said" || fail "the superuser: $(head -1 "$work/said")"
}

# The same of the containers that `init --with` and --tls add, and of their keys and passwords.
check_all_profiles_hold_the_same_promises() {
    is_up
    local added=(prometheus alertmanager public alpha beta federation) password one
    password=$(openssl rand -hex 16)
    printf '%s\n' "$password" >"$work/smtp"
    mkdir -p "$work/tls"
    chmod 755 "$work/tls"
    make_certificate
    init --programs "$programs" "${debian[@]}" --with observe,simulate --tls "$work/tls" --tls-listen "127.0.0.1:$((port + 1))" \
        --prometheus-port $((port + 2)) --alertmanager-port $((port + 3)) --alerts-to ops@example.org --smtp mail.example.org:587 \
        --smtp-user atoll --smtp-password-file "$work/smtp" >/dev/null 2>&1
    grep -q "$password" compose/secrets/alertmanager.yml || fail "Alertmanager does not have the password"
    up
    # The simulation's key is made once and stays.
    may_do_little "${containers[@]}" "${added[@]}"
    have_ports "$port" $((port + 1)) $((port + 2)) $((port + 3))
    no_secret_is_in "${containers[*]} ${added[*]}" "services postgres kafka programs observe site site-programs" "$password" \
        "$(sed -n 2p "$work/tls/key.pem")" "$(docker compose exec -T dispatch sed -n 2p /home/atoll/.ssh/id_ed25519)"
    observers_ask_for_a_password
    for one in alpha beta; do
        ! docker compose exec -T "$one" test -e /keys/id_ed25519 || fail "$one has the other site's key"
    done
    only_these_have_a_way_out "prometheus alertmanager public alpha" "registry store aggregation kafka"
    # A site is not in the network of the services behind the gateway.
    docker compose exec -T alpha bash -c 'exec 3<>/dev/tcp/gateway/7400' || fail "a site does not reach the gateway"
    serves() {
        docker compose exec -T "$1" timeout 5 bash -c "exec 3<>/dev/tcp/$2/8080; printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3; head -1 <&3 | grep -q ' 200 '" 2>/dev/null
    }
    for one in registry "$network.2" "$network.3" "$network.5"; do
        serves gateway "$one" || fail "the gateway does not reach $one"
        ! serves alpha "$one" || fail "a site reaches $one"
    done
    image_says_what_it_is observe prometheus
    image_says_what_it_is site openssh-server
    atoll job cancel simulation >/dev/null
    compose/init --no-images --with '' --tls '' --alerts-to '' >/dev/null
    up --remove-orphans
}

# image_says_what_it_is NAME PACKAGE: its user, its version and revision, and that such a package is in its list of them.
image_says_what_it_is() {
    local image=atoll-$1:$tag user version
    user=$(docker image inspect --format '{{.Config.User}}' "$image")
    [[ $user =~ ^[1-9][0-9]*$ ]] || fail "$image runs as '$user', which is no number of an ordinary user"
    label() { docker image inspect --format "{{index .Config.Labels \"org.opencontainers.image.$1\"}}" "$image"; }
    version=$(sed -n 's/^project(atoll VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
    [ "$(label version)" = "$version" ] || fail "$image says that it is of version '$(label version)'"
    [ -n "$(label revision)" ] || fail "$image does not say its revision"
    docker run --rm --network none --entrypoint cat "$image" /opt/atoll/contents >"$work/contents"
    grep -qE "^$2(:[a-z0-9]+)?	[0-9]" "$work/contents" || fail "$image does not list its packages"
    printf '  %s: %d packages, %d MB\n' "$1" "$(wc -l <"$work/contents")" \
        $(($(docker image inspect --format '{{.Size}}' "$image") / 1000000)) >&2
}

# What a build of the programs gets of a checkout in which secrets lie about: nothing of them; all of it without .dockerignore.
check_no_secret_is_in_the_build() {
    local planted=planted-$$-secret found
    mkdir -p compose/secrets
    printf '%s\n' $planted | tee compose/secrets/x >admin.token
    printf '%s\n' $planted | tee shared/.env services/admin.token trainer/key.pem containers/admin.token >/dev/null
    printf 'PLANTED=%s\n' $planted >>.env
    # in_build: the files of the build stage with what was planted.
    in_build() {
        printf 'FROM %s\nCOPY . /src\n' "${ATOLL_DEBIAN:-atoll-debian:bookworm}" | docker build -q -t "$name-context" -f - . >/dev/null 2>"$work/log"
        docker run --rm --network none "$name-context" sh -c "test -s /src/CMakeLists.txt && { grep -rlF $planted /src || true; }"
        docker image rm "$name-context" >/dev/null
    }
    found=$(in_build)
    [ -z "$found" ] || fail "in the build stage: $found"
    mv .dockerignore "$work/dockerignore"
    found=$(in_build)
    mv "$work/dockerignore" .dockerignore
    rm -f compose/secrets/x admin.token shared/.env services/admin.token trainer/key.pem containers/admin.token
    sed -i /^PLANTED=/d .env
    [ "$(wc -l <<<"$found")" = 7 ] || fail "without .dockerignore it should see all seven files, and sees: $found"
}
