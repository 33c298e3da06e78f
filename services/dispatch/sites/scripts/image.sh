# After image_digest.sh. Prints for how many seconds nobody has written the image, and its sha256 or "-" where it is not
# known. Exit 75: it cannot be read, or is still being copied; 65: it is no image.
[ -r "$image" ] && stamp_image || { echo "there is no image $image, or it cannot be read" >&2; exit 75; }
find_digest
quiet_seconds "$1"
# The header of a SIF file: its launch line (32 bytes), "SIF_MAGIC".
[ "$(dd if="$image" bs=1 skip=32 count=9 2>/dev/null)" = SIF_MAGIC ] || {
    echo "$image is no image (no SIF file)" >&2
    [ "$quiet_s" -ge "$1" ] || { echo "it is $quiet_s seconds old: is it still being copied?" >&2; exit 75; }
    exit 65
}
echo "$quiet_s ${digest:--}"
