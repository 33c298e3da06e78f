# $1 attempt directory, then of each range: a file of the update, its first byte, its bytes. Prints their bytes, one range
# after the other. Exit 66: the attempt's directory, or the file, is gone or shorter (and not the whole file system); 74: the
# work directory is not there.
cd "$1/out" || { [ -d "${1%/*/*/*}" ] || exit 74; [ ! -e "$1/out" ] && [ -d "${1%/*/*}" ] && exit 66; exit 75; }
shift
while [ $# -gt 0 ]; do
    [ -e "./$1" ] && size=$(stat -L -c %s "./$1") && [ "$size" -ge "$(($2 + $3))" ] || exit 66
    dd if="./$1" bs=1M skip="$2" count="$3" iflag=fullblock,skip_bytes,count_bytes status=none || exit 75
    shift 3
done
