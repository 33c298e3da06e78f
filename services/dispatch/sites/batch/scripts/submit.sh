# $1 directory, $2 the job's name, $3 bytes of job.sh. Standard input: job.sh. The batch system's functions stand in
# front. Prints the job's id, or "cancelled". Exit 74: the work directory is not there; 69: the batch system gives no
# answer; 75: not known, ask again; 65: this job can never run; 78: the batch system does not take its queue; all with the
# reason.
# No flock: not every Lustre has it. Were two to come through, the claim in job.sh lets one of their jobs train.
umask 077
# Staging has made the work directory: without it the file system is away, and what was submitted before with it.
# Directories are made from within it, so that none is made where it was.
work=${1%/*/*/*}
cd "$work" 2>/dev/null || exit 74
mkdir -p ".${1#"$work"}" && cd ".${1#"$work"}" || exit 75
[ ! -e cancelled ] || { echo cancelled; exit 0; }
job=$(mktemp job.sh.XXXXXX) && cat >"$job" || exit 75
# A connection that broke on the way leaves a shorter file.
[ "$(wc -c <"$job")" -eq "$3" ] || { rm -f "$job"; echo "the batch script came incomplete" >&2; exit 75; }
# The file system's clock alone tells how old something is: another login node's, or this one's, may be wrong.
now_s=$(stat -c %Y "$job") || exit 75
tries=0
until mkdir submitting 2>/dev/null; do
    # Who made it was killed: a submission takes seconds.
    made_s=$(stat -c %Y submitting 2>/dev/null) && [ "$((now_s - made_s))" -lt 120 ] || rmdir submitting 2>/dev/null
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || {
        rm -f "$job"
        [ -d submitting ] || mkdir submitting  # which says why not
        echo "an earlier submission of the job is under way" >&2
        exit 75
    }
    sleep 0.2
done
trap 'rmdir submitting' EXIT
trap 'exit 75' HUP INT TERM
if [ ! -s jobid ]; then
    id=$(queue_find "$2") || exit "$?"
    # A submission whose answer was lost may have begun, ended and been forgotten by the queue; or it was cancelled since.
    if [ -z "$id" ] && [ -e claim ]; then
        [ ! -e cancelled ] || { rm -f "$job"; echo cancelled; exit 0; }
        { read -r id <started; } 2>/dev/null || id=unknown
    fi
    if [ -z "$id" ]; then
        mv -T "$job" job.sh || exit 75
        id=$(queue_put job.sh "$2") || exit "$?"
    fi
    new=$(mktemp jobid.XXXXXX) && printf '%s\n' "$id" >"$new" && sync "$new" && mv -T "$new" jobid || exit 75
fi
rm -f "$job"
cat jobid
