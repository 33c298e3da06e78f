# $1 file, $2 bytes: the end of the file, nothing when there is none.
[ ! -e "$1" ] || tail -c "$2" "$1"
