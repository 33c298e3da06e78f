# After moving.sh and image_digest.sh. $1 image, $2 where its digest is kept, $3 what tells the image: reads it once.
image=$1 kept=$2
claim "${kept%/*}/image.moving" "$3" || exit
know() {
    ! find_digest || return 0
    [ -n "$stamp" ] || { echo "there is no image $image" >&2; return 75; }
    read_stamp=$stamp
    digest=$(nice sha256sum <"$image") || return 75
    stamp_image && [ "$stamp" = "$read_stamp" ] || { echo "$image changed while it was read" >&2; return 75; }
    keep_digest "${digest%% *}" || return 75
}
(know) >"${kept%/*}/image.moving/out" 2>"${kept%/*}/image.moving/err"
end "${kept%/*}/image.moving" "$?"
