# $1 atoll, $2 atoll-trainer, $3 store, $4 work directory, $5 pin, $6 for whom, $7… version digests. Every task begins
# here, so a program that is missing is noticed here: exit 72, its name on standard output. A pin is a file named after the
# job (or preparation) that needs the version; see clean_mover.sh. It says for which of its attempts the version was
# brought, and the bytes of that. Pins come and go only under the version's lock. Exit 74: the work directory is not there;
# 75: not known, with the reason.
program=$1 trainer=$2 store=$3 work=$4 pin=$5 for=$6
shift 6
umask 077
# Only the work directory itself is made, and only once ($has_work_dir): where what it lies in is not there, or where it
# was before, a file system is away. First of all, as cleaning up takes one that is not there for away.
[ -d "$work" ] || { [ -z "$has_work_dir" ] && mkdir "$work"; } || exit 74
cd "$work" || exit 74  # nothing below is made where it was, should it go away
for needed in "$program" "$trainer"; do
    command -v "$needed" >/dev/null 2>&1 || { echo "${needed##*/}"; exit 72; }
done
# Names in it can be told: nobody else may make one there, nor lead it elsewhere.
mkdir -p models || exit 1
[ ! -L models ] && { [ -O models ] || [ "$(id -u)" = 0 ]; } || {
    echo "$work/models is a link, or belongs to somebody else" >&2
    exit 75
}
chmod go-w models || exit 75  # which says why, as of a file system that is read-only
for digest; do
    target=models/$digest
    lock "$target.pinning" || { echo "somebody else works on $target" >&2; exit 75; }
    mkdir -p "$target.pins" && : >>"$target.pins/$pin"
    status=$?
    unlock "$target.pinning"
    [ "$status" -eq 0 ] || exit 1
done

# $1… version digests, all of which are there: prints how many bytes of them were brought for $for. The mover of the last
# one may not have come to its end yet: its claim is read first.
tell_moved() {
    moved=0
    for digest; do
        bytes=0 whom=
        [ "$(cat "models/$digest.moving/for" 2>/dev/null)" != "$for" ] ||
            { read -r arrived bytes <"models/$digest.moving/progress"; } 2>/dev/null
        { read -r whom pinned <"models/$digest.pins/$pin"; } 2>/dev/null
        [ "$whom" != "$for" ] || bytes=$pinned
        case $bytes in '' | *[!0-9]*) ;; *) moved=$((moved + bytes)) ;; esac
    done
    echo "moved $moved"
}
