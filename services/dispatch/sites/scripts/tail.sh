# $1 bytes, then files of attempts: prints for each how many bytes come, and the end of the file on a new line; nothing
# when there is none. Exit 74: the work directory is not there; 75: not known, with the reason.
[ -d "${2%/*/*/*/*}" ] || exit 74
max=$1
shift
for file; do
    size=0
    [ ! -e "$file" ] || size=$(wc -c <"$file") || exit 75
    [ "$size" -le "$max" ] || size=$max
    echo "$size"
    [ "$size" -eq 0 ] || tail -c "$size" "$file"
done
