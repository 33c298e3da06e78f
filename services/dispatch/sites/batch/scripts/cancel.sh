# $1 directory, $2 the job's name. The batch system's functions stand in front. Exit 0: no process of the job lives and
# none will start. Exit 74: the work directory is not there; 69: the batch system gives no answer; 75: not known; with the
# reason.
umask 077
# Where the work directory is not there the file system is away, and what was submitted with it.
work=${1%/*/*/*}
cd "$work" 2>/dev/null || exit 74
mkdir -p ".${1#"$work"}" && cd ".${1#"$work"}" || exit 75
: >cancelled && sync cancelled || exit 75
# What a submission still on its way puts into the queue ends at once.
mkdir claim 2>/dev/null || :
queue_drop "$2" || exit "$?"
