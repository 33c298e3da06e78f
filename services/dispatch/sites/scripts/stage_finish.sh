# $1 work directory, $2 version, of which every file has all its bytes, $3 pin, $4 for whom, $5 their number: gives it its
# name. Exit 74: the work directory is not there.
cd "$1" || exit 74
partial=models/.$2.stream.partial

# $1 directory: its names and those of the directories in it are on the disk.
sync_names() {
    for inner in "$1"/* "$1"/.[!.]*; do
        [ ! -d "$inner" ] || sync_names "$inner" || return
    done
    sync "$1"
}
sync_names "$partial" && mv -T "$partial" "models/$2" || { [ -d "models/$2" ]; exit; }
[ ! -e "models/$2.pins/$3" ] || printf '%s %s\n' "$4" "$5" >"models/$2.pins/$3"
