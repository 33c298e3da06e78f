# Functions for an image, the file $image. Its sha256 is kept in $kept with the size and time of the file that it is of,
# so that some gigabytes are read once; never within a script that is waited for on a login node.

# $stamp tells the file from another of its name. $1: where the file lies before it gets its name.
stamp_image() {
    stamp=$(stat -L -c '%s %Y' "${1:-$image}" 2>/dev/null) && stamp="$stamp $image"
}

# $digest, where it is known of this very file.
find_digest() {
    stamp_image && { read -r of && read -r digest; } 2>/dev/null <"$kept" && [ "$of" = "$stamp" ] && return
    digest=
    return 1
}

# $1: the digest of what $stamp tells.
keep_digest() {
    mkdir "${kept%/*}" 2>/dev/null
    new=$kept.$(uname -n).$$
    printf '%s\n%s\n' "$stamp" "$1" >"$new" && mv -f "$new" "$kept"
}
