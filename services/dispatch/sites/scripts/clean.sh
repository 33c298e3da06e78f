# $1 work directory, $2 pin, $3… task ids: removes what the finished job no longer needs, keeps its logs.
# A staged version goes when its last pin goes, under the lock that staging takes. It leaves its place as a whole before
# the pin does, so that a cleanup that is killed on the way leaves no half of a version where a whole one is looked for.
# Exit 75: not known, as where the whole file system is away.
work=$1 pin=$2
shift 2
[ -d "$work" ] || exit 75
for task; do
    rm -rf "$work/tasks/$task/"*/out "$work/tasks/$task/"*/out.state
done
for held in "$work/models/"*.pins/"$pin"; do
    [ -e "$held" ] || continue
    target=${held%.pins/*}
    (
        flock -w 60 9 || exit 75
        rm -rf "$target.gone."*
        if [ "$(ls -A "$target.pins")" = "$pin" ]; then
            rm -rf "$work/models/.${target##*/}".*.partial  # of a staging that did not come to its end
            [ ! -d "$target" ] || mv -T "$target" "$target.gone.$$" || exit 1
        fi
        rm -f "$held"
        rmdir "$target.pins" 2>/dev/null
        rm -rf "$target.gone.$$"
    ) 9>"$target.lock" || exit $?
done
# What a killed cleanup left after its pin was gone.
rm -rf "$work/models/"*.gone.*
[ -d "$work" ] || exit 75  # it was there, but perhaps not all the time
