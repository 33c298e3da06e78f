# $1 work directory, $2 pin, $3… task ids: removes what the finished job no longer needs, keeps its logs.
# A staged version goes when its last pin goes, under the lock that staging takes.
work=$1 pin=$2
shift 2
for task; do
    rm -rf "$work/tasks/$task/"*/out
done
for held in "$work/models/"*.pins/"$pin"; do
    [ -e "$held" ] || continue
    target=${held%.pins/*}
    (
        flock -w 60 9 || exit 75
        rm -f "$held"
        rmdir "$target.pins" 2>/dev/null || exit 0
        rm -rf "$target"
    ) 9>"$target.lock" || exit $?
done
