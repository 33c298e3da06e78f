# After prepare_stage.sh. Prints the digest of the first version that is not there, a line, and a line of each file that
# there is of it, bytes and name; where all are there what tell_moved() does.

# $1 directory, below $partial.
list() {
    for place in "$1"/* "$1"/.[!.]*; do
        if [ -d "$place" ]; then
            list "$place"
        elif [ -f "$place" ]; then
            echo "$(stat -c %s "$place") ${place#"$partial"/}"
        fi
    done
}
for digest; do
    [ ! -d "models/$digest" ] || continue
    partial=models/.$digest.stream.partial  # clean_mover.sh removes what is called so
    # A link that lay there before models/ was ours alone would lead what comes elsewhere.
    [ ! -L "$partial" ] || { echo "$PWD/$partial is a link" >&2; exit 75; }
    [ -d "$partial" ] || mkdir "$partial" || exit 1
    echo "$digest"
    list "$partial"
    exit
done
tell_moved "$@"
