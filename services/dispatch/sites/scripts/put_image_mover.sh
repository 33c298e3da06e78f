# After image_digest.sh. $1 image, $2 where its digest is kept, $3 its digest, $4 what has come, $5 bytes: reads what has
# come, once, and gives it its name. Its digest is kept then, as a new name changes what tells the image.
image=$1 kept=$2 wanted=$3 partial=$4 bytes=$5
claim "$partial.moving" "$wanted" || exit
echo "$bytes $bytes" >"$partial.moving/progress"
place() {
    digest=$(nice sha256sum <"$partial") || return 75
    digest=${digest%% *}
    [ "$digest" = "$wanted" ] || {
        rm -f "$partial"
        echo "what came has the sha256 $digest, not $wanted: it is removed" >&2
        return 65
    }
    sync "$partial" && mv -fT "$partial" "$image" && stamp_image && keep_digest "$wanted" || return 75
}
(place) >"$partial.moving/out" 2>"$partial.moving/err"
end "$partial.moving" "$?"
