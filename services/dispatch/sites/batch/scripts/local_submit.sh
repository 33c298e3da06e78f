# $1 directory, $2 the job's name, $3 slots, $4 directory of slot locks, $5 bytes of job.sh, $6 the runner's text.
# Standard input: job.sh. Prints the job's id. Exit 75: not known, ask again.
umask 077
# Staging has made the work directory: without it the file system is away, and what was submitted before with it.
[ -d "${1%/*/*/*}" ] || exit 75
mkdir -p "$1" "$4" && cd "$1" || exit 1
exec 9>submit.lock
flock -w 30 9 || exit 75
if [ ! -s jobid ]; then
    cat >"job.sh.$$" || exit 75
    # A connection that broke on the way leaves a shorter file.
    [ "$(wc -c <"job.sh.$$")" -eq "$5" ] || { rm -f "job.sh.$$"; exit 75; }
    mv "job.sh.$$" job.sh || exit 75
    ATOLL_BATCH_JOB="$2" setsid sh -c "$6" atoll-runner "$3" "$4" </dev/null >>runner.log 2>&1 9>&- &
    tries=0
    while [ ! -s jobid ]; do
        [ "$tries" -lt 1000 ] || exit 75
        tries=$((tries + 1))
        sleep 0.01
    done
fi
cat jobid
