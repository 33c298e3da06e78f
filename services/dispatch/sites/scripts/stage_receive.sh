# $1 work directory, $2 version, $3 bytes that are there of the chunk that goes on, $4 their sha256, then of each range in
# order, the first is the rest of that chunk: the file, its first byte, its bytes. Standard input: the ranges' bytes, one
# after the other; where it ends early all that has come is kept. Where it runs twice the same bytes come to the same
# places. Exit 81: what is there of the chunk is not what was sent, as after a crash; 74: the work directory is not there.
umask 077
cd "$1" || exit 74
cd "models/.$2.stream.partial" || exit 75
there=$3 sha256=$4
shift 4
[ "$there" -eq 0 ] || [ "$(tail -c "+$(($2 - there + 1))" "./$1" | head -c "$there" | sha256sum)" = "$sha256  -" ] || exit 81
while [ $# -gt 0 ]; do
    case $1 in */*) mkdir -p "${1%/*}" || exit 1 ;; esac
    # On the disk before the next range begins: a crash can spoil one chunk, which is compared when it goes on.
    dd of="./$1" bs=1M seek="$2" count="$3" iflag=fullblock,count_bytes oflag=seek_bytes conv=notrunc,fsync status=none ||
        exit 1
    [ "$(stat -c %s "./$1")" -ge "$(($2 + $3))" ] || break  # the input has ended
    shift 3
done
