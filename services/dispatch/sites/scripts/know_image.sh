# After moving.sh and image_digest.sh; $image_mover is the text of know_image_mover.sh.

# Finds $digest of the image, which a process of its own reads where nobody has, see follow(). Exit 80: it is being read;
# 75: it cannot be read, or changes.
read_image() {
    find_digest && return
    [ -n "$stamp" ] && [ -r "$image" ] || { echo "there is no image $image, or it cannot be read" >&2; exit 75; }
    make_private "${kept%/*}" || exit 75
    task_mover=$mover mover=$image_mover token=
    follow "${kept%/*}/image.moving" "$stamp" '' "$image" "$kept" "$stamp"
    [ "$(cat "$ended/status")" -eq 0 ] || tell
    rm -rf "$ended"
    mover=$task_mover ended= moving= ticks=0
    find_digest || { echo "$image changed while it was read" >&2; exit 75; }
}

# Before a program of the image runs on a login node its sha256 is known and is the record's, $wanted. Exits as
# read_image(), with 75 where another one lies there, and with $1 where that one has lain there for $2 seconds.
know_image() {
    find_digest || [ -z "$stamp" ] || {
        quiet_seconds "$2"
        [ "$quiet_s" -ge 60 ] || {
            echo "$image was written $quiet_s seconds ago: is it still being copied?" >&2
            exit 75
        }
    }
    read_image
    [ "$digest" != "$wanted" ] || return 0
    echo "$image has the sha256 $digest, but the facility's record says $wanted" >&2
    quiet_seconds "$2"
    [ "$quiet_s" -lt "$2" ] || exit "$1"
    echo "it was written $quiet_s seconds ago: is it still being copied?" >&2
    exit 75
}
