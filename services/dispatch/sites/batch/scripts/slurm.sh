# Slurm, 22.05 and later. A job's identity is its name, as Slurm gives ids a second time. Options that the user's own
# environment would set for every job are taken away.
unset $(env | sed -n 's/^\(\(SBATCH\|SQUEUE\|SCANCEL\|SACCT\|SINFO\)_[A-Za-z0-9_]*\)=.*/\1/p') 2>/dev/null || :

queue_find() {
    squeue --noheader --me --states=all --name="$1" --format=%A || return 75
}

queue_put() {
    # The submitting shell's limits (minutes of CPU on many login nodes) are not the job's.
    if said=$(sbatch --parsable --no-requeue --propagate=NONE --job-name="$2" "$1" 2>&1); then
        echo "${said%%;*}"
        return 0
    fi
    printf '%s\n' "$said" >&2
    case $said in
        # Limits on how much may be queued pass.
        *SubmitJob* | *"temporarily"* | *"policy"*) return 75 ;;
        *"Invalid"* | *"invalid"* | *"not available"* | *"exceed"* | *"denied"* | *"Unable to allocate"*) return 65 ;;
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
    squeue --noheader --me --states=all --name="$names" --format='%j|%A|%T|%r' || return 75
    echo sacct
    sacct --allocations --noheader --parsable2 --starttime=now-7days --name="$names" \
        --format=JobName,JobID,State,ExitCode 2>/dev/null || :
    echo end
}

queue_drop() {
    scancel --user="$(id -un)" --name="$1" || return 75
    tries=0
    while :; do
        left=$(squeue --noheader --me --states=pending,running,configuring,completing,suspended --name="$1" --format=%A) ||
            return 75
        [ -n "$left" ] || return 0
        [ "$tries" -lt 20 ] || return 75
        tries=$((tries + 1))
        sleep 1
    done
}
