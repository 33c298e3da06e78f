# $1 file, $2 bytes to give at most: its first bytes; $3 work directory. Exit 66: there is none; 74: the work directory is
# not there.
[ -d "$3" ] || exit 74
[ -e "$1" ] || exit 66
head -c "$2" "$1"
