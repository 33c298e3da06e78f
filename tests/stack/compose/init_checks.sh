# What compose/init looks for before it changes anything, and two stacks on one machine: checks of compose.sh.
second_name=$name-second second_user=atoll-test-$$ second=$work/second

clean_up_init() {
    [ ! -e "$work/small.pid" ] || kill "$(cat "$work/small.pid")" 2>/dev/null || true
    ! mountpoint -q "$work/small" || { sleep 2; umount -l "$work/small"; }
    remove_second_stack
}
remove_second_stack() {
    if [ -e "$second/.env" ]; then
        (cd "$second" && docker compose down --volumes --timeout 5) >/dev/null 2>&1 || true
        docker image rm atoll-{programs,services,postgres,kafka,observe}:"$second_name" >/dev/null 2>&1 || true
    fi
    rm -rf "$second"
    ! id "$second_user" >/dev/null 2>&1 || userdel --remove "$second_user" >/dev/null 2>&1 || true
}

# refuses PATTERN [OPTION…]: that init fails, saying so, and leaves .env as it is.
refuses() {
    local pattern=$1 before
    shift
    before=$(cat .env)
    ! init "$@" >/dev/null 2>"$work/said" || fail "init goes on, though it should say: $pattern"
    grep -qE -- "$pattern" "$work/said" || fail "it should say '$pattern', and says: $(cat "$work/said")"
    [ "$(cat .env)" = "$before" ] || fail "init changes .env before it says: $pattern"
}

# A PATH of this machine's programs in which `docker` and `docker-compose` are what a check makes them.
make_tools() {
    tools=$work/tools
    rm -rf "$tools"
    mkdir "$tools"
    ln -s /usr/bin/* "$tools/"
    ln -sf /usr/sbin/* "$tools/"
    rm -f "$tools/docker" "$tools/docker-compose"
}
# stand_in NAME: standard input as such a program, in the place of the link to the real one.
stand_in() {
    rm -f "$tools/$1"
    { printf '#!/bin/bash\n'; cat; } >"$tools/$1"
    chmod 755 "$tools/$1"
}

check_init_refuses_what_cannot_work() {
    local tools docker holder
    docker=$(command -v docker)
    make_tools
    PATH=$tools refuses 'no docker; install Docker'
    stand_in docker <<<"[ \"\$1\" != version ] || { echo 19.03.15; exit; }; exec $docker \"\$@\""
    PATH=$tools refuses 'Docker 19.03.15 is too old; 20.10'
    stand_in docker <<<"[ \"\$1\" != compose ] || exit 1; exec $docker \"\$@\""
    PATH=$tools refuses 'no `docker compose`; install Docker Compose 2'
    stand_in docker-compose <<<'echo 1.29.2'
    PATH=$tools refuses 'docker-compose 1.29.2 cannot read compose.yaml; install Docker Compose 2'
    cp .env "$work/env"
    sed -i /^ATOLL_UID=/d .env
    stand_in getent <<<'[ "$*" != "passwd 10001" ] || echo somebody:x:10001:10001::/:/bin/sh'
    rm "$tools/docker-compose"
    ln -sf "$docker" "$tools/docker"
    PATH=$tools refuses 'run as 10001, which is somebody here; choose a number that nobody has'
    cp "$work/env" .env
    refuses '--refresh: it makes images; leave --no-images out' --refresh --no-images
    check_ports_are_looked_at
    docker network create --subnet "$network.128/25" "$name-other" >/dev/null
    refuses "the network $name-other has the addresses $network.128/25; choose others than $network.0/24 with --network" --no-images || { docker network rm "$name-other"; return 1; }
    docker network rm "$name-other" >/dev/null
    docker create --name "$name-other" --label "com.docker.compose.project=$name" \
        --label com.docker.compose.project.working_dir=/srv/other/compose "atoll-services:$tag" >/dev/null
    refuses "a stack named $name in /srv/other; choose another name with --name" --no-images || { docker rm "$name-other"; return 1; }
    docker rm "$name-other" >/dev/null

    check_a_full_disk_is_refused
}

# Each port that the stack will take, taken by somebody else.
check_ports_are_looked_at() {
    local one holder
    mkdir -p "$work/any-tls"
    echo x | tee "$work/any-tls/cert.pem" >"$work/any-tls/key.pem"
    python3 -m http.server --bind 127.0.0.1 $((port + 9)) >/dev/null 2>&1 &
    holder=$!
    within 10 curl -s -o /dev/null "http://127.0.0.1:$((port + 9))"
    for one in --port "--with observe --prometheus-port" "--with observe --alertmanager-port" "--tls $work/any-tls --tls-listen"; do
        # shellcheck disable=SC2086
        refuses "port $((port + 9)) on this machine is taken; choose another with ${one##* }" --no-images --prometheus-port $((port + 2)) \
            --alertmanager-port $((port + 3)) $one $((port + 9)) || { kill $holder; return 1; }
    done
    kill $holder
}

# The disk of a daemon of its own, which keeps its data on 64 MiB.
check_a_full_disk_is_refused() {
    mkdir -p "$work/small"
    mount -t tmpfs -o size=64m tmpfs "$work/small"
    # In a network of its own: it would take the bridge away.
    unshare --net dockerd --data-root "$work/small" --exec-root "$work/small-exec" --pidfile "$work/small.pid" --host "unix://$work/small.sock" \
        --bridge none --iptables=false --storage-driver vfs >"$work/small.log" 2>&1 &
    DOCKER_HOST=unix://$work/small.sock within 60 docker info >/dev/null 2>&1 || { tail -3 "$work/small.log" >&2; fail "no daemon"; }
    DOCKER_HOST=unix://$work/small.sock refuses "there are [0-9]+ MiB free in $work/small; images and first data take 4 GiB"
    kill "$(cat "$work/small.pid")"
    wait
    umount "$work/small"
}

second_is_ready() { [ "$(curl -s --max-time 5 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$((port + 5))/$1/readyz")" = 200 ]; }
as_second() { runuser -u "$second_user" -- env -C "$second" HOME="/home/$second_user" "$@"; }
# What of the first stack must stay: its running containers, their images, its settings.
first_stack() { docker compose ps -q | sort | xargs docker inspect --format '{{.Id}} {{.Image}} {{.State.StartedAt}}'; sha256sum .env compose/secrets/*; }

# Another user's, who is not root, from another checkout, with Prometheus.
check_two_stacks_run_side_by_side() {
    is_up
    local before one container
    compose/init --no-images --with '' >/dev/null
    up --remove-orphans
    before=$(first_stack)
    useradd --create-home --groups docker "$second_user"
    mkdir "$second"
    tar -c --exclude ./.env --exclude ./compose/secrets --exclude ./compose/ssh . | tar -C "$second" -x
    mkdir "$work/programs" "$work/jars"
    cp "$programs"/atoll{,-registry,-store,-dispatch,-aggregation} "$work/programs/"
    cp "$root"/build/kafka/lib/*.jar "$work/jars/"
    chown -R "$second_user:" "$second" "$work/programs" "$work/jars"
    as_second compose/init --name "$second_name" --port $((port + 5)) --prometheus-port $((port + 6)) --alertmanager-port $((port + 7)) \
        --network "${network%.*}.$((${network##*.} + 1))" --with observe --debian "${ATOLL_DEBIAN:-atoll-debian:bookworm}" --programs "$work/programs" \
        --jars "$work/jars" 2>&1 | sed 's/^/  /' >&2
    as_second docker compose up --wait >"$work/up.log" 2>&1 || { tail -20 "$work/up.log" >&2; fail "the second stack does not start"; }
    grep -qxF "ATOLL_SSH='$second/compose/ssh'" "$second/.env" || fail "keys are taken from $(grep ATOLL_SSH "$second/.env")"
    for one in "${services[@]}"; do second_is_ready "$one" || fail "the second stack's $one is not ready"; done
    all_ready || fail "the first stack is not ready"
    [ "$(as_second docker compose exec -T dispatch id -u)" = "$(id -u "$second_user")" ] || fail "the second stack runs as another user"
    [ "$(docker compose exec -T dispatch id -u)" = 10001 ] || fail "the first stack runs as another user"
    curl -sS -u "atoll:$(cat "$second/compose/secrets/observe_password")" "http://127.0.0.1:$((port + 6))/-/ready" | says -i ready || fail "the second stack's Prometheus does not answer"
    as_second docker compose cp credentials:/credentials/tokens/admin.token "$second/admin.token" >/dev/null 2>&1
    ! atoll --token-file "$second/admin.token" model list >/dev/null 2>&1 || fail "the first stack takes the second one's token"
    "$programs/atoll" --gateway "http://127.0.0.1:$((port + 5))" --token-file "$second/admin.token" model list >/dev/null
    [ "$(first_stack)" = "$before" ] || fail "the second stack changed the first: $(diff <(echo "$before") <(first_stack))"
    # And the other way: what each would start is what runs.
    container=$(as_second docker compose ps -q | sort)
    init --programs "$programs" "${debian[@]}" >/dev/null 2>&1
    up
    as_second docker compose up --wait >/dev/null 2>&1
    [ "$(as_second docker compose ps -q | sort)" = "$container" ] || fail "the first stack's init changed the second"
    [ "$(first_stack)" = "$before" ] || fail "an init with nothing new changed the first stack: $(diff <(echo "$before") <(first_stack))"
    remove_second_stack
}
