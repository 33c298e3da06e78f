# $1 file, $2 bytes to give at most: its first bytes. Exit 66: there is none.
[ -e "$1" ] || exit 66
head -c "$2" "$1"
