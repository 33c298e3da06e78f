# Slurm, 22.05 and later. A job's identity is its name, as Slurm gives ids a second time. Options that the user's own
# environment would set for every job are taken away. What a site's wrappers and hooks print is told from Slurm's answers
# by their form.
unset $(awk 'BEGIN {
    for (name in ENVIRON) if (name ~ /^(SBATCH|SQUEUE|SCANCEL|SACCT|SINFO)_[A-Za-z0-9_]*$/) print name
}') 2>/dev/null || :

# $1 seconds, $2… one of Slurm's programs: they wait for minutes for a daemon that hangs. 124 or 137: it gave no answer.
within() {
    # What ignores TERM would stay on the login node: it is killed.
    if limiter=$(command -v timeout); then "$limiter" -k 1 "$@"; else shift && "$@"; fi
    status=$?
    case $status in 124 | 137) echo "$2 gave no answer within $1 s: is slurmctld up?" >&2 ;; esac
    return "$status"
}

# Whether standard input is what a site's wrapper says, without a line that may be of a job or tell of a failure.
are_words() {
    awk '/JOBID/ || /atoll-/ || /^ *[0-9]/ ||
            tolower($0) ~ /error|fail|unable|denied|unavailable|invalid|disabled|timed out|not (available|allowed|permitted)/ {
        other = 1
    }
    NF { words = 1 }
    END { exit other || !words }'
}

# $1 the header of what is asked for, $2… options of squeue: the lines below the header. Without it squeue was asked by
# somebody else's wrapper for other columns, of which nothing can be told: above all not that a job is gone. Where one job
# alone was asked for (JOBID), a wrapper that leaves the header out and has nothing but words knows no such job.
ask_squeue() {
    header=$1
    shift
    said=$(within 8 squeue --me "$@") || return 69
    printf '%s\n' "$said" | awk -v header="$header" 'seen { print } $0 == header { seen = 1 } END { exit !seen }' && return
    [ "$header" = JOBID ] && printf '%s\n' "$said" | are_words && return
    (set -f && echo "squeue did not print the columns it was asked for ($header):" $said) | head -c 500 >&2
    return 69
}

# The lines of standard input that are ids.
only_ids() {
    awk '/^ *[0-9]+ *$/ { print $1 }'
}

# $1 what one of Slurm's programs has said that failed: 69 where its controller does not answer, 75 otherwise.
tell_silence() {
    printf '%s\n' "$1" >&2
    case $1 in
        *"gave no answer within"* | *"Unable to contact slurm controller"* | *"Socket timed out"*) return 69 ;;
    esac
    return 75
}

queue_find() {
    found=$(ask_squeue JOBID --states=all --name="$1" --format=%A) || return 69
    printf '%s\n' "$found" | only_ids
}

queue_put() {
    # The submitting shell's limits (minutes of CPU on many login nodes) are not the job's.
    # One that does not come back may have submitted: it is found by its name.
    if said=$(within 30 sbatch --parsable --no-requeue --propagate=NONE --job-name="$2" "$1" 2>&1); then
        id=$(printf '%s\n' "$said" | cut -d';' -f1 | only_ids)
        case $id in *"
"*) id=$(queue_find "$2") || id= ;; esac  # a wrapper prints other numbers, too
        id=$(printf '%s\n' "$id" | tail -n 1)
        [ -n "$id" ] || { echo "sbatch printed no job id${said:+, but: $said}" >&2; return 75; }
        echo "$id"
        return 0
    fi
    # Of slurm_errno(3) what the job asks for and never gets; what the facility's record, its template or the site itself
    # has to be changed for, as when a partition is renamed or its limits are lowered below what was taken when the job
    # was submitted; all else may pass: nodes and partitions that are away, full queues, daemons that do not answer, what
    # a site's own plugin says.
    case $said in
        *"configuration is not available"* | *"can not be satisfied"* | *"processors requested than permitted"*)
            printf '%s\n' "$said" >&2
            return 65
            ;;
    esac
    if refuses_settings "$said"; then
        printf '%s\n' "$said" >&2
        return 78
    fi
    tell_silence "$said"
}

# $1 what sbatch has said
refuses_settings() {
    case $1 in
        *"time limit is invalid"* | *"count specification invalid"* | \
            *"Invalid partition name"* | *"Invalid account or"* | *"Invalid "*" specification"* | *"Invalid --"* | \
            *"unrecognized option"* | *"invalid option"* | *"not permitted to use this partition"* | \
            *"reservation is invalid"* | *"denied to requested reservation"*) ;;
        *) return 1 ;;
    esac
}

# $1 the name of a queue in the facility's record, $2… options of sbatch that the record says of it. Nothing is submitted.
# What a job would be refused for besides, as the cards that it must ask for, is not known here.
probe_queue() {
    name=$1
    shift
    said=$(within 4 sbatch --test-only --time=1 "$@" --wrap=: 2>&1 </dev/null) && return
    ! refuses_settings "$said" || (set -f && echo "$name" $said)
}

# NAME DIRECTORY…: prints "squeue", its lines, "sacct", its lines if there is accounting, "users", a line UID|NAME for
# each that has cancelled one, and "end".
queue_ask() {
    names=$1
    rests=${2%/*/*/*}/sacct-rests
    shift 2
    while [ $# -gt 0 ]; do
        names=$names,$1
        shift 2
    done
    jobs=$(ask_squeue 'NAME|JOBID|STATE|REASON' --states=all --name="$names" --format='%j|%A|%T|%r') || return 69
    echo squeue
    printf '%s\n' "$jobs" | only_jobs
    echo sacct
    until_s=$(($(date +%s) + 4))  # a look has 20 s, of which squeue may have taken 8
    for pause in 1 2 4 0; do  # by which accounting has heard of a job's start and end
        ended=$(ask_sacct "$names") || { ended= && break; }
        lacks_who && [ "$(date +%s)" -lt "$until_s" ] || break
        sleep "$pause"
    done
    printf '%s\n' "$ended" | only_jobs
    echo users
    for uid in $(printf '%s\n' "$ended" |
        awk -F'|' '$3 ~ /^CANCELLED by [0-9]+$/ { sub(/.* /, "", $3); if (!seen[$3]++) print $3 }' | head -n 20); do
        user=$(id -un "$uid" 2>/dev/null) && echo "$uid|$user"
    done
    echo end
}

# One that hangs is left alone for two minutes, which this directory remembers: each look would wait for it.
ask_sacct() {
    if since_s=$(stat -c %Y "$rests" 2>/dev/null); then
        age_s=$(($(date +%s) - since_s))
        [ "$age_s" -lt 0 ] || [ "$age_s" -ge 120 ] || return 69
        rmdir "$rests"
    fi
    within 4 sacct --allocations --noheader --parsable2 --starttime=now-7days --name="$1" \
        --format=JobName,JobID,State,ExitCode 2>/dev/null
    case $status in 124 | 137) mkdir "$rests" 2>/dev/null ;; esac
    return "$status"
}

# Whether squeue calls a job cancelled that accounting, which tells by whom, does not call so yet.
lacks_who() {
    { printf '%s\n' "$jobs" && echo && printf '%s\n' "$ended"; } | awk -F'|' '
        !NF { is_sacct = 1 }
        !is_sacct && $3 == "CANCELLED" { cancelled[$2] = 1 }
        is_sacct && $3 ~ /^CANCELLED/ { sub(/[+_.].*/, "", $2); delete cancelled[$2] }
        END { for (id in cancelled) exit 0; exit 1 }'
}

# The lines of standard input that speak of a job: NAME|ID|STATE|…
only_jobs() {
    grep -E '^[^|]+\|[0-9][^|]*\|[A-Z_]+[^|]*\|' || :
}

queue_drop() {
    said=$(within 8 scancel --user="$(id -un)" --name="$1" 2>&1) || { tell_silence "$said"; return; }
    # A node may take minutes to end it: that is asked for again later, as it must not be every second.
    for pause in 1 2 4 0; do
        left=$(ask_squeue JOBID --states=pending,running,configuring,completing,suspended --name="$1" --format=%A) || return 69
        left=$(printf '%s\n' "$left" | only_ids)
        [ -n "$left" ] || return 0
        sleep "$pause"
    done
    echo "Slurm still ends the job: "$left >&2
    return 75
}

# A line for each kind and state of node of each partition; the default one's name ends with "*".
queue_limits() {
    within 8 sinfo --noheader --exact --format='%P|%l|%L|%s|%D|%c|%m|%a|%T' || return 69
}

queue_machines() {
    scontrol --oneliner show nodes 2>/dev/null | awk -v named=" $* " '/^NodeName=/ {
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
