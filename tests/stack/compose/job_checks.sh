# The job of tests/stack/job.sh on the simulation's two sites, through what goes wrong: a check of compose.sh.
texts_of() { docker compose exec -T "$1" cat /srv/site/work/texts.jsonl; }
address_of() { inspect "$1" '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}'; }
# All but the federation that begins by itself.
up_with_sites() { up "${containers[@]}" alpha beta; }
runs() { [ "$(inspect "$1" '{{.State.Running}}')" = true ]; }

# kill -9 of each container while the job runs, then down and up.
check_a_job_goes_on_with_the_digests_of_atoll_up() {
    # The sites of the simulation are others by the same names.
    remove_stack
    local one digests started
    # What is killed logs in again and again.
    grep -q ssh_logins_max compose/config/dispatch.yaml || printf '  ssh_logins_max: 100\n' >>compose/config/dispatch.yaml
    init --programs "$programs" "${debian[@]}" --with simulate >/dev/null 2>&1
    up_with_sites
    take_token
    make_job
    atoll_at() { atoll "$@"; }
    add_sites
    submit_job
    started=$SECONDS
    for one in alpha beta "${containers[@]}"; do
        # Without one of its sites the job cannot end before all has been killed.
        [ "$one" != postgres ] || docker compose stop --timeout 1 beta >/dev/null 2>&1
        kill -9 "$(inspect "$one" '{{.State.Pid}}')"
        sleep 1
        within 60 runs "$one" || fail "$one stays down"
    done
    within 300 atoll job show federation >/dev/null
    ! job_has_ended || fail "the job was over before everything had been killed"
    docker compose down >/dev/null 2>&1
    up_with_sites
    within 300 all_ready || fail "the services are not ready"
    digests=$(await_job 900)
    printf '  through kill -9 of %d containers and down/up in %d s\n' $((${#containers[@]} + 2)) $((SECONDS - started)) >&2
    same_by_atoll_up "by Compose" "$digests"
    compose/init --no-images --with '' >/dev/null
    up --remove-orphans
}
