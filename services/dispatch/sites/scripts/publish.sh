# $1 prepared directory, $2 its final place, whose name says which data it holds. Safe to repeat.
[ ! -d "$2" ] || exit 0
mkdir -p "$(dirname "$2")" && mv -T "$1" "$2"
