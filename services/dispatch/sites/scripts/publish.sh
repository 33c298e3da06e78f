# $1 prepared directory, $2 its final place, whose name says which data it holds. Safe to repeat. Exit 66: the
# prepared directory is gone (and not the whole file system); 74: the work directory is not there.
[ ! -d "$2" ] || exit 0
[ -d "${1%/*/*/*/*}" ] || exit 74
[ -d "$1" ] || [ ! -d "${1%/*/*/*}" ] || exit 66
mkdir -p "${2%/*}" && mv -T "$1" "$2"
