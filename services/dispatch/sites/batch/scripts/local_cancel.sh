# $1 directory, $2 the job's name. Exit 0: no process of the job lives and none will start. Exit 75: not known.
umask 077
[ -d "${1%/*/*/*}" ] || exit 75  # the file system is away, and the job's id with it
mkdir -p "$1" && cd "$1" || exit 75
# Taking the id's place makes a submission that is still on its way come too late.
if [ ! -s jobid ]; then
    echo cancelled >"jobid.$$" && sync "jobid.$$"
    ln "jobid.$$" jobid 2>/dev/null || :
    rm -f "jobid.$$"
fi
# Every process of the job carries its name in its environment.
processes() {
    grep -lszxF "ATOLL_BATCH_JOB=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
}
signal=TERM
tries=0
while :; do
    pids=$(processes "$2")
    [ -n "$pids" ] || exit 0
    [ "$tries" -lt 30 ] || signal=KILL
    [ "$tries" -lt 100 ] || exit 75
    kill "-$signal" $pids 2>/dev/null
    tries=$((tries + 1))
    sleep 0.1
done
