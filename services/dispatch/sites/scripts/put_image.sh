# After moving.sh, image_digest.sh and know_image.sh. $1 the work directory, $2 bytes of the image, $3 where the bytes on
# standard input belong in it, empty: there are none. What has come of the image lies beside its place, in $partial, in a
# directory that nobody else enters; when all is there it is read as a whole before it gets its name, see follow(). Exit 0:
# the image is in its place; 80: "moving", the bytes that have come and those of the whole; 65: what came is another image,
# and is gone; 74: the work directory is not there; 75: not known, with the reason.
umask 077
token=
[ -d "$1" ] || { [ -z "$has_work_dir" ] && mkdir "$1"; } || exit 74
[ -d "${image%/*}/" ] || mkdir "${image%/*}/" || exit 75
! find_digest || [ "$digest" != "$wanted" ] || { rm -rf "${partial%/*}"; exit 0; }
make_private "${partial%/*}" || exit 75
# One of that size is read first: whoever was killed just after it got its name has left it.
if [ ! -e "$partial" ] && [ "$(stat -L -c %s "$image" 2>/dev/null)" = "$2" ]; then
    read_image
    [ "$digest" != "$wanted" ] || { rm -rf "${partial%/*}"; exit 0; }
fi
[ -e "$partial" ] || : >"$partial" || exit 75
bytes=$(wc -c <"$partial") || exit 75
# What a connection that broke has left is gone on from at its end.
if [ -n "$3" ] && [ "$3" -le "$bytes" ]; then
    said=$(dd bs=65536 of="$partial" oflag=seek_bytes seek="$3" conv=notrunc 2>&1) || { echo "$said" >&2; exit 75; }
    bytes=$(wc -c <"$partial") || exit 75
fi
[ "$bytes" -ge "$2" ] || { echo "moving $bytes $2"; exit 80; }
follow "$partial.moving" "$wanted" '' "$image" "$kept" "$wanted" "$partial" "$2"
[ "$(cat "$ended/status")" -ne 0 ] || { rm -rf "${partial%/*}"; exit 0; }
tell
