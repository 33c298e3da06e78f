# $1 file: its bytes. Exit 66: there is none.
[ -e "$1" ] || exit 66
cat "$1"
