# The local batch system: processes of the machine that the scripts reach. In front stand slots=, locks= and runner=.
# `process` has the job's process, its start time and the machine's start, which tell it from a later one of its number,
# and the machine's name: where ssh leads to one of several, nothing is known of what another runs.

queue_find() {
    [ ! -s process ] || cat process
}

queue_put() {
    # Not with what it lies in: where that is not there the file system is away.
    [ -d "$locks" ] || mkdir "$locks" || [ -d "$locks" ] || return 75
    local_locks || return 75
    [ -s process ] || rm -f process  # a crash can leave one that names nobody
    ATOLL_BATCH_JOB="$2" setsid sh -c "$runner" atoll-runner "$slots" "$locks" "./$1" </dev/null >>runner.log 2>&1 &
    waited=0
    while [ ! -s process ]; do
        kill -0 "$!" 2>/dev/null || [ -s process ] || {
            echo "the job ended before it could write a line: is there room in the work directory?" >&2
            return 75
        }
        [ "$waited" -lt 1000 ] || { echo "the machine did not start the job within ten seconds" >&2; return 75; }
        waited=$((waited + 1))
        sleep 0.01
    done
    cat process
}

# Not every shared file system has locks. Then they are on the machine itself, whose processes they count.
local_locks() {
    try=$(mktemp "$locks/try.XXXXXX") && flock -n "$try" true 2>/dev/null
    has_locks=$?
    rm -f "$try"
    [ "$has_locks" -ne 0 ] || return 0
    locks=/tmp/atoll-slots-$(id -u)-$(printf %s "$locks" | sha256sum | cut -c1-16)
    mkdir -m 700 "$locks" 2>/dev/null
    [ ! -L "$locks" ] && [ -O "$locks" ] && [ -w "$locks" ] || { echo "$locks cannot be written, or is somebody else's" >&2; return 1; }
}

# $1 directory. Prints the name of the other machine that its job was started on.
local_elsewhere() {
    [ -s "$1/process" ] && read -r _ _ job_boot job_host <"$1/process" && [ -n "$job_host" ] || return 1
    [ "$job_boot" != "$(cat /proc/sys/kernel/random/boot_id)" ] && [ "$job_host" != "$(uname -n)" ] || return 1
    echo "$job_host"
}

# NAME DIRECTORY…: prints a line for each: queued, waiting (for a slot), running, absent, or elsewhere and the machine's name.
queue_ask() {
    boot=$(cat /proc/sys/kernel/random/boot_id)
    while [ $# -gt 0 ]; do
        [ -d "${2%/*/*/*}" ] || return 74  # the file system is away
        [ -d "${2%/*/*}" ] || { echo "${2%/*/*} is not there" >&2; return 75; }
        if host=$(local_elsewhere "$2"); then echo "elsewhere $host"; else local_state "$2"; fi
        shift 2
    done
}

local_state() {
    state=absent started= dir=$1
    if [ -s "$1/process" ]; then
        read -r pid start job_boot _ <"$1/process"
        if [ "$job_boot" = "$boot" ] && stat=$(cat "/proc/$pid/stat" 2>/dev/null); then
            [ ! -e "$1/started" ] || started=yes
            set -- ${stat##*) }
            # Z: it ended and nobody has read its exit status yet.
            if [ "${20}" = "$start" ] && [ "$1" != Z ]; then
                state=queued
                [ ! -e "$dir/waiting" ] || state=waiting
                [ -z "$started" ] || state=running
            fi
        fi
    fi
    echo "$state"
}

# Its cores and MiB of memory; in a container what that may have.
queue_limits() {
    mib=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
    for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
        read -r bytes 2>/dev/null <"$limit" || continue
        case $bytes in *[!0-9]*) continue ;; esac  # "max"
        [ $((bytes / 1048576)) -ge "$mib" ] || mib=$((bytes / 1048576))
    done
    echo "$(nproc) $mib"
}

queue_machines() {
    uname -m
}

queue_drop() {
    if host=$(local_elsewhere .); then
        echo "its processes are on $host, and this is $(uname -n): ssh has to lead to $host" >&2
        return 75
    fi
    signal=TERM
    tries=0
    while :; do
        # Every process of the job carries its name in its environment.
        pids=$(grep -lszxF "ATOLL_BATCH_JOB=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)
        [ -n "$pids" ] || return 0
        [ "$tries" -lt 30 ] || signal=KILL
        [ "$tries" -lt 100 ] || { echo "processes of the job do not end: "$pids >&2; return 75; }
        kill "-$signal" $pids 2>/dev/null
        tries=$((tries + 1))
        sleep 0.1
    done
}

queue_probe() { :; }
