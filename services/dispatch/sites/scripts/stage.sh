# $1 atoll, $2 atoll-trainer, $3 store, $4 work directory, $5 pin, $6… version digests. Standard input: the token, one
# line. Every task begins here, so a program that is missing is noticed here: exit 72, its name on standard output.
# A pin is a file named after the job (or preparation) that needs the version; see clean.sh. Pins change only under the
# version's lock. Exit 65: the program calls its input wrong; 66, its own status too: the store has no such version, or
# not its bytes; 75, as well: the store is away or full. Any other says nothing of the version.
program=$1 trainer=$2 store=$3 work=$4 pin=$5
shift 5
umask 077
IFS= read -r token || exit 75
# Only the work directory itself is made: where what it lies in is not there, a file system is away. First of all, as
# cleaning up takes one that is not there for away.
[ -d "$work" ] || mkdir "$work" || exit 75
cd "$work" || exit 75  # nothing below is made where it was, should it go away
for needed in "$program" "$trainer"; do
    command -v "$needed" >/dev/null 2>&1 || { echo "${needed##*/}"; exit 72; }
done
mkdir -p models || exit 1
for digest; do
    target=models/$digest
    (
        flock -w 3000 9 || exit 75
        mkdir -p "$target.pins" && touch "$target.pins/$pin" || exit 1
        [ ! -d "$target" ] || exit 0
        rm -rf "$target.gone."*
        printf '%s\n' "$token" |
            "$program" stage --store "$store" --version "$digest" --out "$target" --token-stdin >&2
        status=$?
        [ "$status" -ne 2 ] || exit 65
        exit "$status"
    ) 9>"$target.lock" || exit $?
done
