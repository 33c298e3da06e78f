# In a batch job, in the attempt's directory, after image_digest.sh: the image is the one that has the digest $wanted.
# 75: it is not, or cannot be read, which is no failure of what the job was to run.
verify_image() {
    find_digest || {
        [ -n "$stamp" ] && [ -r "$image" ] || {
            echo "there is no image $image on $(uname -n), or it cannot be read" >&2
            return 75
        }
        read_stamp=$stamp
        sha256sum <"$image" >image.sha256 &
        await || return 75
        read -r digest rest <image.sha256
        stamp_image && [ "$stamp" = "$read_stamp" ] || { echo "$image changed while it was read" >&2; return 75; }
        keep_digest "$digest"
    }
    [ "$digest" = "$wanted" ] || {
        echo "$image has the sha256 $digest, but the facility's record says $wanted" >&2
        return 75
    }
}
