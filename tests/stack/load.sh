# What the tests of a running stack share, as functions. A test defines `call METHOD PATH [OPTION…]`, curl at its gateway as an
# admin, and `fail`, and has a directory $work.

# Whether standard input has such a line; it is read to its end, as grep -q would break the pipe that it comes from.
says() { grep "$@" >/dev/null; }

# within SECONDS COMMAND…
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.5
    done
}

# ask N [OPTION…]: one of the requests that are made five times a second, numbered; a read or a write of each service. Notes
# its status and its seconds.
ask() {
    local path body='' method=GET
    case $(($1 % 8)) in
        0) path=/registry/v1/datasets ;;
        1) path=/store/v1/models ;;
        2) path=/dispatch/v1/jobs ;;
        3) path=/aggregation/v1/aggregations ;;
        4)
            method=POST path=/registry/v1/datasets
            body="{\"name\":\"load-$1\",\"language\":\"it\",\"license\":\"CC0-1.0\",\"template\":\"{{text}}\"}"
            ;;
        5) method=PUT body="load $1" path=/store/v1/blobs/$(printf %s "load $1" | sha256sum | cut -d' ' -f1) ;;
        6)
            method=POST path=/dispatch/v1/facilities
            body="{\"name\":\"load-$1\",\"transport\":{\"kind\":\"local\"},\"batch\":{\"kind\":\"local\"},\"work_dir\":\"/tmp/load-$1\"}"
            ;;
        7) path=/dispatch/v1/facilities ;;
    esac
    call "$method" "$path" -o /dev/null --max-time 60 -w "%{http_code} %{time_total} $method $path\n" \
        ${body:+--data-binary "$body"} "${@:2}" >>"$work/asked" 2>/dev/null || true
}
# Asks until $work/enough is there, then waits for the answers. The requests' numbers go on from run to run.
ask_all_the_time() {
    local number
    while [ ! -e "$work/enough" ]; do
        number=$(cat "$work/number")
        ask "$number" "$@" &
        echo $((number + 1)) >"$work/number"
        sleep 0.2
    done
    wait
}
# none_failed WHAT: says of what was asked how long it took, and fails if an answer was no success or not every kind was asked.
none_failed() {
    local failed kinds
    kinds=$(sed -E 's/^[^ ]+ [^ ]+ //; s/[0-9a-f]{64}$//' "$work/asked" | sort -u | wc -l)
    [ "$kinds" = 8 ] || fail "$1: only $kinds of 8 kinds of request were made"
    failed=$(grep -cvE '^2[0-9][0-9] ' "$work/asked" || true)
    printf '  %s, %d of %d requests failed, the longest took %.1f s\n' "$1" "$failed" "$(wc -l <"$work/asked")" \
        "$(cut -d' ' -f2 "$work/asked" | sort -n | tail -1)" >&2
    [ "$failed" = 0 ] || { grep -vE '^2[0-9][0-9] ' "$work/asked" | head -5 >&2; return 1; }
}
