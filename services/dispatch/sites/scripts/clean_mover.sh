# $1 pin, $2… task ids. In the work directory. A staged version goes when its last pin goes, under the lock that staging
# takes. It leaves its place as a whole before the pin does, so that a cleanup that is killed on the way leaves no half of
# a version where a whole one is looked for.
pin=$1
shift
clean() {
    rm -rf "kept/$pin"
    for task; do
        for pushing in "tasks/$task/"*/push.moving; do drop "$pushing"; done
        rm -rf "tasks/$task/"*/out "tasks/$task/"*/out.state
    done
    for pinned in models/*.pins/"$pin"; do
        [ -e "$pinned" ] || continue
        target=${pinned%.pins/*}
        lock "$target.pinning" || { echo "somebody else works on $target" >&2; return 75; }
        status=0 gone=
        if [ "$(ls -A "$target.pins")" = "$pin" ]; then
            drop "$target.moving"
            rm -rf "$target.moving".* "models/.${target##*/}".*.partial  # of a staging that did not come to its end
            gone=$(mktemp -u "$target.gone.XXXXXX")
            [ ! -d "$target" ] || mv -T "$target" "$gone" || status=1
        fi
        [ "$status" -ne 0 ] || rm -f "$pinned"
        rmdir "$target.pins" 2>/dev/null
        unlock "$target.pinning"
        [ -z "$gone" ] || rm -rf "$gone"
        [ "$status" -eq 0 ] || return "$status"
    done
    # What a killed cleanup left after its pin was gone.
    rm -rf models/*.gone.*
}
claim "clean.$pin.moving" "$pin" || exit
(clean "$@") >"clean.$pin.moving/out" 2>"clean.$pin.moving/err"
end "clean.$pin.moving" "$?"
