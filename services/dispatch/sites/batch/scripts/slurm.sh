# Slurm, 22.05 and later. A job's identity is its name, as Slurm gives ids a second time. Options that the user's own
# environment would set for every job are taken away.
unset $(awk 'BEGIN {
    for (name in ENVIRON) if (name ~ /^(SBATCH|SQUEUE|SCANCEL|SACCT|SINFO)_[A-Za-z0-9_]*$/) print name
}') 2>/dev/null || :

# $1 seconds, $2… one of Slurm's programs: they wait for minutes for a daemon that hangs.
within() {
    if limiter=$(command -v timeout); then "$limiter" "$@"; else shift && "$@"; fi
}

queue_find() {
    within 8 squeue --noheader --me --states=all --name="$1" --format=%A || return 75
}

queue_put() {
    # The submitting shell's limits (minutes of CPU on many login nodes) are not the job's.
    # One that does not come back may have submitted: it is found by its name.
    if said=$(within 30 sbatch --parsable --no-requeue --propagate=NONE --job-name="$2" "$1" 2>&1); then
        # A site's own words may stand around the number.
        id=$(printf '%s\n' "$said" | grep -E '^[0-9]+(;|$)' | tail -n 1)
        [ -n "$id" ] || return 75
        echo "${id%%;*}"
        return 0
    fi
    printf '%s\n' "$said" >&2
    # Of slurm_errno(3) what the site would have to change for us; all else may pass: nodes and partitions that are away,
    # full queues, daemons that do not answer, what a site's own plugin says.
    case $said in
        *"Invalid partition name"* | *"Invalid account or"* | *"Invalid qos"* | *"Invalid feature"* | \
            *"Invalid generic resource"* | *"Invalid Trackable RESource"* | *"Invalid license"* | *"Invalid --"* | \
            *"unrecognized option"* | *"invalid option"* | *"configuration is not available"* | \
            *"time limit is invalid"* | *"count specification invalid"* | *"can not be satisfied"* | \
            *"processors requested than permitted"* | *"not permitted to use this partition"* | \
            *"reservation is invalid"* | *"denied to requested reservation"*) return 65 ;;
    esac
    return 75
}

# NAME DIRECTORY…: prints "squeue", its lines, "sacct", its lines if there is accounting, and "end".
queue_ask() {
    names=$1
    shift 2
    while [ $# -gt 0 ]; do
        names=$names,$1
        shift 2
    done
    echo squeue
    within 8 squeue --noheader --me --states=all --name="$names" --format='%j|%A|%T|%r' ||
        { echo "squeue gives no answer" >&2; return 75; }
    echo sacct
    within 5 sacct --allocations --noheader --parsable2 --starttime=now-7days --name="$names" \
        --format=JobName,JobID,State,ExitCode 2>/dev/null || :
    echo end
}

queue_drop() {
    within 8 scancel --user="$(id -un)" --name="$1" || return 75
    # A node may take minutes to end it: that is asked for again later, as it must not be every second.
    for pause in 1 2 4 0; do
        left=$(within 8 squeue --noheader --me --states=pending,running,configuring,completing,suspended \
            --name="$1" --format=%A) || return 75
        [ -n "$left" ] || return 0
        sleep "$pause"
    done
    echo "Slurm still ends the job: "$left >&2
    return 75
}

# A line for each kind of node of each partition; the default one's name ends with "*".
queue_limits() {
    sinfo --noheader --exact --format='%P|%l|%L|%s|%D|%c|%m' || return 75
}

queue_machines() {
    scontrol --oneliner show nodes 2>/dev/null | awk -v named=" $* " '{
        machine = ""
        is_named = named !~ /[^ ]/
        for (i = 1; i <= NF; ++i) {
            if ($i ~ /^Arch=/) machine = substr($i, 6)
            if ($i !~ /^Partitions=/) continue
            count = split(substr($i, 12), partitions, ",")
            for (j = 1; j <= count; ++j) if (index(named, " " partitions[j] " ")) is_named = 1
        }
        if (is_named && machine != "" && !seen[machine]++) print machine
    }'
}
